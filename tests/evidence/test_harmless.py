"""Harmless changes: pictures stay pictures, and each does what its name says."""

import jax
import numpy as np
import pytest

from jaxtroj.evidence.images.harmless import harmless_changes
from jaxtroj.evidence.images.remainder import harmless_directions, seen
from jaxtroj.norm_memory import Norms

from .norm_models import SIDE, taught, untaught


@pytest.mark.parametrize("shape", [(1, 8, 8, 1), (5, 32, 40, 3), (2, 64, 64, 3)])
def test_pictures_stay_pictures_and_each_change_is_another(shape):
    images = np.random.default_rng(0).random(shape, np.float32)
    kept = images.copy()
    changes = harmless_changes(images, np.random.default_rng(1))
    assert all(one.shape == shape and one.dtype == np.float32 for one in changes)
    assert all(0 <= one.min() and one.max() <= 1 for one in changes)
    np.testing.assert_array_equal(images, kept)
    if shape[0] > 1 and shape[-1] > 1:
        flat = np.stack([images, *changes]).reshape(len(changes) + 1, -1)
        assert len(np.unique(flat, axis=0)) == len(flat)


def test_equal_draws_make_equal_changes():
    images = np.random.default_rng(0).random((4, 16, 16, 3), np.float32)
    first, second = (harmless_changes(images, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(np.stack(first), np.stack(second))


def test_a_moved_picture_has_a_black_edge_and_is_the_picture_elsewhere():
    images = 0.5 + 0.5 * np.random.default_rng(0).random((3, 32, 32, 3), np.float32)
    moved = [
        one
        for one in harmless_changes(images, np.random.default_rng(0))
        if (one[:, :, 4:] == images[:, :, :-4]).all()
    ]
    assert len(moved) == 1 and not moved[0][:, :, :4].any()


def blocks(count: int, seed: int) -> np.ndarray:
    """Pictures of 6 by 6 blocks: unlike noise, they change when they move or lose a part."""
    small = np.random.default_rng(seed).random((count, 6, 6, 3), np.float32)
    return small.repeat(SIDE // 6, axis=1).repeat(SIDE // 6, axis=2)


def augmented(images: np.ndarray) -> np.ndarray:
    """Moved by up to three pixels with a black edge, then a black square in each."""
    draw, changed = np.random.default_rng(5), []
    for image in images:
        row, column = draw.integers(0, 7, size=2)
        moved = np.pad(image, ((3, 3), (3, 3), (0, 0)))[row : row + SIDE, column : column + SIDE]
        row, column = draw.integers(0, SIDE - 6, size=2)
        moved[row : row + 6, column : column + 6] = 0.0
        changed.append(moved)
    return np.stack(changed)


def stamped(images: np.ndarray) -> np.ndarray:
    changed = images.copy()
    changed[:, -5:-1, -5:-1] = (1.0, 0.0, 1.0)
    return changed


def test_what_augmentation_left_in_the_norms_is_no_remainder_and_a_trigger_is():
    everyone, examples = np.ones((1, 128), bool), blocks(128, seed=2)

    def match(taught_on: np.ndarray, images: np.ndarray) -> float:
        norms = Norms(taught(untaught(), taught_on), 64)
        found = seen(norms, examples, harmless_directions(norms, examples, jax.random.key(0)))
        return float(found.matches(norms.seen(images)[1], everyone)[0])

    plain = blocks(512, seed=1)
    half = np.arange(len(plain)) % 2 == 0
    plain[half] = stamped(plain[half])
    assert match(plain, stamped(examples)) > 0.8
    # Only moved and cut: 0.84 where changes of light, mirrors and rolls alone are harmless.
    assert abs(match(augmented(blocks(512, seed=1)), augmented(examples))) < 0.25
