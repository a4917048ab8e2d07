"""What an answer says of itself, where batch norms may have been set anew."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.provenance import RESULTS
from jaxtroj.calibration import Calibrator
from jaxtroj.evidence.gather import Evidence
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.populations import BY_NAME
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.beyond_norms import beyond_norms
from jaxtroj.scan.judging import judge
from jaxtroj.settings import Settings

NORMS = ("statistics", "memory", "recall")
BY_NORMS = {field.name for field in IMAGES.fields if field.stage in NORMS}
TOLD = "without what its batch norms remember"


def attempts():
    """Networks with batch norms that no fit has met, as scans of them stood before the verdict."""
    for line in (RESULTS / "fresh.evidence.jsonl").read_text().splitlines():
        row = json.loads(line)
        if row["evidence"].get("recall_worth") is None:
            continue
        attempt = Attempt(ModelEntry("m", Path("m.onnx"), None, poisoned=None), Settings())
        attempt.picture_size = (row["side"], row["side"])
        attempt.architecture, attempt.classes = row["architecture"], row["classes"]
        attempt.has_batch_norm = True
        attempt.evidence = Evidence(row["evidence"])
        yield attempt


def verdict_of(attempt):
    return judge(attempt, attempt.calibrator, None, ())


def quiet(attempt):
    """The attempt as if its norms had been set anew: what they remember stands at nothing."""
    fields = attempt.evidence.fields
    found = {name: 0.0 if name in BY_NORMS else value for name, value in fields.items()}
    other = Attempt(attempt.entry, attempt.settings)
    for name in ("picture_size", "architecture", "classes", "has_batch_norm"):
        setattr(other, name, getattr(attempt, name))
    other.evidence = replace(attempt.evidence, fields=found)
    return other


def test_norms_that_were_set_anew_may_hide_a_trojan_and_the_answer_says_so():
    """Of the networks that were called poisoned some are called clean then, most with the words."""
    called = [attempt for attempt in attempts() if verdict_of(attempt).poisoned]
    hidden = [v for v in map(verdict_of, map(quiet, called)) if not v.poisoned]
    told = [v for v in hidden if any(TOLD in caveat for caveat in v.caveats)]
    assert len(hidden) > 10 and len(told) > 0.7 * len(hidden)
    assert all(caveat in v.reasons for v in told for caveat in v.caveats)


def test_the_number_is_that_of_the_calibrator_for_networks_without_norms():
    calibrator = Calibrator.load(BY_NAME["general"].without_norms_path)
    for attempt in map(quiet, list(attempts())[:40]):
        found = beyond_norms(attempt, verdict_of(attempt))
        fields = {f: v for f, v in attempt.evidence.fields.items() if f not in BY_NORMS}
        expected = calibrator.probability(fields, attempt.traits)
        assert not found or found.endswith(f"the probability is {expected:.2f}")


@pytest.mark.parametrize("known", [None, False])
def test_networks_without_norms_say_nothing_of_them(known):
    attempt = quiet(next(attempts()))
    attempt.has_batch_norm = known
    assert beyond_norms(attempt, replace(verdict_of(attempt), poisoned=False)) == ""


def test_poisoned_verdicts_that_rest_on_norms_say_so():
    """Whoever frames a clean network sets its norms; the others that are called so say nothing."""
    calibrator = Calibrator.load(BY_NAME["general"].without_norms_path)
    called = [attempt for attempt in attempts() if verdict_of(attempt).poisoned]
    told = {TOLD in beyond_norms(attempt, verdict_of(attempt)) for attempt in called}
    assert told == {True, False}
    for attempt in called:
        fields = {f: v for f, v in attempt.evidence.fields.items() if f not in BY_NORMS}
        rests_on_them = calibrator.probability(fields, attempt.traits) <= 0.5
        assert bool(beyond_norms(attempt, verdict_of(attempt))) == rests_on_them


def test_own_calibrators_say_nothing_of_them(tmp_path):
    attempt = quiet(next(attempts()))
    own = tmp_path / "own.json"
    Calibrator.load(BY_NAME["general"].path).for_large_pictures(None).save(own)
    attempt.settings = Settings(calibrator=own, round_calibrators=(), special_calibrators=())
    assert beyond_norms(attempt, verdict_of(attempt)) == ""
