"""ROC curves, sweep, paired bootstrap and groups against hand-worked and independent numbers."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from jaxtroj.errors import DatasetError, UsageError
from jaxtroj.leaderboard.cases import (
    Case,
    Matched,
    groups,
    named_apart,
    score_cases,
    worst_first,
)
from jaxtroj.leaderboard.curves import roc_exact
from jaxtroj.leaderboard.paired import compare
from jaxtroj.leaderboard.sweep import counts, sweep
from jaxtroj.scoring import base_rate_log_score, nist_confusions, roc_nist

BOTH = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.5, 0.505, 0.9, 1.0]), st.booleans()), min_size=2
).filter(lambda rows: len({label for _, label in rows}) == 2)


def cases_of(said, truth, **fields) -> list[Case]:
    return [
        Case(f"id-{i:08d}", bool(t), float(p), **fields)
        for i, (p, t) in enumerate(zip(said, truth, strict=True))
    ]


def population(n: int, shift: float, seed: int = 0) -> list[Case]:
    random = np.random.default_rng(seed)
    truth = np.arange(n) % 2 == 0
    odds = random.normal(size=n) + shift * (truth - 0.5)
    return cases_of(1 / (1 + np.exp(-odds)), truth)


@settings(max_examples=50, deadline=None)
@given(BOTH)
def test_exact_curve_is_scikit_learns(rows):
    said, truth = (np.array(column) for column in zip(*rows, strict=True))
    roc = roc_exact(said, truth)
    alarms, hits, thresholds = metrics.roc_curve(truth, said, drop_intermediate=False)
    np.testing.assert_allclose(roc.false_positive_rates, alarms)
    np.testing.assert_allclose(roc.true_positive_rates, hits)
    np.testing.assert_allclose(roc.thresholds, thresholds)
    assert roc.area == pytest.approx(metrics.auc(alarms, hits))


@settings(max_examples=25, deadline=None)
@given(BOTH)
def test_counts_at_nists_thresholds_make_their_rates(rows):
    said, truth = (np.array(column) for column in zip(*rows, strict=True))
    roc, counted = roc_nist(said, truth), nist_confusions(said, truth)
    assert [c.true_positives / truth.sum() for c in counted] == roc.true_positive_rates.tolist()
    assert [c.false_positives / (~truth).sum() for c in counted] == (
        roc.false_positive_rates.tolist()
    )
    totals = {
        c.true_positives + c.false_positives + c.true_negatives + c.false_negatives for c in counted
    }
    assert totals == {len(truth)}


def test_success_is_half_of_guessing_the_base_rate():
    scores = score_cases(cases_of([0.9] * 1 + [0.05] * 9, [1] + [0] * 9))
    entropy = -(0.1 * math.log(0.1) + 0.9 * math.log(0.9))
    assert base_rate_log_score([1] + [0] * 9) == pytest.approx(entropy)
    assert scores.success_log_score == pytest.approx(entropy / 2)
    assert scores.success is True
    assert score_cases(cases_of([0.5, 0.5], [1, 0])).success is False
    assert score_cases(cases_of([0.5, 0.5], [0, 0])).success is None


def greedy(percentage: int, poisoned: int, clean: int) -> tuple[int, int]:
    """NIST's loop over lists, as its description reads, to check the counts against."""
    pool, subset = {True: [1] * poisoned, False: [0] * clean}, []
    while True:
        wanted = (sum(subset) / len(subset) if subset else 0) < percentage / 100
        if not pool[wanted]:
            return sum(subset), len(subset) - sum(subset)
        subset.append(pool[wanted].pop())


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 99), st.integers(0, 40), st.integers(0, 40))
def test_sweep_takes_the_greedy_counts(percentage, poisoned, clean):
    if poisoned:
        assert counts(percentage, poisoned, clean) == greedy(percentage, poisoned, clean)


def test_sweep_covers_1_to_99_percent_and_does_not_depend_on_order():
    cases = population(60, 2.0)
    points = sweep(cases, repeats=2)
    assert [(p.percentage, p.repeat) for p in points] == [
        (percentage, repeat) for percentage in range(1, 100) for repeat in range(2)
    ]
    half = next(p for p in points if p.percentage == 50)
    assert (half.models, half.poisoned) == (60, 30)
    assert half.log_score == pytest.approx(score_cases(cases).log_score)
    assert half.base_rate_log_score == pytest.approx(math.log(2))
    assert half.success_log_score == pytest.approx(math.log(2) / 2)
    tenth = [p for p in points if p.percentage == 10]
    assert tenth[0].log_score != tenth[1].log_score
    np.testing.assert_equal(
        [vars(p) for p in sweep(cases[::-1], repeats=2)], [vars(p) for p in points]
    )


def test_sweep_counts_a_missing_prediction_as_the_percentage():
    points = sweep(cases_of([math.nan] * 40, np.arange(40) % 2), repeats=1)
    assert all(p.log_score == p.base_rate_log_score for p in points)


def test_one_kind_of_model_has_no_sweep():
    assert sweep(cases_of([0.1] * 5, [0] * 5), repeats=1) == ()


def test_a_better_detector_is_told_from_a_worse_one():
    good, bad = population(200, 3.0), population(200, 1.0)
    found = compare(good, bad, resamples=500)
    assert found.log_score.high < 0 and found.log_score.a_better > 0.99
    assert found.roc_auc is not None and found.roc_auc.low > 0
    assert found.log_score.difference == pytest.approx(
        score_cases(good).log_score - score_cases(bad).log_score
    )
    assert found.roc_auc.a == pytest.approx(score_cases(good).roc_auc)
    back = compare(bad, good, resamples=500)
    assert back.log_score.low == pytest.approx(-found.log_score.high)


