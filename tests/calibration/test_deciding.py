"""Where base rate or threshold decide, the reasons say so before what the evidence speaks for."""

import numpy as np
import pytest

from jaxtroj.calibration.transfer import Traits

from .conftest import population

RATES = (0.001, 0.2, 0.5, 0.8, 0.999)
THRESHOLDS = (0.05, 0.5, 0.95)


def answers(calibrator, rate, threshold):
    """Verdict, and P(poisoned) at even odds, of fresh models."""
    rows, _, names = population(40, 7)
    for row, name in zip(rows, names, strict=True):
        verdict = calibrator.verdict(row, Traits(name), rate, threshold)
        yield verdict, calibrator.probability(row, Traits(name))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("threshold", THRESHOLDS)
def test_no_verdict_contradicts_its_reasons(fitted, rate, threshold):
    """The first sentence names what decides, exactly where the evidence is on the other side."""
    for verdict, at_even_odds in answers(fitted, rate, threshold):
        differs = verdict.poisoned != (at_even_odds > 0.5)
        first = verdict.reasons[0]
        assert differs == (" decides: " in first)
        assert not any(" decides: " in reason for reason in verdict.reasons[1:])
        side = "poisoned" if at_even_odds > 0.5 else "clean"
        spoken = [reason for reason in verdict.reasons if "speaks for" in reason]
        assert spoken and all(f"speaks for {side}" in reason for reason in spoken)


def test_the_sentence_says_which_of_the_two_decides(fitted):
    by_rate = list(answers(fitted, 0.999, 0.5))
    clean = [(verdict, even) for verdict, even in by_rate if even < 0.5 and verdict.poisoned]
    assert len(clean) > 5
    for verdict, even in clean:
        assert verdict.reasons[0] == f"the base rate 0.999 decides: at even odds {even:.4g}"
    by_threshold = list(answers(fitted, 0.5, 0.95))
    held = [verdict for verdict, even in by_threshold if 0.5 < even <= 0.95]
    assert held
    for verdict in held:
        said = f"the threshold 0.95 decides: the probability is {verdict.probability:.4g}"
        assert verdict.reasons[0] == said and not verdict.poisoned


def test_at_even_odds_the_reasons_are_the_evidence_alone(fitted):
    rows, _, _ = population(40, 7)
    poisoned = [fitted.verdict(row).poisoned for row in rows]
    assert 5 < np.sum(poisoned) < 35
    assert all(fitted.verdict(row).reasons == fitted.explain(row) for row in rows)


def test_without_usable_evidence_the_base_rate_is_named_once(fitted):
    (reason,) = fitted.verdict({}, base_rate=0.99).reasons
    assert reason.startswith("no evidence the calibrator can use")
