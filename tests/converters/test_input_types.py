"""Images of other types and shapes than float32 `[n, h, w, c]`: taken, or told what is expected."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from converters.errors import ConversionError
from converters.families.resnet import BlockConfig, ResNetConfig
from converters.function import function_model
from converters.model import Model, apply, param_shapes
from converters.preparation import prepared

STAGES = tuple((BlockConfig((4, 4), number > 0),) for number in range(4))
CONFIG = ResNetConfig(4, STAGES, 1, 3)
IMAGES = np.random.default_rng(0).integers(0, 2, (2, 32, 40, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> Model:
    random = np.random.default_rng(1)
    shapes = param_shapes(CONFIG).items()
    params = {name: random.uniform(0.1, 0.2, shape) for name, shape in shapes}
    return Model(CONFIG, {n: jnp.asarray(v, jnp.float32) for n, v in params.items()}, "resnet")


@pytest.mark.parametrize("images", [np.uint8, bool, np.int64, np.float16, jnp.bfloat16, np.float64])
def test_images_of_every_type(model, images):
    found = model(IMAGES.astype(images))
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, model(IMAGES), rtol=1e-6)


@pytest.mark.parametrize("params", [jnp.bfloat16, np.float16])
@pytest.mark.parametrize("images", [np.float32, np.float16, np.uint8])
def test_parameters_of_half_precision(model, params, images):
    found = model.astype(params)(IMAGES.astype(images))
    assert found.dtype == params
    np.testing.assert_allclose(found.astype(np.float32), model(IMAGES), rtol=0.05)


def test_wide_images_in_64_bits(model):
    with jax.enable_x64(True):
        assert model(IMAGES.astype(np.float64)).dtype == jnp.float32


def test_whole_numbers_are_prepared_as_floats(model):
    front = prepared(model, mean=(0.3, 0.4, 0.5), std=(0.2, 0.3, 0.4))
    np.testing.assert_allclose(front(IMAGES.astype(np.uint8)), front(IMAGES), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "todo"),
    [
        ((32, 40, 3), r"one image alone is images\[None\]"),
        ((2, 3, 32, 40), "move axis 1, the channels, to the end"),
        ((2, 32, 40, 1), "give images of these axes and channels"),
        ((32, 40), "give images of these axes and channels"),
    ],
)
def test_images_of_another_shape_are_told_what_was_expected(model, shape, todo):
    own = function_model(lambda p, x: x.mean((1, 2)) * p, jnp.ones(3), (32, 40, 3))
    for one, size in ((model, r"\(n, h, w, 3\)"), (own, r"\(n, 32, 40, 3\)")):
        with pytest.raises(
            ConversionError, match=f"^got images of shape .*, expected {size}; {todo}"
        ):
            one(np.zeros(shape, np.float32))


def test_images_of_the_own_type_are_not_converted(model):
    """The programs of scans have no step for it."""

    def traced(images) -> str:
        return str(jax.make_jaxpr(lambda p, x: apply(CONFIG, p, x))(model.params, images))

    step = "f32[2,32,40,3] = convert_element_type"
    assert step not in traced(IMAGES) and step in traced(IMAGES.astype(np.float16))
