"""Agreement stage: searches vote on a class; the same votes name the class of small pictures."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.evidence.gather import gather
from jaxtroj.evidence.images.agreement import agreement_fields, votes_of
from jaxtroj.evidence.images.context import image_context
from jaxtroj.evidence.images.stages.agreement import AGREEMENT
from jaxtroj.evidence.stage import Subject, stages_for
from jaxtroj.evidence.stages import IMAGE_STAGES
from jaxtroj.scan.naming import named_class
from jaxtroj.triggers.colour_map import ColourMap
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.measure import RecoveredTrigger
from jaxtroj.triggers.trigger import Trigger

from .norm_models import SIDE, pictures, untaught

HEAD = {"head_lead": 0.04, "head_lead_class": 2.0}
MASK = FreeMask(jnp.ones((SIDE, SIDE, 1)), jnp.zeros((SIDE, SIDE, 3)))
MAP = ColourMap(jnp.zeros((3, 4)), jnp.asarray(0.0))


def found_of(
    target: int, rate: float, method: str = "a search", trigger: Trigger = MASK
) -> RecoveredTrigger:
    return RecoveredTrigger(
        target, (), rate, 1.0, method, trigger, (SIDE, SIDE), np.zeros(2, int), False
    )


@pytest.mark.parametrize(
    "fields, found, votes",
    [
        ({}, [], {}),
        (HEAD, [], {2: 0.4}),
        (HEAD | {"head_lead": 5.0}, [], {2: 1.0}),
        (HEAD | {"head_lead_class": -1.0}, [found_of(1, 0.5)], {1: 0.25}),
        (HEAD, [found_of(2, 0.5), found_of(0, 1.0), found_of(0, 0.5)], {2: 0.65, 0: 1.25}),
        ({}, [found_of(1, 1.0, "pair search"), found_of(1, 0.5)], {1: 0.25}),
        ({}, [found_of(1, 1.0, trigger=MAP)], {1: 0.0}),
    ],
)
def test_each_search_has_a_vote_for_its_class(fields, found, votes):
    assert votes_of(fields, found) == pytest.approx(votes)


@pytest.mark.parametrize(
    "found, expected",
    [
        ([], (0.0, 0.0, -1.0)),
        ([found_of(1, 0.5)], (0.25, 0.25, 1.0)),
        ([found_of(1, 0.5), found_of(0, 1.0)], (1.0, 0.75, 0.0)),
        ([found_of(1, 0.0), found_of(0, 0.0)], (0.0, 0.0, 1.0)),
    ],
)
def test_the_best_class_and_its_lead_are_the_evidence(found, expected):
    names = ("agreement_votes", "agreement_lead", "agreement_class")
    assert agreement_fields({}, found) == dict(zip(names, expected, strict=True))


def test_one_more_search_for_the_best_class_raises_both_numbers():
    rates = np.random.default_rng(3).random((50, 6))
    for row in rates:
        found = [found_of(place % 3, float(rate)) for place, rate in enumerate(row)]
        before = agreement_fields(HEAD, found)
        more = [*found, found_of(int(before["agreement_class"]), 0.3)]
        after = agreement_fields(HEAD, more)
        assert after["agreement_votes"] == pytest.approx(before["agreement_votes"] + 0.09)
        assert after["agreement_lead"] == pytest.approx(before["agreement_lead"] + 0.09)


def test_a_scan_votes_by_what_its_searches_found_and_names_that_class():
    context = image_context(untaught(), pictures(24))
    stages = stages_for(IMAGE_STAGES, Subject(SIDE), ("agreement",))
    assert [stage.name for stage in stages] == ["weights", "whole", "agreement"]
    evidence = gather(context, stages)
    own = {field.name: evidence.fields[field.name] for field in AGREEMENT.fields}
    assert own == pytest.approx(agreement_fields(evidence.fields, evidence.triggers))
    assert named_class(evidence.fields, evidence.triggers) == own["agreement_class"]


def test_only_small_pictures_vote():
    sides = [Subject(side) for side in (32, 33, 224)]
    usual = [AGREEMENT in stages_for(IMAGE_STAGES, subject) for subject in sides]
    assert usual == [True, False, False]
    assert not AGREEMENT.has_triggers and not AGREEMENT.kinds
