"""Where evidence ends best: every cut is judged on the same models."""

import numpy as np
import pytest

from jaxtroj import scoring
from jaxtroj.calibration import Calibrator, Labelled, Scheme, cross_validate, scores_of_cuts
from jaxtroj.errors import CalibrationError

STAGES = {"first": ("a",), "second": ("b",), "third": ("c",)}


def models(help_of_second, help_of_third=0.0):
    """120 that the first stage settles, which have no other, and 40 that it tells nothing of."""
    random, rows = np.random.default_rng(0), []
    for i in range(160):
        poisoned, easy = i % 2 == 0, i < 120
        row = {"a": float(random.normal() + 4 * poisoned * easy)}
        if not easy:
            row["b"] = float(random.normal() + help_of_second * poisoned)
            row["c"] = float(random.normal() + help_of_third * poisoned)
        rows.append(row)
    return Labelled(rows, [i % 2 == 0 for i in range(160)], [None] * 160)


def scheme(stages=tuple(STAGES)):
    return Scheme({name: STAGES[name] for name in stages}, {"a": 1, "b": 1, "c": 1})


def best(scores):
    return min(scores, key=scores.__getitem__)


def test_a_stage_that_only_hard_models_have_is_kept_where_it_helps_them():
    labelled = models(help_of_second=0.6)
    reports = Calibrator.fit(labelled, scheme()).reports
    by_own_rows = {stage: report.score.log_score for stage, report in reports.items()}
    assert best(by_own_rows) == "first"  # its 160 models are easier than the 40 of the others
    assert best(scores_of_cuts(labelled, scheme())) in ("second", "third")
    assert best(scores_of_cuts(models(0.0, help_of_third=3.0), scheme())) == "third"


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_cut_scores_as_the_stages_up_to_it_by_themselves(cut):
    labelled, kept = models(1.0), tuple(STAGES)[:cut]
    said = cross_validate(labelled, scheme(kept))
    found = scores_of_cuts(labelled, scheme())[kept[-1]]
    assert found == pytest.approx(scoring.log_score(said, labelled.truth), abs=1e-12)


def test_models_that_no_stage_answers_for_count_with_the_base_rate():
    labelled = models(0.0)
    bare = Labelled(
        [*labelled.rows, *[{}] * 80], [*labelled.poisoned, *[True, False] * 40], [None] * 240
    )
    with_bare = scores_of_cuts(bare, scheme(("first",)))["first"]
    assert with_bare > scores_of_cuts(labelled, scheme(("first",)))["first"] + 0.05


def test_too_few_models_are_refused():
    few = models(1.0).take(range(6))
    with pytest.raises(CalibrationError, match="too little to calibrate on"):
        scores_of_cuts(few, scheme())
