"""Programs of these tests run once or twice each."""

import pytest


@pytest.fixture(autouse=True)
def _compiled_quickly(quick_compilation):
    """See there."""
