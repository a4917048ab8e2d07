"""What one class's examples have of another in excess, beside a clean network's."""

import numpy as np
import pytest

from jaxtroj.evidence.images.leans import leans_beside

CLASSES, EACH = 8, 10


def likeness(seed: int) -> np.ndarray:
    """`[source, target]`: which classes are alike, the same both ways."""
    rng = np.random.default_rng(seed)
    half = np.triu(rng.normal(size=(CLASSES, CLASSES)), 1)
    return 1.5 * (half + half.T)


def answers(alike: np.ndarray, seed: int, classes=CLASSES) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a good network of classes that are so alike, and labels of ten examples each."""
    labels = np.repeat(np.arange(classes), EACH)
    noise = np.random.default_rng(seed).normal(size=(len(labels), classes))
    return 9 * np.eye(classes)[labels] + alike[labels][:, :classes] + noise, labels


@pytest.mark.parametrize("scale", [1.0, 5.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_pair_that_leans_in_one_network_alone_is_found(seed, scale):
    alike = likeness(seed)
    own, labels = answers(alike, 10 + seed)
    clean, _ = answers(alike, 20 + seed)
    none = leans_beside(own, scale * clean, labels)
    own[labels == 4, 1] += 4.0
    found = leans_beside(own, scale * clean, labels)
    assert found.pair == (4, 1) and found.furthest > 1.3 * none.furthest
    assert np.isnan(np.diag(found.excess)).all()


def test_classes_that_are_alike_in_every_network_lean_less():
    alike = likeness(0)
    alike[2, 3] = alike[5, 6] = 6.0  # one way only, so that the way back explains nothing
    own, labels = answers(alike, 1)
    own[labels == 4, 1] += 4.0
    found = leans_beside(own, answers(alike, 2)[0], labels)
    other = leans_beside(own, answers(likeness(7), 3)[0], labels)
    assert found.pair == (4, 1)
    assert found.excess[2, 3] < other.excess[2, 3]


def test_chance_alone_has_about_one():
    found = [
        leans_beside(answers(likeness(s), s)[0], answers(likeness(s), 99 - s)[0], labels).furthest
        for s in range(20)
        for labels in [answers(likeness(s), s)[1]]
    ]
    assert 0.6 < np.median(found) < 1.4


def test_classes_without_examples_may_be_leant_to():
    own, labels = answers(likeness(1), 4)
    clean, _ = answers(likeness(1), 5)
    own[labels == 0, 3] += 6.0
    some = labels != 3
    found = leans_beside(own[some], clean[some], labels[some])
    assert found.pair == (0, 3) and np.isnan(found.excess[3]).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_few_classes_and_few_examples_give_finite_numbers(classes):
    own, labels = answers(likeness(2), 6, classes)
    clean, _ = answers(likeness(2), 7, classes)
    for count in (1, len(labels)):
        found = leans_beside(own[:count], clean[:count], labels[:count])
        assert np.isfinite(found.furthest) and found.pair[0] != found.pair[1]
    same = leans_beside(own, own, labels)
    assert np.isfinite(same.furthest)
