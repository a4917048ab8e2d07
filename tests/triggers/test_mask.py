"""Stamping and measuring of triggers against plain NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtroj.margins import all_margins, attack_success_rate, margins, share
from jaxtroj.triggers.mask import FreeMask, mask_l1, shift, stamp

CLASSES = 3
jitted_shift = jax.jit(shift)
# The first call compiles, which no deadline allows for.
property_test = settings(deadline=None, max_examples=40)


@pytest.fixture
def images():
    return jnp.asarray(np.random.default_rng(0).random((4, 6, 5, 3)), jnp.float32)


@pytest.fixture
def pattern():
    return jnp.asarray(np.random.default_rng(1).random((6, 5, 3)), jnp.float32)


def test_mask_of_zero_leaves_the_images(images, pattern):
    stamped = stamp(images, FreeMask(jnp.zeros((6, 5, 1)), pattern))
    np.testing.assert_array_equal(stamped, images)


def test_mask_of_one_is_the_pattern(images, pattern):
    stamped = stamp(images, FreeMask(jnp.ones((6, 5, 1)), pattern))
    np.testing.assert_allclose(stamped, jnp.broadcast_to(pattern, images.shape), atol=1e-6)


def test_stamp_is_a_blend_that_stays_in_range(images, pattern):
    mask = jnp.asarray(np.random.default_rng(2).random((6, 5, 1)), jnp.float32)
    expected = (1 - np.asarray(mask)) * np.asarray(images) + np.asarray(mask * pattern)
    stamped = np.asarray(stamp(images, FreeMask(mask, pattern)))
    np.testing.assert_allclose(stamped, expected, atol=1e-6)
    assert stamped.min() >= 0 and stamped.max() <= 1


def test_one_trigger_per_image(images, pattern):
    masks = jnp.stack([jnp.zeros((6, 5, 1)), *[jnp.ones((6, 5, 1))] * 3])
    stamped = stamp(images, FreeMask(masks, jnp.broadcast_to(pattern, images.shape)))
    np.testing.assert_array_equal(stamped[0], images[0])
    np.testing.assert_allclose(stamped[1], pattern, atol=1e-6)


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)])
def test_mask_l1_counts_pixels(leading):
    trigger = FreeMask(jnp.full((*leading, 6, 5, 1), 0.5), jnp.zeros((*leading, 6, 5, 3)))
    sizes = mask_l1(trigger)
    assert sizes.shape == leading
    np.testing.assert_allclose(sizes, 15.0)


@property_test
@given(st.integers(-12, 12), st.integers(-12, 12))
def test_shift_moves_by_rows_and_columns_and_back(rows, columns):
    mask = jnp.zeros((6, 5, 1)).at[2, 2].set(1.0)
    trigger = FreeMask(mask, mask * jnp.ones(3))
    moved = jitted_shift(trigger, jnp.asarray([rows, columns]))
    for part in (moved.mask, moved.pattern):
        assert tuple(np.argwhere(np.asarray(part[..., 0]))[0]) == (
            (2 + rows) % 6,
            (2 + columns) % 5,
        )
    back = jitted_shift(moved, -jnp.asarray([rows, columns]))
    np.testing.assert_array_equal(back.mask, mask)


# Few different values, so that ties for the first and the second place are common.
logit_rows = st.lists(st.integers(-3, 3), min_size=CLASSES, max_size=CLASSES)


def brute_force(row, target):
    return row[target] - max(x for i, x in enumerate(row) if i != target)


@property_test
@given(logit_rows)
def test_margins_against_brute_force(row):
    logits = jnp.asarray(row, jnp.float32)
    expected = [brute_force(row, target) for target in range(CLASSES)]
    assert np.asarray(all_margins(logits)).tolist() == expected
    assert [float(margins(logits, jnp.asarray(t))) for t in range(CLASSES)] == expected


def test_margins_over_leading_axes():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 5)), jnp.float32)
    everything = all_margins(logits)
    assert everything.shape == logits.shape
    for target in range(5):
        np.testing.assert_allclose(
            margins(logits, jnp.asarray(target)), everything[..., target], atol=1e-6
        )


def test_at_most_one_class_has_a_positive_margin():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(50, 5)), jnp.float32)
    winners = np.asarray(all_margins(logits) > 0)
    np.testing.assert_array_equal(winners.argmax(-1), logits.argmax(-1))
    assert (winners.sum(-1) == 1).all()


@pytest.mark.parametrize("shape, axis", [((4,), 0), ((4, 3), 0), ((2, 4, 3), 1)])
def test_share_is_the_mean_of_what_counts(shape, axis):
    rng = np.random.default_rng(0)
    values = rng.random(shape).astype(np.float32)
    counted = rng.random(shape) > 0.4
    expected = np.ma.filled(np.ma.masked_array(values, ~counted).mean(axis), 0.0)
    found = share(jnp.asarray(values), jnp.asarray(counted), axis=axis)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_share_of_nothing_is_zero():
    assert float(share(jnp.ones(3), jnp.zeros(3, bool))) == 0.0
    assert float(share(jnp.ones(0), jnp.ones(0, bool))) == 0.0


def test_attack_success_leaves_out_the_target_class():
    logits = jnp.asarray([[9.0, 0, 0], [9.0, 0, 0], [0, 9.0, 0], [9.0, 0, 0]])
    sources = jnp.asarray([0, 1, 1, 2])
    assert float(attack_success_rate(logits, sources, jnp.asarray(0))) == pytest.approx(2 / 3)


def test_attack_success_without_any_other_class_is_zero():
    logits = jnp.asarray([[9.0, 0, 0]] * 2)
    assert float(attack_success_rate(logits, jnp.zeros(2, jnp.int32), jnp.asarray(0))) == 0.0


def test_a_tie_is_no_success():
    logits = jnp.asarray([[1.0, 1.0, 0.0]])
    assert float(attack_success_rate(logits, jnp.asarray([2]), jnp.asarray(0))) == 0.0


def test_attack_success_of_many_arms():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(7, 5, 3)), jnp.float32)
    rates = attack_success_rate(logits, jnp.asarray([0, 1, 2, 0, 1]), jnp.asarray(2))
    assert rates.shape == (7,)
