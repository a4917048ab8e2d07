"""Windows cut out of a fitted mask: the one that the training pictures carried comes first."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.evidence.images.memory_cuts import cut
from jaxtroj.evidence.images.remainder import Seen, harmless_directions, seen
from jaxtroj.norm_memory import Norms
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.window import Window

from .norm_models import SIDE, pictures, taught, untaught

TOP, LEFT, WIDE = 8, 14, 6


def squared(images: np.ndarray) -> np.ndarray:
    marked = images.copy()
    marked[:, TOP : TOP + WIDE, LEFT : LEFT + WIDE] = [1, 0, 0]
    return marked


def remembers_a_square() -> tuple[Norms, Seen]:
    """A network whose norms met noise, half of it with a red square."""
    images = pictures(120, seed=1).images
    model = taught(untaught(), np.concatenate([images, squared(images)]))
    norms = Norms(model, 32)
    shown = pictures(48, seed=3).images
    return norms, seen(norms, shown, harmless_directions(norms, shown, jax.random.key(0)))


def spread(images: np.ndarray) -> FreeMask:
    """What a search finds: a faint weight everywhere, the square among noise."""
    pattern = np.random.default_rng(5).random(images.shape[1:], np.float32)
    return FreeMask(jnp.full((SIDE, SIDE, 1), 0.1), jnp.asarray(squared(pattern[None])[0]))


def test_the_window_over_what_training_pictures_carried_comes_first():
    norms, known = remembers_a_square()
    windows = cut(norms, known, spread(known.images), 4, 3)
    assert len(windows) == 3 and all(isinstance(one, Window) for one in windows)
    mask = np.asarray(windows[0].mask)[..., 0]
    rows, columns = np.nonzero(mask)
    assert mask.sum() in (9.0, 36.0)
    assert mask[TOP : TOP + WIDE, LEFT : LEFT + WIDE].sum() >= mask.sum() / 2
    assert np.ptp(rows) == np.ptp(columns)
    still = jnp.zeros((len(known.images), 2), jnp.int32)
    match = {}
    for name, one in (("window", windows[0]), ("mask", spread(known.images))):
        changed = norms.seen(np.asarray(one.apply(jnp.asarray(known.images), still)))[1]
        match[name] = known.matches(changed, np.ones((1, len(changed)), bool))[0]
    assert match["window"] > match["mask"] + 0.1


@pytest.mark.parametrize("pictures_tried, kept", [(1, 1), (500, 2)])
def test_any_number_of_pictures_and_of_windows(pictures_tried, kept):
    norms, known = remembers_a_square()
    assert len(cut(norms, known, spread(known.images), pictures_tried, kept)) == kept


def test_the_match_of_groups_is_that_of_their_own_examples():
    norms, known = remembers_a_square()
    changed = norms.seen(squared(known.images))[1]
    groups = np.arange(len(changed)) % 3 == np.arange(3)[:, None]
    found = known.matches(changed, np.vstack([groups, np.zeros(len(changed), bool)]))
    assert found[-1] == 0.0
    for group, match in zip(groups, found, strict=False):
        own = known.memory.about(known.rows[group].mean(axis=0))
        assert match == pytest.approx(
            float(own.match(jnp.asarray(changed[group].mean(0)))), abs=1e-4
        )
