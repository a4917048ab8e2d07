"""Networks of few classes are scored against clean ones of few classes, the others as before."""

import json

import numpy as np
import pytest

from jaxtroj import scoring
from jaxtroj.calibration import Calibrator, Labelled
from jaxtroj.calibration.pooled_files import pooled_of
from jaxtroj.calibration.transfer import Traits
from jaxtroj.errors import CalibrationError

from .conftest import fit, population, tails_of, with_straight_lines
from .test_pooled import DIRECTIONS, NAMES, SCHEME, zoo


def few(models=40, seed=5, classes=2) -> Labelled:
    """As the zoo's, but every field of every network lies three deviations further out."""
    whole = zoo(models, seed)
    rows = [
        {n: v + 3 * DIRECTIONS[n] for n, v in row.items() if v is not None} for row in whole.rows
    ]
    return Labelled(
        rows, whole.poisoned, whole.architectures, whole.kinds, sides=whole.sides,
        classes=[classes] * models, pairs=whole.pairs,
    )  # fmt: skip


@pytest.fixture(scope="module")
def general() -> Calibrator:
    return Calibrator.fit(zoo(), SCHEME)


@pytest.fixture(scope="module")
def knowing(general) -> Calibrator:
    return general.for_few_classes(few())


def said(calibrator: Calibrator, labelled: Labelled, classes: int | None) -> np.ndarray:
    traits = Traits("a", side=28, classes=classes)
    return np.array([calibrator.probability(row, traits) for row in labelled.rows])


def test_clean_networks_of_few_classes_are_no_longer_accused(general, knowing):
    fresh = few(100, 6)
    before, after = (said(one, fresh, 2) for one in (general, knowing))
    assert (before[~fresh.truth] > 0.5).mean() > 0.8, "what the fit is for"
    assert (after[~fresh.truth] > 0.5).mean() < 0.2
    assert scoring.log_score(after, fresh.truth) < 0.45 < scoring.log_score(before, fresh.truth)


@pytest.mark.parametrize("classes", [6, 10, 1000, None])
def test_all_others_are_judged_as_before(general, knowing, classes):
    fresh = zoo(40, 9)
    np.testing.assert_array_equal(said(general, fresh, classes), said(knowing, fresh, classes))
    assert knowing.caveats(Traits("a", classes=classes)) == general.caveats(
        Traits("a", classes=classes)
    )


def test_what_is_known_of_them_is_said(general, knowing):
    (caveat,) = knowing.caveats(Traits("a", side=28, classes=2))
    score = pooled_of(knowing.stages).few.log_score
    assert caveat == (
        "networks of 2 to 5 classes are judged beside 20 clean ones; 40 such networks had a log"
        f" score of {score:.2f} (0.5 scores 0.69)"
    )
    assert 0 < score < 0.6
    stranger = knowing.caveats(Traits("z", side=28, classes=2))
    assert stranger == ("the calibrator has met no z, only a, b, c, d", caveat)
    assert knowing.explain(few().rows[0], Traits("a", side=28, classes=2))[0] == caveat


def test_it_comes_back_from_its_file_and_is_forgotten(general, knowing, tmp_path):
    knowing.save(tmp_path / "few.json")
    assert Calibrator.load(tmp_path / "few.json") == knowing
    assert knowing.for_few_classes(None) == general


def _renamed(document):
    document["pooled"]["few"]["tails"][0]["name"] = "another"


def _shorter(document):
    document["pooled"]["few"]["tails"].pop()


def _turned(document):
    tail = document["pooled"]["few"]["tails"][0]
    tail["direction"] = -tail["direction"]


def _absurd(document):
    document["pooled"]["few"]["log_score"] = -1


@pytest.mark.parametrize("change", [_renamed, _shorter, _turned, _absurd])
def test_files_that_contradict_themselves_are_refused(knowing, tmp_path, change):
    path = tmp_path / "few.json"
    knowing.save(path)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    with pytest.raises(CalibrationError, match="few"):
        Calibrator.load(path)


def test_files_of_the_schema_before_are_read(general, tmp_path):
    path = tmp_path / "old.json"
    general.save(path)
    document = json.loads(path.read_text())
    del document["pooled"]["few"]
    path.write_text(json.dumps(with_straight_lines(document, 3)))
    again = Calibrator.load(path)
    assert pooled_of(again.stages).few is None and tails_of(again) == tails_of(general)


def test_other_networks_and_too_few_of_them_are_refused(general):
    with pytest.raises(CalibrationError, match="got 20 clean networks of 6 classes; expected 8"):
        general.for_few_classes(few(classes=6))
    with pytest.raises(CalibrationError, match="got 7 clean networks of 2 classes"):
        general.for_few_classes(few(models=14))
    with pytest.raises(CalibrationError, match="of unknown classes"):
        general.for_few_classes(Labelled(few().rows, few().poisoned, few().architectures))


def test_a_field_that_few_of_them_have_keeps_its_tail(general):
    rows = [{n: v for n, v in row.items() if n != NAMES[0]} for row in few().rows]
    labelled = Labelled(
        rows, few().poisoned, few().architectures, classes=[3] * 40, pairs=few().pairs
    )
    model = pooled_of(general.for_few_classes(labelled).stages)
    assert model.few.tails[0] == model.tails[0] and model.few.tails[1] != model.tails[1]


def test_regressions_know_nothing_of_it():
    with pytest.raises(CalibrationError, match="only a pooled calibrator"):
        fit(population(60, 0)).for_few_classes(few())
