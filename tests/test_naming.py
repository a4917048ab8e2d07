"""Which class a verdict names, and a trigger that works for it."""

from dataclasses import replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxtroj
from jaxtroj.anchors import AnchoredExamples
from jaxtroj.scan.naming import FITTED_PATTERNS, named_class, working_trigger
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.measure import Candidates, Measured, best_of

SOURCES = np.array([0, 0, 1, 1, 2, 2])
FIELDS = {"head_lead": 0.01, "head_lead_class": 2.0, "norm_lift": 0.2, "norm_lift_class": 1.0}
NO_LAST_LAYER = FIELDS | {"head_lead_class": -1.0}


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


@pytest.mark.parametrize(
    "method, flipped, fields, named",
    [
        ("window search", 6, FIELDS, 0),
        ("window search", 1, FIELDS, 2),
        ("pair search", 6, FIELDS, 2),
        ("colour map bank", 6, FIELDS, 2),
        ("colour map bank", 6, NO_LAST_LAYER, 1),
        ("colour map bank", 6, {}, 0),
    ],
)
def test_a_fitted_pattern_names_its_class_else_the_last_layer(
    method, flipped, fields, named, examples
):
    found = [best_of(searched(method, [0], [flipped]), examples)]
    assert named_class(fields, found) == named


@pytest.mark.parametrize(
    "rates, side, named",
    [
        ({"windows": (0, 3), "blends": (1, 2), "frames": (1, 2)}, 4, 0),
        ({"windows": (0, 3), "blends": (1, 5), "frames": (1, 5)}, 4, 1),
        ({"windows": (0, 3), "blends": (1, 5), "frames": (1, 5)}, 64, 2),
        ({"windows": (0, 6), "pair search": (1, 6), "pair search ": (1, 1)}, 4, 0),
        ({"windows": (0, 4), "blends": (1, 4)}, 4, 2),
    ],
)
def test_searches_vote_in_small_pictures(rates, side, named, examples):
    """Each has its class and flips so many of the six examples, of which two are of the class."""
    found = [
        replace(best_of(searched(method, [target], [flipped]), examples), shape=(side, side))
        for method, (target, flipped) in rates.items()
    ]
    assert named_class(FIELDS, found) == named


def test_without_a_trigger_the_signs_name_a_class_or_nobody_does():
    assert named_class(FIELDS, []) == 2
    assert named_class({}, []) is None


def test_methods_of_fitted_patterns_are_the_names_that_searches_give():
    folder = Path(jaxtroj.__file__).parent
    text = "".join(path.read_text() for path in folder.rglob("*.py") if path.name != "naming.py")
    assert all(f'"{method}"' in text for method in FITTED_PATTERNS)
