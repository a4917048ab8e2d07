"""A regression on several populations is chosen by how it holds on one that it has not met."""

from dataclasses import replace

import numpy as np
import pytest

from jaxtroj.calibration import Calibrator, Labelled, Scheme, leave_out
from jaxtroj.calibration.linear import Task
from jaxtroj.calibration.stage import StageModel, fit_stage, indispensable
from jaxtroj.calibration.transfer import Traits
from jaxtroj.errors import CalibrationError

from .conftest import regressions

SCHEME = Scheme({"only": ("true", "local")})
NAMES = ("a", "b", "c", "d", "e")


def several(models=40, seed=0, populations=NAMES) -> Labelled:
    """`true` tells a little everywhere; `local` tells much, and which way depends on the place."""
    draw = np.random.default_rng(seed)
    rows, labels, places = [], [], []
    for number, name in enumerate(populations):
        for index in range(models):
            bad, way = index % 2 == 0, 1 if number else -1
            rows.append({"true": draw.normal() + bad, "local": draw.normal() + 3 * way * bad})
            labels.append(bad)
            places.append(name)
    return Labelled(rows, labels, ["gru"] * len(rows), datasets=places)


@pytest.fixture(scope="module")
def models():
    return several()


def test_where_populations_disagree_it_is_less_sure_than_a_fit_that_knows_none(models):
    """The first population is read the wrong way round by a fit on the others."""
    blind = replace(models, datasets=())
    known, unknown = (regressions(Calibrator.fit(one, SCHEME))["only"] for one in (models, blind))
    assert known.low > unknown.low and known.high < unknown.high
    assert known.penalty > unknown.penalty
    known, unknown = (leave_out(one, SCHEME, models.datasets) for one in (models, blind))
    assert known.groups["a"].log_score <= unknown.groups["a"].log_score + 0.01


def test_two_populations_are_too_few_to_choose_by():
    two = several(populations=("a", "b"))
    alone = replace(two, datasets=())
    fits = [Calibrator.fit(one, SCHEME).stages["only"] for one in (two, alone)]
    assert fits[0] == fits[1]


def test_a_population_that_holds_all_models_of_a_kind_is_refused(models):
    """Left out, it leaves nothing to fit on: the clip came out as [.4, .6], without a word."""
    places = [p if bad else "e" for p, bad in zip(models.datasets, models.poisoned, strict=True)]
    expected = "without the models of 'e' 80 poisoned and 0 clean models are left.*or no datasets"
    with pytest.raises(CalibrationError, match=expected):
        Calibrator.fit(replace(models, datasets=places), SCHEME)


def test_a_part_in_which_one_population_is_all_of_a_kind_is_chosen_by_mixed_folds():
    """As a fold of an outer split may be: what is left is judged as one population."""
    draw = np.random.default_rng(0)
    labels, keys = np.arange(60) % 2 == 0, tuple(map(str, range(60)))
    values = (draw.normal(size=(60, 1)) + 3 * labels[:, None]).astype(float)
    plain = Task(values, labels, (None,) * 60, ("true",), ("true",), (0,))
    places = tuple("abc"[number % 3] if bad else "c" for number, bad in enumerate(labels))
    assert indispensable(replace(plain, groups=places)) == "c"
    assert fit_stage(replace(plain, groups=places), keys, "s") == fit_stage(plain, keys, "s")


def test_its_evidence_counts_less_for_models_that_show_no_population(models):
    calibrator = Calibrator.fit(models, SCHEME)
    learnt = calibrator.transfer.dataset
    assert learnt is not None and learnt.groups == len(NAMES) and learnt.value >= 1
    fields = {"true": 2.0, "local": 4.0}
    plain = replace(calibrator, transfer=replace(calibrator.transfer, dataset=None))
    said = [one.probability(fields, Traits("gru")) for one in (calibrator, plain)]
    assert abs(said[0] - 0.5) <= abs(said[1] - 0.5)
    if learnt.value > 1.01:
        assert said[0] != said[1]


def test_no_temperature_is_learnt_where_every_population_leaves_too_few(models, tmp_path):
    """Of few rows the stage can be fitted on all, on no others; the temperature came out as NaN."""
    kept = [row if place % 40 < 3 else {} for place, row in enumerate(models.rows)]
    few = replace(several(populations=NAMES[:4]), rows=kept[:160])
    fitted = Calibrator.fit(few, SCHEME)
    judge = fitted.stages["only"]
    assert isinstance(judge, StageModel) and judge.models == 12
    assert fitted.transfer.dataset is None
    fitted.save(tmp_path / "calibrator.json")