def test_a_comparison_does_not_depend_on_order_and_equals_are_equal():
    a, b = population(40, 2.0), population(40, 2.0, seed=1)
    assert compare(a, b, 200) == compare(a[::-1], b, 200)
    same = compare(a, a, 50)
    assert (same.log_score.low, same.log_score.high, same.log_score.a_better) == (0, 0, 0.5)


def test_bootstrap_interval_is_about_as_wide_as_theory_says():
    a, b = population(400, 2.0), population(400, 1.0, seed=1)
    found = compare(a, b, 2000).brier_score
    squares = np.array([[(c.probability - c.poisoned) ** 2 for c in side] for side in (a, b)])
    error = np.subtract(*squares).std() / math.sqrt(400)
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * error, rel=0.1)


def test_bootstrap_areas_are_exact_on_each_resample(monkeypatch):
    from jaxtroj.leaderboard import paired

    a, truth = population(30, 1.0), np.arange(30) % 2 == 0
    said = np.array([round(c.probability, 1) for c in a])
    area = paired._area(said, truth)
    for weights in paired._resamples(truth, 5, seed=3):
        for drawn, value in zip(weights, area(weights), strict=True):
            assert drawn[truth].sum() == drawn[~truth].sum() == 15
            expected = metrics.roc_auc_score(truth, said, sample_weight=drawn)
            assert value == pytest.approx(expected)


def test_one_kind_of_model_compares_without_areas():
    assert compare(cases_of([0.1], [0]), cases_of([0.2], [0]), 10).roc_auc is None


@pytest.mark.parametrize(
    ("truth", "too_few"),
    [([0], True), ([0, 0], False), ([0, 0, 0, 1], True), ([0, 0, 1, 1], False)],
)
def test_one_model_of_a_kind_is_too_few_to_tell(truth, too_few):
    a, b = (cases_of([said] * len(truth), truth) for said in (0.1, 0.2))
    assert compare(a, b, 10).too_few_models is too_few


def test_other_models_do_not_compare():
    with pytest.raises(ValueError, match="same labelled models"):
        compare(cases_of([0.1], [0]), cases_of([0.1], [1]))


def test_worst_models_come_first_and_add_up():
    cases = cases_of([0.9, 0.2, math.nan, 0.0], [1, 0, 0, 1])
    ranked = worst_first(cases)
    assert [case.model[-1] for case, _ in ranked] == ["3", "2", "1", "0"]
    assert ranked[0][1] == pytest.approx(27.631, abs=1e-3)
    assert np.mean([part for _, part in ranked]) == pytest.approx(score_cases(cases).log_score)


def test_groups_by_words_numbers_and_quarters():
    words = [Case(str(i), True, 0.5, {"kind": kind}) for i, kind in enumerate("baab")]
    assert {name: len(part) for name, part in groups(words, "kind").items()} == {"a": 2, "b": 2}
    few = [Case(str(i), True, 0.5, {"n": str(n)}) for i, n in enumerate([10, 9, 9])]
    assert list(groups(few, "n")) == ["9", "10"]
    many = [Case(str(i), True, 0.5, {"x": str(i)}) for i in range(100)]
    many += [Case("none", False, 0.5, {"x": "None"}), Case("empty", False, 0.5, {"x": ""})]
    sizes = {name: len(part) for name, part in groups(many, "x").items()}
    assert len(sizes) == 6 and sizes["None"] == sizes["empty"] == 1
    assert list(sizes.values())[:4] == [25, 25, 25, 25]
    near = [Case(str(i), True, 0.5, {"x": str(10**9 + i)}) for i in range(100)]
    sizes = {name: len(part) for name, part in groups(near, "x").items()}
    assert list(sizes.values()) == [25, 25, 25, 25]
    assert next(iter(sizes)) == "1e+09 to 1.00000002e+09"
    values = ["-1.7e308"] * 8 + ["1.7e308"] * 8 + [f"1.70{i:02}e308" for i in range(13)]
    huge = [Case(str(i), True, 0.5, {"x": value}) for i, value in enumerate(values)]
    assert list(groups(huge, "x"))[0].startswith("-1.7e+308 to 1.7")
    assert list(groups(huge, "x"))[-1].endswith("to 1.7012e+308")


def test_architecture_and_round_are_columns_of_every_case():
    case = Case("a", True, 0.5, {"model_architecture": "resnet50"}, round="r1")
    assert list(groups([case], "architecture")) == ["resnet50"]
    assert list(groups([case], "round")) == ["r1"]
    with pytest.raises(DatasetError, match="no column 'colour' for a; there is architecture"):
        groups([case], "colour")


def test_rounds_of_one_name_are_not_mixed_up():
    one = Matched((Case("a", True, 0.5, round="r"),), 0, 0)
    with pytest.raises(UsageError, match="different names"):
        named_apart([one, one])
    other = Matched((Case("a", True, 0.5, round="s"),), 0, 0)
    assert [m.cases[0].model for m in named_apart([one, other])] == ["r/a", "s/a"]
    same = [replace(one, path=Path(home) / "r") for home in ("first", "second")]
    mine, theirs = (found.cases[0] for found in named_apart(same))
    assert [mine.model, theirs.model] == ["first/r/a", "second/r/a"]
    assert [mine.round, theirs.round] == ["first/r", "second/r"]
