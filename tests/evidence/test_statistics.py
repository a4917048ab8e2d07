"""Statistics stage: examples unlike the training pictures show, and chance does not."""

from dataclasses import replace

import numpy as np
import pytest

from converters.model import Model
from jaxtroj import network
from jaxtroj.anchors import Answered
from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.gather import gather
from jaxtroj.evidence.images.context import image_context
from jaxtroj.evidence.images.stages.statistics import STATISTICS
from jaxtroj.evidence.images.statistics import (
    STEADIED,
    lifts,
    statistics_fields,
    steady_fields,
)
from jaxtroj.evidence.stage import Subject, stages_for
from jaxtroj.evidence.stages import IMAGE_STAGES, IMAGES
from jaxtroj.rounds.examples import Examples

from .norm_models import SIDE, odd_ones, overflowing, pictures, taught, untaught


@pytest.fixture(scope="module", autouse=True)
def small_batches():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(network, "_CPU_PIXELS", 32 * SIDE * SIDE)
        yield


def fields_of(model: Model, examples: Examples) -> dict[str, float]:
    evidence = gather(image_context(model, examples), (STATISTICS,))
    assert tuple(evidence.fields) == IMAGES.stage_fields["statistics"]
    assert np.isfinite(list(evidence.fields.values())).all() and not evidence.triggers
    fields = dict(evidence.fields)
    assert fields == fields | steady_fields(fields)
    return fields


def test_examples_like_the_training_pictures_show_nothing():
    model = taught(untaught(), pictures(64, seed=1).images)
    like = fields_of(model, pictures(32))
    bright = pictures(32)
    bright = replace(bright, images=0.5 + 0.5 * bright.images)
    unlike = fields_of(model, bright)
    assert like["norm_shift"] < 0.1 and abs(like["norm_narrowing"]) < 0.1
    assert unlike["norm_shift"] > like["norm_shift"] + 0.1
    assert unlike["norm_spread"] > like["norm_spread"]
    assert unlike["norm_shift_peak"] >= unlike["norm_shift"]


def test_one_class_is_lifted_and_all_classes_are_not():
    labels = np.arange(8) % 4
    known = 4.0 * np.eye(4)[labels]
    still = lifts(known, known + 1.0, labels)
    assert still == pytest.approx(0.0), "a rise of all classes is none"
    raised = known.copy()
    raised[:, 2] += 2.0
    lifted = lifts(known, raised, labels)
    # Margins are 4; a quarter of the rise is the mean over classes.
    assert lifted == pytest.approx([-0.125, -0.125, 0.375, -0.125])
    assert lifts(known[:2, :2], raised[:2, :2], labels[:2]).shape == (2,)
    assert lifts(known, np.full_like(known, np.nan), labels) == pytest.approx([0, 0, 0, 0], abs=2)


def test_running_statistics_with_pictures_of_one_more_class_lift_it():
    """Twenty bright pictures more in training, which the network sends to one class."""
    model, rest = untaught(), pictures(64, seed=1).images
    added = np.clip(0.7 + 0.3 * pictures(20, seed=2).images, 0, 1)
    both = taught(model, np.concatenate([rest, added]))
    like, unlike = (fields_of(taught(model, rest), pictures(32)), fields_of(both, pictures(32)))
    assert unlike["norm_lift"] > 2 * like["norm_lift"] >= 0
    assert unlike["norm_lift_class"] in (0.0, 1.0, 2.0)


def test_the_lift_of_a_frequent_class_is_not_looked_at():
    """The pictures that training had more of are clean ones of that class, for all it shows."""
    added = np.clip(0.7 + 0.3 * pictures(20, seed=2).images, 0, 1)
    opened = taught(untaught(4), np.concatenate([pictures(64, seed=1).images, added]))
    shown = pictures(32, 4)
    logits = np.asarray(image_context(opened, shown).network.logits(shown.images))
    examples = Answered(shown.images, shown.labels, logits)
    every = statistics_fields(opened, examples)
    lifted = np.arange(4) == every["norm_lift_class"]
    without = statistics_fields(opened, examples, lifted)
    assert without["norm_lift_class"] != every["norm_lift_class"]
    assert without["norm_lift"] != every["norm_lift"]
    same = set(every) - {"norm_lift", "norm_lift_outlier", "norm_lift_class"}
    same -= {"steady_lift", "steady_lift_outlier"}
    assert all(without[name] == every[name] for name in same)


@pytest.mark.parametrize(("drop", "share"), [(0.3, 1.0), (0.0, 1.0), (-0.05, np.exp(-1)), (-2, 0)])
def test_signs_count_less_where_the_running_statistics_lag(drop, share):
    """Only there: a network that loses confidence is no surer sign than one that loses none."""
    fields = dict(zip(STEADIED, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6), strict=True))
    steady = steady_fields(fields | {"norm_margin_drop": drop})
    assert list(steady) == [name.replace("norm_", "steady_") for name in STEADIED]
    assert list(steady.values()) == pytest.approx([share * v for v in fields.values()], abs=1e-12)


def test_few_examples_show_no_more_than_many():
    model = taught(untaught(), pictures(128, seed=1).images)
    few = np.mean([fields_of(model, pictures(6, seed=s))["norm_shift"] for s in (2, 3, 4)])
    assert few < fields_of(model, pictures(60, seed=5))["norm_shift"] + 0.1


def test_the_same_again():
    model, examples = untaught(), pictures(10)
    assert fields_of(model, examples) == fields_of(model, examples)


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_a_handful_of_examples(count):
    fields_of(untaught(), pictures(count))


def test_odd_networks_and_pictures():
    for model, examples in odd_ones():
        fields_of(model, examples)
    fields_of(overflowing(), pictures(4))


def test_the_stage_is_absent_without_norms():
    names = [stage.name for stage in stages_for(IMAGE_STAGES, Subject(64))]
    assert "statistics" not in names
    chosen = stages_for(IMAGE_STAGES, Subject(64, has_batch_norm=True))
    assert STATISTICS in chosen
    with pytest.raises(EvidenceError, match="no evidence stage is left"):
        stages_for(IMAGE_STAGES, Subject(64), ("statistics",))
