"""Patches: as large as they say, where they say, with gradients; banks that only grow."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.rows import taken
from jaxtroj.triggers.mask import shift
from jaxtroj.triggers.patch import (
    Patch,
    random_patches,
    vary,
)

SIDE = 80
RADIUS = 0.1


@partial(jax.jit, static_argnums=(2, 3))
def mask_of(patch: Patch, anchor, height: int, width: int):
    """Mask of a patch on an anchor (pixels)."""
    offset = jnp.asarray(anchor).astype(int) - jnp.asarray([height // 2, width // 2])
    return patch.drawn((height, width), offset).mask


def patch(sides=5, radius=RADIUS, angle=0.4, offset=(0.0, 0.0)) -> Patch:
    return Patch(
        jnp.asarray([0.9, 0.1, 0.3]),
        jnp.asarray(offset, jnp.float32),
        jnp.asarray(radius, jnp.float32),
        jnp.asarray(angle, jnp.float32),
        jnp.asarray(sides),
    )


def centre_of(mask) -> np.ndarray:
    mask = np.asarray(mask[..., 0], np.float64)
    grid = np.stack(np.meshgrid(*map(np.arange, mask.shape), indexing="ij"), axis=-1)
    return (grid * mask[..., None]).sum((0, 1)) / mask.sum()


@pytest.mark.parametrize("sides", range(3, 9))
@pytest.mark.parametrize("angle", [0.0, 1.0])
def test_area_is_that_of_the_circle(sides, angle):
    """8 pixels of radius: the soft edge (0.7 pixels) adds a few per cent, more to smaller ones."""
    mask = mask_of(patch(sides, angle=angle), jnp.asarray([40.0, 40.0]), SIDE, SIDE)
    assert float(mask.sum()) == pytest.approx(np.pi * (RADIUS * SIDE) ** 2, rel=0.1)
    assert float(mask.min()) >= 0 and float(mask.max()) <= 1


@pytest.mark.parametrize("sides", range(3, 9))
@pytest.mark.parametrize("anchor", [(40.0, 40.0), (20.0, 55.0)])
def test_is_centred_on_its_anchor(sides, anchor):
    mask = mask_of(patch(sides), jnp.asarray(anchor), SIDE, SIDE)
    np.testing.assert_allclose(centre_of(mask), anchor, atol=0.2)


@pytest.mark.parametrize("height, width", [(60, 80), (80, 60)])
def test_offset_and_radius_are_shares_of_the_shorter_side(height, width):
    mask = mask_of(patch(8, offset=(0.1, -0.2)), jnp.asarray([30.0, 30.0]), height, width)
    assert mask.shape == (height, width, 1)
    np.testing.assert_allclose(centre_of(mask), [36.0, 18.0], atol=0.2)
    assert float(mask.sum()) == pytest.approx(np.pi * (RADIUS * 60) ** 2, rel=0.1)


def test_beyond_the_border_nothing_is_left():
    assert float(mask_of(patch(), jnp.asarray([-100.0, 40.0]), SIDE, SIDE).sum()) < 1e-3


@pytest.mark.parametrize("offset", [(0, 0), (-38, 5), (31, -37), (120, -95)])
def test_a_patch_that_wraps_moves_as_its_mask_is_rolled(offset):
    still = replace(patch(offset=(0.2, -0.1)), wraps=True)
    rolled = shift(still.drawn((40, 60), jnp.zeros(2, int)), jnp.asarray(offset))
    moved = still.drawn((40, 60), jnp.asarray(offset))
    np.testing.assert_array_equal(moved.mask, rolled.mask)


def test_a_patch_that_does_not_wrap_is_cut_off_at_the_edge():
    offset = jnp.asarray([-40, 0])
    cut, whole = (replace(patch(), wraps=w).drawn((SIDE, SIDE), offset) for w in (False, True))
    assert float(cut.mask.sum()) == pytest.approx(float(whole.mask.sum()) / 2, rel=0.1)
    np.testing.assert_array_equal(cut.mask[:40], whole.mask[:40])
    assert float(cut.mask[60:].max()) < 1e-6


def test_turning_by_one_side_changes_nothing():
    once = mask_of(patch(5, angle=0.3), jnp.asarray([40.0, 40.0]), SIDE, SIDE)
    again = mask_of(patch(5, angle=0.3 + 2 * np.pi / 5), jnp.asarray([40.0, 40.0]), SIDE, SIDE)
    np.testing.assert_allclose(once, again, atol=1e-4)


@pytest.mark.parametrize("sides", [3, 4, 8])
@pytest.mark.parametrize("radius", [0.0, 0.03, 0.16])
def test_gradients_are_finite(sides, radius):
    start = patch(sides, radius)

    def inside(values):
        offset, size, angle = values
        chosen = Patch(start.colour, offset, size, angle, start.sides)
        # A sum over the lower half feels every move, also that of a symmetric patch.
        return mask_of(chosen, jnp.asarray([20.0, 20.0]), 40, 40)[20:].sum()

    gradients = jax.jit(jax.grad(inside))((start.offset, start.radius, start.angle))
    assert all(np.isfinite(leaf).all() for leaf in gradients)
    assert radius == 0.0 or float(jnp.abs(gradients[0]).max()) > 0


def test_trigger_has_the_colour_everywhere():
    trigger = patch().drawn((SIDE, SIDE), jnp.zeros(2, int))
    assert trigger.mask.shape == (SIDE, SIDE, 1) and trigger.pattern.shape == (SIDE, SIDE, 3)
    np.testing.assert_array_equal(trigger.pattern[3, 7], patch().colour)


def test_a_longer_bank_begins_with_the_shorter():
    short, long = (random_patches(jax.random.key(3), n, 3, (0.05, 0.1)) for n in (5, 9))
    for a, b in zip(jax.tree.leaves(short), jax.tree.leaves(long), strict=True):
        np.testing.assert_array_equal(a, b[:5])


def test_random_patches_are_in_range_and_differ():
    bank = random_patches(jax.random.key(0), 40, 3, (0.05, 0.1))
    assert 0 <= float(bank.colour.min()) and float(bank.colour.max()) <= 1
    assert set(np.asarray(bank.sides).tolist()) == set(range(3, 9))
    np.testing.assert_allclose(bank.radius, np.tile([0.05, 0.1], 20), rtol=1e-6)
    assert len(np.unique(np.asarray(bank.colour), axis=0)) == 40
    other = random_patches(jax.random.key(1), 40, 3, (0.05, 0.1))
    assert not np.allclose(bank.colour, other.colour)


def test_neighbours_follow_the_originals_and_stay_in_range():
    bank = random_patches(jax.random.key(0), 6, 3, (0.05, 0.1))
    more = vary(jax.random.key(1), bank, copies=3)
    assert more.radius.shape == (24,)
    for old, new in zip(jax.tree.leaves(bank), jax.tree.leaves(more), strict=True):
        np.testing.assert_array_equal(old, new[:6])
        assert old.dtype == new.dtype
    assert 0 <= float(more.colour.min()) and float(more.colour.max()) <= 1
    assert float(jnp.abs(more.offset[6:]).max()) <= 0.2
    np.testing.assert_array_equal(more.sides, np.tile(bank.sides, 4))
    assert float(more.radius.min()) > 0.02 and float(more.radius.max()) < 0.25
    assert len(np.unique(np.asarray(more.colour), axis=0)) == 24


def test_no_copies_are_the_originals():
    bank = random_patches(jax.random.key(0), 2, 3, (0.05,))
    assert vary(jax.random.key(1), bank, copies=0).radius.shape == (2,)


def test_rows_are_whole_patches():
    bank = random_patches(jax.random.key(0), 5, 3, (0.05, 0.1))
    chosen = taken(bank, np.array([4, 1]))
    np.testing.assert_array_equal(chosen.colour, bank.colour[jnp.asarray([4, 1])])
    assert chosen.sides.tolist() == [int(bank.sides[4]), int(bank.sides[1])]


def test_gradients_are_finite_when_compilers_round_otherwise():
    """Unoptimised, XLA computes the distances anew to compare them, and none is the largest."""
    weights = np.random.default_rng(0).normal(size=(12, 12, 1)).astype(np.float32)

    def weighed(patch):
        return (patch.drawn((12, 12), np.zeros(2, np.int32)).mask * weights).sum()

    gradient = jax.vmap(jax.grad(weighed, allow_int=True))
    bank = random_patches(jax.random.key(3), 8, 3, (0.1,))
    wanted, program = gradient(bank), jax.jit(gradient)
    jax.config.update("jax_disable_most_optimizations", True)
    try:
        found = program(bank)
    finally:
        jax.config.update("jax_disable_most_optimizations", False)
    assert np.abs(wanted.offset).min() > 0 and np.isfinite(found.offset).all()
    np.testing.assert_allclose(found.radius, wanted.radius, rtol=1e-3)
