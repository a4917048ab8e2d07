"""Maxima over windows against torch: values, ties, gradients of first and second order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from converters.errors import ConversionError
from converters.families import standard
from converters.families.pooling import avg_pool, max_pool
from converters.model import apply, param_shapes

# rows and columns of the map, window, stride, padding
SHAPES = {
    "resnet": ((12, 12), 3, 2, 1),
    "resnet, odd": ((13, 11), 3, 2, 1),
    "inception": ((9, 10), 3, 2, 0),
    "densenet": ((8, 8), 2, 2, 0),
    "googlenet": ((7, 7), 3, 1, 1),
    "wide and flat": ((6, 9), (1, 4), (1, 3), 0),
    "gaps between windows": ((10, 10), 2, 3, 0),
    "one element": ((5, 6), 1, 1, 0),
    "one window": ((4, 4), 4, 4, 0),
    "far overlap": ((11, 11), 5, 2, 2),
}


@pytest.fixture(params=SHAPES, ids=str)
def case(request):
    size, window, stride, padding = SHAPES[request.param]
    random = np.random.default_rng(7)
    x = random.integers(0, 5, (2, *size, 3)).astype(float)  # integers, so that many are equal
    reference = torch.from_numpy(x.transpose(0, 3, 1, 2).copy()).requires_grad_(True)
    y = torch.nn.functional.max_pool2d(reference, window, stride, padding)
    weights = random.standard_normal(tuple(y.shape))
    (gradient,) = torch.autograd.grad((y * torch.from_numpy(weights)).sum(), reference)
    ours = _pool(window, stride, padding)
    channels_last = [v.transpose(0, 2, 3, 1) for v in (y.detach().numpy(), gradient.numpy())]
    return ours, x, weights.transpose(0, 2, 3, 1), *channels_last


def _pool(window, stride, padding):
    return lambda x: max_pool(x, window, stride, ((padding, padding), (padding, padding)))


@pytest.mark.parametrize("compile_", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_values_and_gradient_are_torchs(case, compile_):
    ours, x, weights, values, gradient = case
    with jax.enable_x64(True):
        y, pull = compile_(lambda x: jax.vjp(ours, x))(jnp.asarray(x))
        (found,) = pull(jnp.asarray(weights))
        np.testing.assert_array_equal(y, values)
        np.testing.assert_allclose(found, gradient, rtol=0, atol=1e-12)


def test_maps_one_by_one_give_the_same(case):
    ours, x, weights, _, gradient = case
    with jax.enable_x64(True):
        one = jax.vmap(lambda x, w: jax.vjp(ours, x[None])[1](w[None])[0][0])
        np.testing.assert_allclose(one(x, weights), gradient, rtol=0, atol=1e-12)


def test_second_derivatives():
    ours = _pool(3, 2, 1)
    x = np.random.default_rng(3).standard_normal((1, 6, 6, 2))
    with jax.enable_x64(True):

        def cubes(x):
            return (ours(x) ** 3).sum()

        diagonal = jax.grad(lambda x: jax.grad(cubes)(x).sum())(x)
        times = jax.grad(lambda x: ours(x).sum())(x)  # windows that an element is the maximum of
        np.testing.assert_allclose(diagonal, 6 * x * times, atol=1e-12)


def test_padding_of_each_side_has_its_own_width():
    x = -np.ones((1, 4, 4, 1))
    y = max_pool(jnp.asarray(x), 3, 2, ((0, 1), (1, 0)))
    assert y.shape == (1, 2, 2, 1)
    assert (y == -1).all()


def test_a_window_without_elements_is_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        max_pool(jnp.ones((1, 4, 4, 1)), 0, 2)


@pytest.mark.parametrize("shape", [(1, 1, 4, 2), (1, 4, 1, 2), (1, 1, 1, 2)])
def test_a_window_that_does_not_fit_is_said(shape):
    found = f"map of {shape[1]} x {shape[2]}"
    for pool in (lambda x: avg_pool(x, 2, 2), lambda x: max_pool(x, 2, 1)):
        with pytest.raises(ConversionError, match=f"a window of 2 x 2 with stride .* {found}"):
            pool(jnp.ones(shape))


@pytest.mark.parametrize(
    ("architecture", "size", "said"),
    [
        ("densenet121", (7, 9), "a window of 2 x 2 with stride 2 x 2 does not fit into a map of 1"),
        ("densenet121", (64, 7), "a window of 2 x 2"),
        ("inception_v3", (7, 7), "a window of 3 x 3"),
        ("inception_v3", (2, 40), "a window of 3 x 3"),
        ("inception_v3", (74, 74), "a window of 3 x 3"),
    ],
)
def test_pictures_that_are_too_small_for_a_network(architecture, size, said):
    config = standard(architecture, 3)
    params = {name: jax.ShapeDtypeStruct(s, "float32") for name, s in param_shapes(config).items()}
    images = jax.ShapeDtypeStruct((1, *size, 3), "float32")
    expected = f"^pictures of {size[0]} x {size[1]} pixels are too small for this network: {said}"
    with pytest.raises(ConversionError, match=expected):
        jax.eval_shape(lambda p, x: apply(config, p, x), params, images)


@pytest.mark.parametrize(
    ("architecture", "side"), [("densenet121", 29), ("inception_v3", 75), ("resnet18", 1)]
)
def test_the_smallest_pictures_that_a_network_takes(architecture, side):
    config = standard(architecture, 3)
    params = {name: jax.ShapeDtypeStruct(s, "float32") for name, s in param_shapes(config).items()}
    images = jax.ShapeDtypeStruct((1, side, side, 3), "float32")
    assert jax.eval_shape(lambda p, x: apply(config, p, x), params, images).shape == (1, 3)
