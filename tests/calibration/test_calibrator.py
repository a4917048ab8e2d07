"""Calibration on synthetic populations whose truth is known."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxtroj import scoring
from jaxtroj.calibration import (
    Calibrator,
    Labelled,
    Origin,
    Scheme,
    cross_validate,
    out_of_fold,
)
from jaxtroj.calibration.linear import Few, FittedField, Linear, Task, fit_mean, fit_path
from jaxtroj.calibration.solver import minimise
from jaxtroj.calibration.stage import choose_clip
from jaxtroj.calibration.stopping import MARGIN, WITNESSES, StopRule
from jaxtroj.calibration.transfer import NOTHING_KNOWN, Traits
from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import logit, sigmoid
from jaxtroj.scan.judging import stop_rule as stop_rule_of_scans
from jaxtroj.settings import Settings

from .conftest import DIRECTIONS, SCHEME, STAGES, fit, population, regressions


def answers(calibrator, data):
    rows, _, names = data
    pairs = zip(rows, map(Traits, names), strict=True)
    return [calibrator.probability(*pair) for pair in pairs]


def test_probabilities_of_fresh_models_rank_and_are_calibrated(fitted, fresh):
    scores = scoring.score(answers(fitted, fresh), fresh[1])
    assert scores.roc_auc > 0.88
    assert scores.log_score < 0.46
    for row in scoring.reliability(answers(fitted, fresh), fresh[1], bins=4):
        assert abs(row.mean_probability - row.poisoned_fraction) < 0.15


def test_out_of_fold_score_is_honest(fitted, fresh):
    report = fitted.reports["inversion"].score
    truth = scoring.log_score(answers(fitted, fresh), fresh[1])
    assert report.log_score_low < truth < report.log_score_high
    assert report.models == 60 and sum(s.models for s in _by(fitted).values()) == 60


def _by(calibrator):
    return calibrator.reports["inversion"].by_architecture


def test_noise_alone_gives_probabilities_near_the_base_rate():
    rows, labels, names = population(40, 5, strength=0.0)
    held_out = cross_validate(Labelled(rows, labels, names), SCHEME)
    assert scoring.log_score(held_out, labels) < math.log(2) + 0.12


def test_twenty_models_are_enough(fresh):
    calibrator = fit(population(20, 1, strength=2.5))
    data = population(300, 98, strength=2.5)
    assert scoring.log_score(answers(calibrator, data), data[1]) < 0.4
    assert all(0 < probability < 1 for probability in answers(calibrator, fresh))


def test_order_of_rows_changes_nothing(fitted):
    data = population(60, 0)
    order = np.random.default_rng(1).permutation(60)
    rows, labels, names = ([column[i] for i in order] for column in data)
    again = fit((rows, labels, names), origin=Origin(3, "synthetic"))
    assert again.stages == fitted.stages
    first = out_of_fold(Labelled(*data), SCHEME, 3)["probes"].log_odds
    second = out_of_fold(Labelled(rows, labels, names), SCHEME, 3)["probes"].log_odds
    np.testing.assert_array_equal(first[order], second)


def test_seed_chooses_the_folds():
    data = population(40, 2)
    first, second = (cross_validate(Labelled(*data), SCHEME, seed) for seed in (0, 1))
    assert not np.array_equal(first, second)
    assert np.abs(first - second).mean() < 0.15


def test_held_out_labels_do_not_reach_their_own_answer():
    """Turning one label must move the answers of others only: its own fold never saw it."""
    rows, labels, names = population(30, 4, strength=3.0)
    before = cross_validate(Labelled(rows, labels, names), SCHEME)
    labels[0] = not labels[0]
    after = cross_validate(Labelled(rows, labels, names), SCHEME)
    assert (before[0] > 0.5) == (after[0] > 0.5)


def test_sign_constraints_hold_against_the_data():
    rows, labels, names = population(40, 6)
    against = {"flip": -1, "mask": 1}
    calibrator = fit((rows, labels, names), Scheme(STAGES, against))
    for model in regressions(calibrator).values():
        for field in model.linear.fields:
            assert field.weight * field.direction >= 0
            if field.name in against:
                assert field.weight == 0


@pytest.mark.parametrize("trial", range(12))
def test_regression_agrees_with_scipy(trial):
    from scipy.optimize import minimize

    random = np.random.default_rng(trial)
    models, width = int(random.integers(10, 60)), int(random.integers(2, 20))
    design = random.normal(size=(models, width)) @ random.normal(size=(width, width))
    design = np.c_[np.ones(models), design]
    label = np.arange(models) % 2 == 0
    ridge = np.r_[0.0, np.full(width, 10.0 ** random.integers(-1, 3))]
    signs = np.r_[0, random.integers(-1, 2, width)]

    def loss(solution):
        eta = design @ solution
        return np.logaddexp(0, eta).sum() - eta[label].sum() + 0.5 * (ridge * solution**2).sum()

    def gradient(solution):
        return design.T @ (sigmoid(design @ solution) - label) + ridge * solution

    ours = minimise(design, label, ridge, signs, np.zeros(width + 1))
    bounds = [{0: (None, None), 1: (0, None), -1: (None, 0)}[sign] for sign in signs.tolist()]
    options = {"ftol": 1e-15, "gtol": 1e-9, "maxiter": 5000}
    theirs = minimize(
        loss, 0 * ours, jac=gradient, method="L-BFGS-B", bounds=bounds, options=options
    )
    assert loss(ours) <= theirs.fun * (1 + 1e-8)
    assert np.all(ours * signs >= 0)


def test_base_rate_shift_is_bayes_rule_even_at_the_clip(fitted):
    rows, _, names = population(60, 7)
    for row, name in zip(rows, names, strict=True):
        at_half = fitted.probability(row, Traits(name), 0.5)
        at_tenth = fitted.probability(row, Traits(name), 0.1)
        assert logit(at_tenth) - logit(at_half) == pytest.approx(float(logit(0.1)), abs=1e-6)
    for rate in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(CalibrationError, match="base rate"):
            fitted.probability(rows[0], Traits(names[0]), rate)


def test_evidence_of_little_weight_counts_less_and_says_so(fitted):
    for row, name in zip(*population(20, 9)[::2], strict=True):
        whole, half = (fitted.probability(row, Traits(name, weight=w)) for w in (1.0, 0.5))
        assert logit(half) == pytest.approx(float(logit(whole)) / 2, abs=1e-6)
        said = fitted.caveats(Traits(name, weight=0.5))
        assert said[0] == "examples show too little of its classes: their evidence counts 50%"
        assert said[1:] == fitted.caveats(Traits(name))


def test_uneven_training_population_is_shifted_to_even_odds():
    rows, labels, names = population(200, 8)
    kept = [i for i in range(200) if not labels[i] or i % 10 == 0]  # one poisoned in six
    rows, labels, names = ([column[i] for i in kept] for column in (rows, labels, names))
    calibrator = fit((rows, labels, names))
    assert calibrator.base_rate == pytest.approx(1 / 6, abs=0.01)
    fresh = population(400, 97)
    assert np.mean(answers(calibrator, fresh)) == pytest.approx(0.5, abs=0.1)


def test_unknown_architecture_gets_the_mean_intercept(fitted):
    row = population(1, 11)[0][0]
    linear = fitted.stages["inversion"].linear
    assert sum(linear.offsets.values()) == pytest.approx(0, abs=1e-5)
    assert fitted.probability(row, Traits("vgg16")) == fitted.probability(row)
    assert any("vgg16" in reason for reason in fitted.explain(row, Traits("vgg16")))


def test_population_without_architecture_names():
    rows, labels, _ = population(20, 21, strength=3.0)
    calibrator = fit((rows, labels, [None] * 20))
    assert scoring.roc_auc(answers(calibrator, (rows, labels, [None] * 20)), labels) > 0.9
    assert calibrator.reports["probes"].by_architecture == {}


def test_architecture_intercepts_absorb_evidence_levels(fitted):
    offsets = fitted.stages["probes"].linear.offsets
    assert offsets["densenet121"] > offsets["resnet50"]  # flip is lower there for both kinds


def test_missing_field_falls_back_to_the_last_complete_stage(fitted):
    row = dict(population(1, 12)[0][0])
    expected = fitted.stage_probability("probes", row, Traits("resnet50"))
    for absent in (None, math.nan, math.inf, 1e300):
        assert fitted.probability(row | {"mask": absent}, Traits("resnet50")) == expected
    del row["gap"]
    assert fitted.probability(row, Traits("resnet50")) == expected
    assert fitted.missing(row) == ("gap",)
    assert "later fields are missing" in fitted.explain(row, Traits("resnet50"))[-1]
    with pytest.raises(CalibrationError, match="lacks fields"):
        fitted.stage_probability("inversion", row)
    assert fitted.probability({}, Traits("resnet50"), 0.3) == 0.3
    assert "no evidence" in fitted.explain({})[0]


def test_rows_that_stopped_early_are_left_out_of_later_stages_only():
    rows, labels, names = population(40, 13)
    for row in rows[:12]:
        row["gap"] = math.nan
    calibrator = fit((rows, labels, names))
    assert [model.models for model in regressions(calibrator).values()] == [40, 40, 28]
    for row in rows:
        row["gap"] = None
    calibrator = fit((rows, labels, names))
    assert list(calibrator.stages) == ["weights", "probes"]
    assert calibrator.unfitted == ("inversion",)
    assert np.isfinite(cross_validate(Labelled(rows, labels, names), SCHEME)).all()


def field(direction, weight=2.0):
    return FittedField("flip", "flip rate", direction, 0.0, 1.0, 1.0, -1.0, 1.0, weight, -0.5, 0.5)


@pytest.mark.parametrize(
    ("direction", "down", "up"), [(0, True, True), (1, True, False), (-1, False, True)]
)
def test_trust_falls_outside_the_training_range_but_not_towards_poisoned(direction, down, up):
    linear = Linear((field(direction, 2.0 * (direction or 1)),), 0.0, {}, 0.5)
    far = np.sinh([[0.9], [1.9], [3.0], [5.0], [9.0], [27.0]])
    for values, falls in ((-far, down), (far, up)):
        trust = linear.trust(values)
        assert trust[0] == trust[1] == 1.0
        assert (trust[-1] < 1e-4) == falls
        assert np.all(np.diff(trust) <= 0)


def test_far_evidence_is_shrunk_to_the_base_rate_and_said_so(fitted):
    row = population(1, 14)[0][0]
    strange = row | {"mask": 1e30}
    assert fitted.probability(strange, Traits("resnet50")) == pytest.approx(0.5, abs=0.02)
    assert fitted.probability(strange, Traits("resnet50"), 0.2) == pytest.approx(0.2, abs=0.02)
    assert any(
        "outside the calibration models' range" in r
        for r in fitted.explain(strange, Traits("resnet50"))
    )


def test_extreme_evidence_of_poison_is_believed(fitted):
    row = population(1, 14)[0][0] | {"flip": 1e30}
    assert fitted.probability(row, Traits("resnet50")) == pytest.approx(
        fitted.stages["inversion"].high
    )


def test_field_that_never_varies_has_no_say():
    rows, labels, names = population(30, 15)
    for row in rows:
        row["noise"] = 4.0
    calibrator = fit((rows, labels, names))
    assert regressions(calibrator)["weights"].linear.fields[0].weight == 0
    same = calibrator.probability(rows[0], Traits(names[0]))
    assert calibrator.probability(rows[0] | {"noise": 99.0}, Traits(names[0])) == same


def test_clip_bounds_every_answer_and_more_models_allow_a_wider_one(fitted, fresh):
    model = fitted.stages["inversion"]
    found = answers(fitted, fresh)
    assert min(found) >= model.low - 1e-12 and max(found) <= model.high + 1e-12
    few = choose_clip(np.array([[-9.0] * 10 + [9.0] * 10]), np.arange(20) >= 10)
    many = choose_clip(np.array([[-9.0] * 100 + [9.0] * 100]), np.arange(200) >= 100)
    assert few[0] > many[0] and few[1] < many[1]
    assert choose_clip(np.array([[9.0] * 20]), np.arange(20) >= 10) == (0.4, 0.6)


def test_stop_rule():
    rule = StopRule(worst_drop=1.0, worst_rise=2.0, witnesses_high=WITNESSES, witnesses_low=50)
    assert rule.allows(1.0 + MARGIN + 0.1, 1)
    assert not rule.allows(1.0 + MARGIN - 0.1, 1)
    assert not rule.allows(9.0, 0)
    assert rule.allows(-2.6, -1) and not rule.allows(-2.4, -1)
    assert not replace(rule, witnesses_high=WITNESSES - 1).allows(9.0, 1)


def test_stops_early_only_where_the_labelled_models_allow_it():
    def strong(models, seed):
        rows, labels, names = population(models, seed)
        for row, poisoned in zip(rows, labels, strict=True):
            row["flip"] = row["flip"] * 0.3 + 6.0 * poisoned
        return rows, labels, names

    calibrator = fit(strong(60, 16))
    rows, labels, names = strong(100, 17)
    stopped = [
        calibrator.can_stop(r, "probes", Traits(n)) for r, n in zip(rows, names, strict=True)
    ]
    assert sum(stopped) > 50
    for row, name, stop, poisoned in zip(rows, names, stopped, labels, strict=True):
        if stop:
            assert (calibrator.probability(row, Traits(name)) > 0.5) == poisoned
    assert not any(calibrator.can_stop(row, "weights") for row in rows)
    assert calibrator.can_stop(rows[0], "inversion")
    assert not calibrator.can_stop({}, "probes")
    assert not calibrator.can_stop(rows[0], "unheard")
    poisoned_row = rows[labels.index(True)]
    assert not calibrator.can_stop(poisoned_row, "probes", base_rate=0.001)


def test_a_clean_model_is_done_past_the_last_fitted_stage(fitted):
    rows, _, _ = population(60, 17)
    attempt: Any = SimpleNamespace(settings=Settings(), base_rate=0.5, traits=NOTHING_KNOWN)
    stop = stop_rule_of_scans(attempt, fitted)
    called = [fitted.probability(row) > 0.5 for row in rows]
    assert any(called) and not all(called)
    for row, is_called in zip(rows, called, strict=True):
        assert stop("unheard", row, True) is not is_called
    assert not stop("unheard", {}, False), "a fitted stage may follow"


def test_a_stage_is_sure_by_the_probability_that_it_gives(fitted):
    rows, _, _ = population(60, 17)
    near = [fitted.stage_probability("probes", row) for row in rows]
    assert min(near) < 0.2 and max(near) > 0.8 and any(0.4 < p < 0.6 for p in near)
    for enough in (0.05, 0.2, 0.4):
        sure = [fitted.is_sure(row, "probes", enough) for row in rows]
        assert sure == [p <= enough or p >= 1 - enough for p in near]
    # Where nearly all models are clean, an answer that leaves it open is near enough to that.
    place = int(np.argmin(np.abs(np.array(near) - 0.5)))
    assert not fitted.is_sure(rows[place], "probes", 0.01)
    assert fitted.is_sure(rows[place], "probes", 0.01, base_rate=0.001)
    assert not fitted.is_sure({}, "probes", 0.4)
    assert not fitted.is_sure(rows[0], "unheard", 0.4)


def test_reasons_name_value_and_what_is_typical(fitted):
    labels = {"flip": "flip rate"}
    calibrator = fit(population(40, 18), Scheme(STAGES, DIRECTIONS, labels))
    row = {"noise": 0.0, "flip": 4.0, "speck": 0.0, "mask": 0.05, "gap": 0.0}
    verdict = calibrator.verdict(row, Traits("resnet50"), target_class=3, source_classes=(0, 1))
    assert verdict.poisoned and verdict.target_class == 3 and verdict.source_classes == (0, 1)
    assert any(r.startswith("flip rate speaks for poisoned: 4 (median") for r in verdict.reasons)
    clean = row | {"flip": -3.0, "mask": 4.0}
    verdict = calibrator.verdict(clean, Traits("resnet50"), target_class=3)
    assert not verdict.poisoned and verdict.target_class is None
    assert verdict.probability < 0.5
    assert any(r.startswith("flip rate speaks for clean: -3 (median") for r in verdict.reasons)


def test_an_unknown_architecture_is_the_first_reason(fitted):
    row = population(1, 12)[0][0]
    first = fitted.explain(row, Traits("vgg16"))[0]
    assert first.startswith("the calibrator has met no vgg16, only densenet121")
    assert "take the probability as a guess" in first
    assert not any("has met no" in reason for reason in fitted.explain(row, Traits("resnet50")))


def test_one_kind_or_too_few_models_are_refused():
    rows, labels, names = population(40, 19)
    with pytest.raises(CalibrationError, match="0 poisoned and 40 clean"):
        fit((rows, [False] * 40, names), Scheme(STAGES))
    with pytest.raises(CalibrationError, match="at least 10 models"):
        fit((rows[:8], labels[:8], names[:8]), Scheme(STAGES))
    with pytest.raises(CalibrationError, match="at least 10 models"):
        cross_validate(Labelled(rows[:8], labels[:8], names[:8]), Scheme(STAGES))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"poisoned": [True]}, "as many of each"),
        ({"poisoned": [2] * 12}, "booleans"),
        ({"kinds": ["patch"]}, "1 kinds"),
        ({"pairs": ["a"] * 13}, "13 pairs"),
    ],
)
def test_misshapen_labelled_models(change, message):
    rows, labels, names = population(12, 20)
    given = {"rows": rows, "poisoned": labels, "architectures": names}
    with pytest.raises(CalibrationError, match=message):
        Labelled(**given | change)


@pytest.mark.parametrize(
    ("stages", "directions", "message"),
    [
        ({}, {}, "at least one field"),
        ({"weights": ()}, {}, "at least one field"),
        ({"weights": ("flip",), "probes": ("flip",)}, {}, "belongs to one stage"),
        (STAGES, {"flip": 2}, "directions"),
    ],
)
def test_misshapen_schemes(stages, directions, message):
    with pytest.raises(CalibrationError, match=message):
        Scheme(stages, directions)


def test_penalised_fit_shrinks_to_the_intercept():
    random = np.random.default_rng(0)
    task = Task(
        random.normal(size=(30, 2)),
        np.arange(30) % 3 == 0,
        (None,) * 30,
        ("a", "b"),
        ("a", "b"),
        (0, 0),
    )
    (linear,) = fit_path(task, [1e6])
    assert sigmoid(linear.raw_log_odds(task.values, task.architectures)) == pytest.approx(
        np.full(30, 1 / 3), abs=1e-3
    )


def test_few_models_are_fitted_by_what_is_known_beforehand():
    few = Few(30, ("flip", "mask"), penalty=2.0, clip=0.04)
    data = population(24, 21)
    calibrator = fit(data, replace(SCHEME, few=few))
    last = list(regressions(calibrator).values())[-1]
    assert set(last.names) == {"flip", "mask"}
    assert (last.penalty, last.low, last.high) == (2.0, 0.04, 0.96)
    rows, labels, names = (part[::-1] for part in data)
    again = fit((rows, labels, names), replace(SCHEME, few=few))
    assert again.stages == calibrator.stages
    answered = cross_validate(Labelled(*data), replace(SCHEME, few=few))
    assert np.isfinite(answered).all() and 0.04 <= answered.min() < answered.max() <= 0.96
    many = fit(population(32, 21), replace(SCHEME, few=few))
    assert many == fit(population(32, 21))


def test_stages_without_a_chosen_field_are_left_out_of_few_models(tmp_path):
    """Their fields were not those that later stages go by: the file could not be read back."""
    last = list(SCHEME.stages)[-1]
    few = Few(30, tuple(SCHEME.stages[last][:1]), penalty=2.0, clip=0.04)
    calibrator = fit(population(24, 21), replace(SCHEME, few=few))
    assert list(calibrator.stages) == [last] and last not in calibrator.unfitted
    calibrator.save(tmp_path / "few.json")
    assert Calibrator.load(tmp_path / "few.json").stages == calibrator.stages
    none = fit(population(24, 21), replace(SCHEME, few=replace(few, fields=("other",))))
    assert list(none.stages) == list(SCHEME.stages)


def test_few_models_are_fitted_better_with_it(fresh):
    """Over populations of 20 with three fields of noise, known fields and a fixed penalty win."""
    few = Few(30, ("flip", "mask"), penalty=2.0, clip=0.04)
    labels = fresh[1]
    gains = []
    for seed in range(30, 36):
        scores = []
        for chosen in (few, None):
            calibrator = fit(population(20, seed), replace(SCHEME, few=chosen))
            scores.append(scoring.log_score(answers(calibrator, fresh), labels))
        gains.append(scores[1] - scores[0])
    assert np.mean(gains) > 0.01


def test_the_mean_of_fits_is_the_mean_of_their_log_odds():
    random = np.random.default_rng(1)
    values = random.normal(size=(40, 2))
    labels = values[:, 0] + random.normal(size=40) > 0
    task = Task(values, labels, ("a", None) * 20, ("u", "v"), ("u", "v"), (0, 1))
    halves = [np.arange(0, 40, 2), np.arange(1, 40, 2)]
    parts = [fit_mean(task, 1.0, [half]) for half in halves]
    whole = fit_mean(task, 1.0, halves)
    said = [part.raw_log_odds(values, task.architectures) for part in parts]
    np.testing.assert_allclose(
        whole.raw_log_odds(values, task.architectures), np.mean(said, axis=0), atol=1e-9
    )
    everything = fit_mean(task, 1.0, [np.arange(40)])
    assert everything == fit_path(task, [1.0])[0]
