"""Scores against hand-worked numbers, scikit-learn and NIST's definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from jaxtroj import numerics, populations, scoring
from jaxtroj.calibration import Calibrator

CASES = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=2, max_size=30).filter(
    lambda rows: len({label for _, label in rows}) == 2
)


@settings(max_examples=50, deadline=None)
@given(CASES)
def test_area_and_scores_agree_with_scikit_learn(rows):
    probabilities, labels = (np.array(column) for column in zip(*rows, strict=True))
    assert scoring.roc_auc(probabilities, labels) == pytest.approx(
        metrics.roc_auc_score(labels, probabilities)
    )
    assert scoring.brier_score(probabilities, labels) == pytest.approx(
        np.mean((probabilities - labels) ** 2)
    )
    clipped = np.clip(probabilities, 1e-12, 1 - 1e-12)
    expected = -np.mean(np.where(labels, np.log(clipped), np.log(1 - clipped)))
    assert scoring.log_score(probabilities, labels) == pytest.approx(expected, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(CASES)
def test_nist_area_is_scikit_learns_over_their_thresholds(rows):
    probabilities, labels = (np.array(column) for column in zip(*rows, strict=True))
    roc = scoring.roc_nist(probabilities, labels)
    assert len(roc.thresholds) == 101
    assert roc.area == pytest.approx(metrics.auc(roc.false_positive_rates, roc.true_positive_rates))


def test_nist_roc_misses_the_origin_when_a_probability_is_one():
    assert scoring.roc_nist([1.0, 1.0, 0.0], [True, False, False]).area < scoring.roc_auc(
        [1.0, 1.0, 0.0], [True, False, False]
    )


def test_interval_uses_the_population_standard_deviation():
    parts = np.array([-math.log(0.9), -math.log(0.6), -math.log(0.8)])
    low, high = scoring.log_score_interval([0.9, 0.6, 0.2], [1, 1, 0])
    half = 1.96 * parts.std(ddof=0) / math.sqrt(3)
    assert (low, high) == pytest.approx((parts.mean() - half, parts.mean() + half))


def test_missing_prediction_counts_as_half_and_is_counted():
    scores = scoring.score([float("nan"), 0.9], [False, True])
    assert scores.missing == 1
    assert scores.log_score == pytest.approx((math.log(2) - math.log(0.9)) / 2)


@pytest.mark.parametrize("threshold", [0.3, 0.5, 0.7])
@pytest.mark.parametrize(("apart", "poisoned"), [(-0.01, False), (0.0, False), (0.01, True)])
def test_a_scan_and_its_evaluation_call_a_model_the_same(threshold, apart, poisoned):
    calibrator = Calibrator.load(populations.default_calibrator())
    said = threshold + apart  # without evidence the probability is the base rate
    verdict = calibrator.verdict({}, base_rate=said, threshold=threshold)
    assert verdict.probability == pytest.approx(said, abs=1e-15)
    assert verdict.poisoned == numerics.is_above(verdict.probability, threshold)
    counts = scoring.confusion([verdict.probability], [True], threshold)
    assert bool(counts.true_positives) == verdict.poisoned
    assert scoring.confusion([said], [True], threshold).true_positives == poisoned


def test_nists_table_counts_what_is_at_a_threshold():
    assert scoring.nist_confusions([0.5], [True])[50].true_positives == 1
    assert scoring.confusion([0.5], [True]).true_positives == 0


def test_one_kind_of_model_has_no_area_but_all_other_scores():
    scores = scoring.score([0.2, 0.4], [False, False])
    assert scores.roc_auc is None and scores.nist_auc is None
    assert scores.accuracy == 1.0
    assert scores.as_dict()["confusion"]["true_negatives"] == 2


@pytest.mark.parametrize(
    ("probabilities", "labels", "message"),
    [
        ([], [], "at least one"),
        ([0.5], [True, False], "as many"),
        ([1.5], [True], r"\[0, 1\]"),
        ([-0.1], [True], r"\[0, 1\]"),
        ([float("inf")], [True], r"\[0, 1\]"),
        ([0.5], [2], "booleans"),
        ([0.5], [float("nan")], "booleans"),
    ],
)
def test_bad_input_is_refused_in_words(probabilities, labels, message):
    with pytest.raises(ValueError, match=message):
        scoring.score(probabilities, labels)


def test_reliability_covers_every_model_once_including_the_ends():
    rows = scoring.reliability([0.0, 0.05, 0.5, 0.999, 1.0], [0, 0, 1, 1, 1])
    assert sum(row.count for row in rows) == 5
    assert (rows[0].low, rows[-1].high) == (0.0, 1.0)
    with pytest.raises(ValueError, match="at least one bin"):
        scoring.reliability([0.5], [1], bins=0)


def test_input_array_is_not_changed():
    probabilities = np.array([float("nan"), 0.2])
    scoring.score(probabilities, [True, False])
    assert np.isnan(probabilities[0])


@given(st.floats(-700, 700))
@settings(max_examples=50, deadline=None)
def test_sigmoid_and_logit_are_inverse_within_the_clip(value):
    back = float(numerics.logit(numerics.sigmoid(value), 1e-12))
    assert back == pytest.approx(np.clip(value, -27.631021, 27.631021), abs=1e-3)


def test_safe_mad_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        numerics.safe_mad([])
