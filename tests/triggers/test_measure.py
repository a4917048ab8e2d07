"""Attack success, source classes and the best candidate, against what is known by construction."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.measure import (
    Candidates,
    Measured,
    RecoveredTrigger,
    best_of,
    strongest_first,
)

SOURCES = np.array([0, 0, 0, 1, 1, 2])


def measured(gains, targets) -> Measured:
    arms = len(targets)
    triggers = FreeMask(jnp.ones((arms, 4, 4, 1)), jnp.zeros((arms, 4, 4, 3)))
    found = Candidates("test", triggers, np.asarray(targets), np.arange(arms) % 2 == 0)
    return Measured(found, SOURCES, np.asarray(gains, float), np.ones(arms))


def test_only_other_classes_count():
    found = measured([[9, 9, 9, -1, 1, 1], [-1, 2, 2, 9, 9, -3]], [0, 1])
    np.testing.assert_allclose(found.rates, [2 / 3, 2 / 4])
    assert found.counts.tolist() == [3, 4]
    np.testing.assert_allclose(found.margins, [1 / 3, 0.0])
    assert found.source_classes(0) == (2,), "half of class 1 is not more than half"
    assert found.source_classes(1) == (0,)
    assert 0 <= found.scores.min() and found.scores.max() <= 1


def test_no_example_of_another_class_is_no_success():
    found = Measured(
        measured([[9, 9]], [0]).found, np.zeros(2, int), np.full((1, 2), 9.0), np.ones(1)
    )
    assert found.rates.tolist() == [0.0] and found.source_classes(0) == ()
    assert found.counts.tolist() == [0]


@pytest.fixture
def shown() -> AnchoredExamples:
    """Three examples of classes 2, 0 and 1, their objects 1, 2 and 3 pixels from the centre."""
    anchors = jnp.asarray([[3.0, 3.0], [4.0, 4.0], [5.0, 5.0]])
    return AnchoredExamples(
        jnp.zeros((3, 4, 4, 3)), anchors, jnp.asarray([2, 0, 1]), jnp.zeros((3, 3)), 1.0
    )


@pytest.mark.parametrize("targets, offset", [([2, 1], [2, 2]), ([0, 1], [1, 1])])
def test_an_anchored_trigger_is_shown_on_the_first_example_of_another_class(targets, offset, shown):
    best = best_of(measured([[5] * 6, [-5] * 6], targets), shown)
    assert best.target_class == targets[0] and best.offset.tolist() == offset
    still = best_of(measured([[-5] * 6, [5] * 6], targets), shown)
    assert still.target_class == 1 and still.offset.tolist() == [0, 0]


def recovered(rate, size) -> RecoveredTrigger:
    trigger = FreeMask(jnp.ones((2, 2, 1)), jnp.ones((2, 2, 3)))
    return RecoveredTrigger(0, (), rate, size, "test", trigger, (2, 2), np.zeros(2, int))


def test_the_strongest_then_the_smallest_comes_first():
    some = [recovered(0.5, 0.1), recovered(0.9, 0.3), recovered(0.9, 0.2)]
    assert [t.size for t in strongest_first(some)] == [0.2, 0.3, 0.1]


def test_a_record_s_numbers():
    facts = recovered(0.9, 1.0).as_json()
    assert facts == {
        "method": "test", "kind": "mask", "score": 0.9, "examples": 0, "mask_l1": 4.0,
        "row": 0.5, "column": 0.5,
    }  # fmt: skip
