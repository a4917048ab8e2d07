"""Signs add what their counts allow at every base rate, and nothing where they are unseen."""

import json
from dataclasses import replace

import numpy as np
import pytest

from jaxtroj.calibration import Calibrator
from jaxtroj.calibration.signs import Sign, with_signs
from jaxtroj.calibration.transfer import Traits
from jaxtroj.errors import CalibrationError
from jaxtroj.numerics import logit, sigmoid

from .conftest import tails_of, with_straight_lines
from .test_pooled import SCHEME, zoo

SIGN = Sign(
    stage="all_to_all", name="all_to_all_rate", least=0.5, meaning="it moves {value} of them",
    share=0.1, clean=99, clean_seen=0, poisoned=19, poisoned_seen=15,
)  # fmt: skip
TRAITS = Traits("a", side=28)


@pytest.fixture(scope="module")
def plain() -> Calibrator:
    return Calibrator.fit(zoo(), SCHEME)


@pytest.fixture(scope="module")
def signed(plain) -> Calibrator:
    return replace(plain, signs=(SIGN,))


def test_what_a_sign_adds_follows_from_its_counts():
    assert SIGN.log_odds == pytest.approx(np.log(0.1 * (15.5 / 20) / (0.5 / 100)))
    assert replace(SIGN, clean_seen=3).log_odds < SIGN.log_odds < replace(SIGN, clean=500).log_odds
    assert with_signs(0.0, (SIGN,)) == pytest.approx(np.log1p(np.exp(SIGN.log_odds)))


@pytest.mark.parametrize("rate", [{}, {"all_to_all_rate": 0.49}, {"all_to_all_rate": None}])
def test_a_sign_that_is_not_seen_changes_nothing(plain, signed, rate):
    for row in zoo(40, 9).rows:
        fields = {**row, **rate}
        assert signed.probability(fields, TRAITS) == plain.probability(fields, TRAITS)
        assert signed.explain(fields, TRAITS) == plain.explain(fields, TRAITS)


@pytest.mark.parametrize("base_rate", [0.01, 0.5, 0.9])
def test_odds_of_the_fit_and_of_the_sign_add_up(plain, signed, base_rate):
    row = {**zoo(40, 9).rows[0], "all_to_all_rate": 0.8}
    before, after = (one.probability(row, TRAITS, base_rate) for one in (plain, signed))
    prior = base_rate / (1 - base_rate)
    odds = before / (1 - before) + prior * np.exp(SIGN.log_odds)
    assert after == pytest.approx(odds / (1 + odds)) and after > before
    assert after >= sigmoid(SIGN.log_odds + float(logit(base_rate)))


def test_the_reason_says_what_was_found_and_how_often_clean_networks_show_it(signed):
    row = {**zoo(40, 9).rows[0], "all_to_all_rate": 0.8}
    first = signed.explain(row, TRAITS)[len(signed.caveats(TRAITS))]
    assert first == "it moves 0.80 of them, as in 0 of 99 clean networks"


def test_signs_survive_their_file(signed, tmp_path):
    signed.save(tmp_path / "c.json")
    assert Calibrator.load(tmp_path / "c.json") == signed


def test_a_file_of_the_schema_before_has_none(signed, tmp_path):
    signed.save(tmp_path / "c.json")
    document = json.loads((tmp_path / "c.json").read_text())
    del document["signs"]
    (tmp_path / "c.json").write_text(json.dumps(with_straight_lines(document, 4)))
    again = Calibrator.load(tmp_path / "c.json")
    assert again.signs == () and tails_of(again) == tails_of(signed)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("share", 0, r"share is 0, expected a number in \(0, 1\)"),
        ("clean_seen", 100, "clean_seen is 100, expected a whole number from 0 to 99"),
        ("clean", 0, "clean is 0"),
        ("least", "high", "least is 'high', expected a number"),
        ("meaning", None, "meaning is None, expected a text"),
    ],
)
def test_a_file_with_an_impossible_sign_is_refused(signed, tmp_path, name, value, message):
    signed.save(tmp_path / "c.json")
    document = json.loads((tmp_path / "c.json").read_text())
    document["signs"][0][name] = value
    (tmp_path / "c.json").write_text(json.dumps(document))
    with pytest.raises(CalibrationError, match=message):
        Calibrator.load(tmp_path / "c.json")
