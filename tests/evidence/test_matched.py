"""Examples that went another way than the training pictures are made like them, and no others."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.ndimage import gaussian_filter

from converters.families.folding import fold
from converters.model import Model
from jaxtroj.evidence.images.look import Look
from jaxtroj.evidence.images.matched import Match, match, matched
from jaxtroj.evidence.images.statistics import difference, norm_layers
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Examples

from .norm_models import SIDE, odd_ones, taught, untaught

COUNT = 64


def scenes(seed: int, count: int = COUNT) -> np.ndarray:
    """Pictures `[n, side, side, 3]` of soft blobs and fine detail, far from black and white."""
    draw = np.random.default_rng(seed)
    coarse, fine = (draw.standard_normal((count, SIDE, SIDE, 3)) for _ in range(2))
    soft = gaussian_filter(coarse, (0, 3, 3, 0)) * 2 + gaussian_filter(fine, (0, 0.6, 0.6, 0)) / 8
    return np.clip(0.45 + 0.2 * soft, 0.05, 0.7).astype(np.float32)


def examples_of(model: Model, images: np.ndarray) -> Examples:
    """The pictures, named by what the network answers."""
    labels = np.asarray(Network(fold(model)).logits(images)).argmax(axis=-1).astype(np.int32)
    return Examples(images, labels, tuple(map(str, range(len(images)))), "RGB")


@pytest.fixture(scope="module")
def model() -> Model:
    return taught(untaught(), scenes(1, 128))


@pytest.fixture(scope="module")
def own(model) -> Examples:
    return examples_of(model, scenes(2))


def test_examples_like_the_training_pictures_stay(model, own):
    assert match(model, own) is None


@pytest.mark.parametrize(
    "change",
    [
        Look(light=-0.36),
        Look(light=0.26),
        Look(contrast=-0.5),
        Look(light=-0.29, sharpness=-1.0),
        Look(light=-0.22, contrast=-0.16, sharpness=-0.7),
        Look(gamma=0.4),
        Look(black=-0.2),
        Look(red=0.14, blue=-0.14),
    ],
    ids=str,
)
def test_what_another_way_did_to_all_examples_is_undone(model, own, change):
    given = replace(own, images=change.of(own.images))
    found = match(model, given)
    assert found is not None and found.after < 0.3 * found.before
    again = matched(given, found)
    assert np.abs(again.images - own.images).mean() < np.abs(given.images - own.images).mean()
    assert difference(norm_layers(model, again.images)) < 0.4 * found.before
    assert np.array_equal(again.labels, given.labels) and again.names == given.names
    assert again.images.dtype == np.float32 and again.images.min() >= 0 and again.images.max() <= 1


def test_of_large_pictures_few_are_tried(model, own):
    """Above 64 px each try is dear."""
    large = replace(own, images=np.tile(own.images, (1, 3, 3, 1)))
    network = taught(untaught(), np.tile(scenes(1, 128), (1, 3, 3, 1)))
    found = match(network, replace(large, images=Look(light=-0.36).of(large.images)))
    assert found is not None and found.after < 0.3 * found.before
    assert match(network, large) is None


def stamped(images: np.ndarray) -> np.ndarray:
    images = images.copy()
    images[:, 2:9, 3:10] = (1.0, 0.0, 0.9)
    return images


def halved(images: np.ndarray) -> np.ndarray:
    """A colour filter: red goes, blue comes."""
    return np.clip(images * (0.4, 1.0, 1.0) + (0.0, 0.0, 0.25), 0, 1).astype(np.float32)


@pytest.mark.parametrize("trigger", [stamped, halved])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_what_a_trigger_leaves_is_not_explained_away(own, trigger, share):
    images = scenes(1, 128)
    count = int(share * len(images))
    poisoned = taught(untaught(), np.concatenate([trigger(images[:count]), images[count:]]))
    assert match(poisoned, examples_of(poisoned, own.images)) is None


def test_a_change_that_costs_right_answers_is_not_made(model, own):
    """Where the labels are what the network answers to dark pictures, light ones cost some."""
    dark = Look(light=-0.36).of(own.images)
    assert match(model, replace(own, images=dark)) is not None
    right = examples_of(model, dark)
    assert (right.labels != own.labels).mean() > 0.02
    assert match(model, right) is None


@pytest.mark.parametrize(
    ("after", "right", "is_sound"),
    [
        (0.2, (0.9, 0.95), True),
        (0.2, (0.9, 0.89), True),
        (0.2, (0.9, 0.87), False),
        (0.31, (0.9, 0.95), False),
        (0.85, (0.7, 0.81), True),
        (0.2, (0.0, 0.0), True),
    ],
)
def test_a_change_explains_most_or_wins_many_right_answers(after, right, is_sound):
    assert Match(Look(light=0.3), 1.0, after, right).is_sound is is_sound


def test_few_examples_differ_by_chance(model, own):
    given = replace(own, images=Look(light=-0.36).of(own.images))
    few = (replace(given, images=given.images[:n], labels=given.labels[:n]) for n in (15, 16))
    assert [match(model, one) is None for one in few] == [True, False]


@pytest.mark.parametrize("place", range(4))
def test_odd_models_and_examples_get_no_change_but_one_that_explains(place):
    network, few = list(odd_ones())[place]
    many = replace(few, images=np.tile(few.images, (8, 1, 1, 1)), labels=np.tile(few.labels, 8))
    found = match(network, many)
    assert found is None or 0 <= found.after <= 0.3 * found.before < np.inf
    assert found is None or np.isfinite(matched(many, found).images).all()
