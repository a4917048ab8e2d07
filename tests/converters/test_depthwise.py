"""Convolutions of one channel each: values and gradients equal XLA's own convolution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from converters.families.depthwise import depthwise

# kernel, stride, padding, size of the map
CASES = {
    "same": ((3, 3), (1, 1), (1, 1), (7, 6)),
    "halving": ((3, 3), (2, 2), (1, 1), (8, 8)),
    "halving, odd map": ((3, 3), (2, 2), (1, 1), (7, 9)),
    "rows that no window reaches": ((2, 2), (3, 3), (0, 0), (9, 10)),
    "5x5": ((5, 5), (1, 1), (2, 2), (6, 6)),
    "rectangular": ((1, 3), (2, 1), (0, 2), (5, 7)),
    "padded beyond the kernel": ((3, 3), (1, 1), (4, 3), (4, 5)),
    "one tap": ((1, 1), (2, 2), (0, 0), (5, 5)),
}


def plain(x, kernel, stride, padding):
    """The same by XLA's convolution."""
    return lax.conv_general_dilated(
        x, kernel, stride, [(p, p) for p in padding],
        dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=x.shape[-1],
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_values_and_gradients(case):
    x, kernel, weights, stride, padding = _drawn(*case)
    with jax.enable_x64():
        ours = jnp.asarray(depthwise(x, kernel, stride, padding))
        np.testing.assert_allclose(ours, plain(x, kernel, stride, padding), atol=1e-12)
        _check_gradients(lambda f, *at: (weights * f(*at, stride, padding)).sum(), x, kernel)


def test_gradients_of_the_second_order():
    x, kernel, weights, stride, padding = _drawn(*CASES["halving, odd map"])

    def steepness(convolve, x, kernel):
        slope = jax.grad(lambda x: (weights * convolve(x, kernel, stride, padding) ** 2).sum())(x)
        return (slope**2).sum()

    with jax.enable_x64():
        _check_gradients(steepness, x, kernel)


def _drawn(size, stride, padding, map_size):
    draw = np.random.default_rng(0)
    x, kernel = draw.normal(size=(2, *map_size, 3)), draw.normal(size=(*size, 1, 3))
    with jax.enable_x64():
        shape = plain(jnp.asarray(x), jnp.asarray(kernel), stride, padding).shape
        arrays = [jnp.asarray(a) for a in (x, kernel, draw.normal(size=shape))]
    return *arrays, stride, padding


def _check_gradients(measure, x, kernel):
    ours, theirs = (jax.grad(measure, (1, 2))(f, x, kernel) for f in (depthwise, plain))
    for one, other in zip(ours, theirs, strict=True):
        assert one.dtype == jnp.float64
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
