"""Programs of the tests are compiled without optimisations, three times as fast."""

import jax
import pytest


@pytest.fixture(autouse=True)
def _quick_compilation(request):
    name = "jax_disable_most_optimizations"
    jax.config.update(name, "slow" not in request.keywords)
    yield
    jax.config.update(name, False)
