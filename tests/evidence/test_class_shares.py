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
