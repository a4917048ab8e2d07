"""What every kind of trigger owes, as one table of checks over all kinds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.triggers.blend import Blend
from jaxtroj.triggers.kinds import KINDS, unit_rank
from jaxtroj.triggers.mask import FreeMask, stamp
from jaxtroj.triggers.patch import random_patches
from jaxtroj.triggers.trigger import triggered
from jaxtroj.triggers.window import Window

SHAPE, COUNT = (10, 14), 4


def batch(kind: str):
    """`COUNT` triggers of a kind."""
    rng = np.random.default_rng(0)
    masks = jnp.asarray(rng.random((COUNT, *SHAPE, 1)), jnp.float32)
    patterns = jnp.asarray(rng.random((COUNT, *SHAPE, 3)), jnp.float32)
    makers = {
        "patch": lambda: random_patches(jax.random.key(0), COUNT, 3, (0.1, 0.2)),
        "mask": lambda: FreeMask(masks, patterns),
        "window": lambda: Window((masks > 0.5).astype(jnp.float32), patterns),
        "blend": lambda: Blend(jnp.linspace(0.0, 1.0, COUNT, dtype=jnp.float32), patterns),
    }
    return makers[kind]()


def one(kind: str):
    return jax.tree.map(lambda x: x[1], batch(kind))


@pytest.fixture
def images():
    return jnp.asarray(np.random.default_rng(1).random((3, *SHAPE, 3)), jnp.float32)


OFFSETS = jnp.asarray([[0, 0], [2, -3], [-4, 5]])
every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_the_row_is_the_kind(kind):
    trigger = one(kind)
    assert isinstance(trigger, KINDS[kind]) and trigger.kind == kind
    assert unit_rank(trigger) == 0, "all of these are shares of the picture"


@every_kind
def test_pictures_stay_pictures(kind, images):
    shown = one(kind).apply(images, OFFSETS)
    assert shown.shape == images.shape and shown.dtype == images.dtype
    assert float(shown.min()) >= 0 and float(shown.max()) <= 1


@every_kind
def test_many_at_once_are_each_alone(kind, images):
    triggers = batch(kind)
    together = jax.jit(jax.vmap(lambda t: t.apply(images, OFFSETS)))(triggers)
    sizes = jax.jit(jax.vmap(lambda t: t.size(SHAPE)))(triggers)
    for place in range(COUNT):
        alone = jax.tree.map(lambda x, place=place: x[place], triggers)
        np.testing.assert_allclose(together[place], alone.apply(images, OFFSETS), atol=1e-6)
        np.testing.assert_allclose(sizes[place], alone.size(SHAPE), rtol=1e-6)


@every_kind
def test_what_is_drawn_is_what_is_applied(kind, images):
    trigger = one(kind)
    for image, offset in zip(images, OFFSETS, strict=True):
        shown = triggered(trigger, np.asarray(image), offset)
        drawn = trigger.drawn(SHAPE, offset)
        np.testing.assert_allclose(shown, stamp(image, drawn), atol=1e-6)


@every_kind
def test_four_panels_show_it(kind, images):
    clean, shown, mask, pattern = one(kind).picture(np.asarray(images[1]), OFFSETS[1])
    np.testing.assert_array_equal(clean, images[1])
    np.testing.assert_allclose(shown, triggered(one(kind), clean, OFFSETS[1]), atol=1e-6)
    assert mask.shape == pattern.shape == clean.shape


@every_kind
def test_json_tells_size_and_place(kind):
    trigger = one(kind)
    facts = trigger.as_json(SHAPE, np.zeros(2, int))
    assert set(facts) == {"mask_l1", "row", "column"}
    assert facts["mask_l1"] == pytest.approx(float(trigger.size(SHAPE)) * np.prod(SHAPE), rel=1e-4)
    assert 0 <= facts["row"] < SHAPE[0] and 0 <= facts["column"] < SHAPE[1]


@pytest.mark.parametrize("kind", ["window", "blend"])
def test_what_has_its_place_stays_there(kind, images):
    trigger = one(kind)
    still = trigger.apply(images, jnp.zeros_like(OFFSETS))
    np.testing.assert_array_equal(trigger.apply(images, OFFSETS), still)
