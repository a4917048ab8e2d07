"""What the caller has set of jax is put aside for a scan in his process, and comes back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxtroj
from jaxtroj.caller_settings import usual_jax
from jaxtroj.settings import Settings

STRICT = {
    "jax_numpy_rank_promotion": "raise",
    "jax_numpy_dtype_promotion": "strict",
    "jax_transfer_guard": "disallow",
}


@pytest.fixture(params=STRICT)
def strict(request):
    before = getattr(jax.config, request.param)
    jax.config.update(request.param, STRICT[request.param])
    yield
    jax.config.update(request.param, getattr(before, "value", before) or "allow")


def promotes() -> float:
    """What each of the settings forbids."""
    return float((jnp.asarray([1, 2]) * jnp.ones((2, 2)) + np.ones(2, np.float16)).sum())


def test_the_defaults_hold_within_and_the_caller_s_own_again_after(strict):
    with usual_jax():
        assert promotes() == 10
    with pytest.raises(Exception, match="promotion|transfer"):
        promotes()


def test_a_jax_function_is_scanned_whatever_the_caller_has_set(strict):
    random = np.random.default_rng(0)
    weights = random.normal(size=(3, 2)).astype(np.float32)
    pixels = random.integers(0, 256, (8, 16, 16, 3)).astype(np.uint8)
    settings = Settings(stages=("weights", "statistics"), calibrator=None, normalization="unit")
    verdict = jaxtroj.detect(
        (lambda params, x: x.mean((1, 2)) @ params, weights), pixels, [0, 1] * 4, settings
    )
    assert verdict.record.status == "ok"
