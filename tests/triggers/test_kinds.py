"""What every kind of trigger owes, as one table of checks over all kinds."""

import itertools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.triggers.blend import Blend
from jaxtroj.triggers.border import Border
from jaxtroj.triggers.colour_map import random_colour_maps
from jaxtroj.triggers.filter import ColourFilter
from jaxtroj.triggers.kinds import KINDS, unit_rank
from jaxtroj.triggers.mask import FreeMask, stamp
from jaxtroj.triggers.patch import random_patches
from jaxtroj.triggers.sinusoid import Sinusoid
from jaxtroj.triggers.smooth import Smooth
from jaxtroj.triggers.trigger import triggered
from jaxtroj.triggers.warp import random_warps
from jaxtroj.triggers.window import Window

pytestmark = pytest.mark.usefixtures("quick_compilation")

SHAPE, COUNT = (10, 14), 4
MASKED = ("patch", "mask", "window", "border", "blend")


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
        "border": lambda: Border(jnp.asarray([0.5, 1.0, 2.5, 3.0]), patterns),
        "filter": lambda: ColourFilter(jnp.arange(COUNT)),
        "colour map": lambda: random_colour_maps(jax.random.key(0), COUNT, 3),
        "sinusoid": lambda: Sinusoid(*jnp.asarray(rng.random((4, COUNT)), jnp.float32)),
        "smooth": lambda: Smooth(jnp.asarray(rng.normal(0, 0.1, (COUNT, 4, 5, 3)), jnp.float32)),
        "warp": lambda: random_warps(jax.random.key(0), COUNT, 4, jnp.asarray(1.5)),
    }
    return makers[kind]()


def one(kind: str):
    return jax.tree.map(lambda x: x[1], batch(kind))


@pytest.fixture
def images():
    return jnp.asarray(np.random.default_rng(1).random((3, *SHAPE, 3)), jnp.float32)


OFFSETS = jnp.asarray([[0, 0], [2, -3], [-4, 5]])
every_kind = pytest.mark.parametrize("kind", KINDS)
masked_kinds = pytest.mark.parametrize("kind", MASKED)
others = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in MASKED])


@every_kind
def test_the_row_is_the_kind(kind):
    trigger = one(kind)
    assert isinstance(trigger, KINDS[kind]) and trigger.kind == kind
    assert (unit_rank(trigger) == 0) == (kind in MASKED), "shares of the picture rank first"


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


@masked_kinds
def test_what_is_drawn_is_what_is_applied(kind, images):
    trigger = one(kind)
    for image, offset in zip(images, OFFSETS, strict=True):
        shown = triggered(trigger, np.asarray(image), offset)
        drawn = trigger.drawn(SHAPE, offset)
        np.testing.assert_allclose(shown, stamp(image, drawn), atol=1e-6)


@masked_kinds
def test_four_panels_show_it(kind, images):
    clean, shown, mask, pattern = one(kind).picture(np.asarray(images[1]), OFFSETS[1])
    np.testing.assert_array_equal(clean, images[1])
    np.testing.assert_allclose(shown, triggered(one(kind), clean, OFFSETS[1]), atol=1e-6)
    assert mask.shape == pattern.shape == clean.shape


@masked_kinds
def test_json_tells_size_and_place(kind):
    trigger = one(kind)
    facts = trigger.as_json(SHAPE, np.zeros(2, int))
    assert {"mask_l1", "row", "column"} <= set(facts)
    assert facts["mask_l1"] == pytest.approx(float(trigger.size(SHAPE)) * np.prod(SHAPE), rel=1e-4)
    assert 0 <= facts["row"] < SHAPE[0] and 0 <= facts["column"] < SHAPE[1]


@others
def test_three_panels_show_what_has_no_mask(kind, images):
    clean, shown, difference = one(kind).picture(np.asarray(images[1]), OFFSETS[1])
    np.testing.assert_array_equal(clean, images[1])
    np.testing.assert_allclose(shown, triggered(one(kind), clean, OFFSETS[1]), atol=1e-6)
    assert difference.shape == clean.shape and np.abs(difference - 0.5).max() <= 0.5 + 1e-6


@every_kind
def test_json_is_strict_json(kind):
    facts = one(kind).as_json(SHAPE, np.zeros(2, int))
    assert facts and json.loads(json.dumps(facts, allow_nan=False)) == facts


@every_kind
def test_gradients_are_finite(kind, images):
    """Also where pictures are black, white or grey: there ratios and powers have their corners."""
    flat = jnp.stack([jnp.full_like(images[0], value) for value in (0.0, 0.5, 1.0)])
    for shown in (images, flat):
        gradient = jax.grad(loss, argnums=(0, 1), allow_int=True)(one(kind), shown)
        leaves = [x for x in jax.tree.leaves(gradient) if x.dtype == jnp.float32]
        assert leaves and all(bool(jnp.isfinite(x).all()) for x in leaves)


def loss(trigger, images):
    return jnp.square(trigger.apply(images, OFFSETS)).sum() + trigger.size(SHAPE).sum()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("patch", "mask")])
def test_what_has_its_place_stays_there(kind, images):
    trigger = one(kind)
    still = trigger.apply(images, jnp.zeros_like(OFFSETS))
    np.testing.assert_array_equal(trigger.apply(images, OFFSETS), still)


def test_no_two_kinds_have_one_structure():
    """Else a jitted function could answer for one kind by the program of another."""
    structures = [jax.tree.structure(batch(kind)) for kind in KINDS]
    assert all(a != b for a, b in itertools.combinations(structures, 2))
