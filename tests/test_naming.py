"""Which class a verdict names: that of a loud sign, and a trigger that works for it."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.scan.naming import signed_class, working_trigger
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.measure import Candidates, Measured, best_of

SOURCES = np.array([0, 0, 1, 1, 2, 2])
FIELDS = {"head_lead": 0.3, "head_lead_class": 2.0, "norm_lift": 0.2, "norm_lift_class": 1.0}


@pytest.mark.parametrize(
    "supports, named",
    [
        ({"head lead": 0.8, "lift": 0.5}, 2),
        ({"head lead": 0.4, "lift": 0.5}, 1),
        ({"head lead": 0.4, "lift": 0.0}, 2),
        ({"head lead": 0.04, "lift": 0.0}, None),
        ({"head lead": 0.4, "lift": 0.0, "fixed": 1.0, "whole": 0.2}, None),
        ({"head lead": 0.4, "lift": 0.0, "fixed": 0.7}, 2),
        ({"head lead": 0.4, "lift": 0.0, "support": 2.0}, 2),
        ({"fixed": 1.0}, None),
        ({}, None),
    ],
)
def test_the_loudest_sign_names_its_class_unless_a_search_is_twice_as_loud(supports, named):
    assert signed_class(FIELDS, supports) == named


def test_a_sign_without_a_class_names_none():
    fields = FIELDS | {"head_lead_class": -1.0}
    assert signed_class(fields, {"head lead": 0.9, "lift": 0.0}) is None
    assert signed_class({}, {"head lead": 0.9}) is None


def searched(method, targets, flipped) -> Measured:
    """One arm for each target; it flips so many of the six examples, the last ones."""
    arms = len(targets)
    triggers = FreeMask(jnp.ones((arms, 4, 4, 1)), jnp.zeros((arms, 4, 4, 3)))
    found = Candidates(method, triggers, np.asarray(targets), np.zeros(arms, bool))
    gains = np.where(np.arange(6) >= 6 - np.asarray(flipped)[:, None], 3.0, -3.0)
    return Measured(found, SOURCES, gains, np.ones(arms))


@pytest.fixture
def examples() -> AnchoredExamples:
    return AnchoredExamples(
        jnp.zeros((6, 4, 4, 3)), jnp.zeros((6, 2)), jnp.asarray(SOURCES), jnp.zeros((6, 3)), 1.0
    )


def test_a_trigger_for_the_named_class_is_taken_from_any_search(examples):
    windows = searched("windows", [1, 0], [6, 3])
    blends = searched("blends", [1, 0, 2], [6, 4, 1])
    best = [best_of(each, examples) for each in (windows, blends)]
    assert [trigger.target_class for trigger in best] == [1, 1]
    own = working_trigger(0, best, (windows, blends), examples)
    assert own is not None and (own.target_class, own.method) == (0, "blends")
    assert own.attack_success_rate == 1.0 and own.source_classes == (1, 2)
    assert working_trigger(2, best, (windows, blends), examples) is None, "it flips no example"
    assert working_trigger(1, best, (), examples) == best[0]
