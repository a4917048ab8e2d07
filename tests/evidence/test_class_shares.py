"""Class shares of training out of batch norms: unequal ones are known, triggers are none."""

from dataclasses import replace

import numpy as np
import pytest

from jaxtroj.anchors import Answered
from jaxtroj.evidence.images.class_shares import ClassShares, class_shares, drawn_by
from jaxtroj.evidence.images.context import ImageContext, image_context
from jaxtroj.evidence.images.statistics import answered, statistics_fields
from jaxtroj.rounds.examples import Examples

from .norm_models import odd_ones, overflowing, pictures, taught, untaught

CLASSES, LEAD = 4, 2
EQUAL, UNEQUAL = (40, 40, 40, 40), (20, 20, 160, 20)


def of_classes(counts: tuple[int, ...], seed: int) -> Examples:
    """So many pictures of each class, whose grey level, stripes and red tell it."""
    labels = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
    images = 0.4 * pictures(len(labels), seed=seed).images
    images += 0.15 * (labels % 2)[:, None, None, None]
    images[:, ::2] += 0.2 * (labels == LEAD)[:, None, None, None]
    images[..., 0] += 0.3 * (labels >= 2)[:, None, None]
    return Examples(images.astype(np.float32), labels, tuple(map(str, labels)), "RGB")


def context_of(trained_on: np.ndarray) -> ImageContext:
    """Of a network that was trained on some pictures, with 16 clean examples of each class."""
    return image_context(taught(untaught(CLASSES), trained_on), of_classes((16,) * CLASSES, 9))


@pytest.fixture(scope="module")
def unequal():
    return context_of(of_classes(UNEQUAL, 1).images)


def test_shares_of_training_are_known(unequal):
    found = unequal.shared(class_shares)
    np.testing.assert_allclose(found.shares, np.array(UNEQUAL) / sum(UNEQUAL), atol=0.1)
    assert found.shares.sum() == pytest.approx(1) and found.is_unequal and found.explained <= 1
    assert found.share_of(LEAD) == pytest.approx(found.shares[LEAD])
    assert found.share_of(0) is None


@pytest.mark.parametrize("stamped", [0, 60])
def test_equal_classes_and_triggers_alone_are_not_taken_for_unequal_ones(stamped):
    images = of_classes(EQUAL, 1).images.copy()
    some = np.random.default_rng(4).permutation(len(images))[:stamped]
    images[some, 8:16, 8:16] = (1, 1, 0)
    found = context_of(images).shared(class_shares)
    assert not found.is_unequal and found.share_of(LEAD) is None


def test_examples_of_the_shares_of_training_differ_from_it_by_little(unequal):
    examples = unequal.examples
    logits = np.asarray(unequal.network.logits(examples.images))
    chosen = np.argsort(np.arange(len(examples.labels)) % 16, kind="stable")
    equally = Answered(*(x[chosen] for x in (examples.images, examples.labels, logits)))
    before = statistics_fields(unequal.opened, equally)
    after = statistics_fields(unequal.opened, unequal.shared(answered))
    assert after["norm_shift"] < 0.4 * before["norm_shift"]
    assert after["norm_spread"] < 0.6 * before["norm_spread"]


def test_each_half_has_the_shares_and_pictures_of_its_own():
    labels, shares = np.arange(40) % CLASSES, ClassShares(np.array([0.1, 0.1, 0.7, 0.1]), 0.9)
    places = drawn_by(shares, labels)
    halves = places[:20], places[20:]
    assert not set(halves[0].tolist()) & set(halves[1].tolist())
    for half in halves:
        assert np.bincount(labels[half], minlength=CLASSES).tolist() == [2, 2, 14, 2]
    for none in (None, replace(shares, explained=0.2)):
        np.testing.assert_array_equal(drawn_by(none, labels), np.arange(40))


def test_examples_of_unknown_class_have_no_share_of_any():
    unequal = ClassShares(np.array([0.1, 0.1, 0.8]), 0.9)
    labels = np.array([0, 1, 2, -1] * 8)
    np.testing.assert_array_equal(drawn_by(unequal, labels), np.arange(32))


@pytest.mark.parametrize("labels", [[0, 1], [0, 0, 0], [1, 0, 1, 0, 2]])
def test_examples_of_any_number_are_drawn_as_many_times(labels):
    found = drawn_by(ClassShares(np.array([0.0, 0.0, 1.0]), 0.9), np.array(labels))
    assert len(found) == len(labels) and set(found.tolist()) <= set(range(len(labels)))


def test_examples_that_do_not_all_say_their_class_are_not_drawn_by_it(unequal):
    labels = unequal.examples.labels.copy()
    labels[5] = -1
    context = replace(unequal, examples=replace(unequal.examples, labels=labels), _known={})
    assert context.shared(class_shares) is None
    assert sorted(context.shared(answered).labels) == sorted(labels)


@pytest.mark.parametrize("which", range(5))
def test_odd_networks_and_examples_have_finite_shares_or_none(which):
    model, examples = [*odd_ones(), (overflowing(), pictures(12))][which]
    found = image_context(model, examples).shared(class_shares)
    assert found is None or (np.isfinite(found.shares).all() and np.isfinite(found.explained))
