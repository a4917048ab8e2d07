"""Parts of a pooled fit count for large pictures as few such networks say, for others as before."""

import json

import numpy as np
import pytest

from jaxtroj import scoring
from jaxtroj.calibration import Calibrator, Labelled, Scheme
from jaxtroj.calibration.pooled_files import pooled_of
from jaxtroj.calibration.transfer import Traits
from jaxtroj.errors import CalibrationError

from .conftest import fit, population

FIELDS = {"weights": ("head_lead", "head_outlier"), "memory": ("memory_worth", "memory_faint")}
NAMES = tuple(name for names in FIELDS.values() for name in names)
SCHEME = Scheme(FIELDS, dict.fromkeys(NAMES, 1), is_pooled=True)


def networks(models, seed, side, leave=("weights", "memory")) -> Labelled:
    """Half poisoned; a trojan raises the fields of the stages that it leaves something in.

    Of large pictures every second clean network stands out by its weights, too.
    """
    random = np.random.default_rng(seed)
    rows, is_large = [], side > 64
    for place in range(models):
        row = {name: float(random.normal()) for name in NAMES}
        stages = leave if place % 2 else ("weights",) if is_large and place % 4 else ()
        for name in (name for stage in stages for name in FIELDS[stage]):
            row[name] += float(2 + random.exponential())
        rows.append(row)
    return Labelled(
        rows, [bool(place % 2) for place in range(models)], ["a"] * models,
        ["patch" if place % 2 else "" for place in range(models)], sides=[side] * models,
        classes=[10] * models, pairs=[str(place // 2) for place in range(models)],
    )  # fmt: skip


def large(models=48, seed=5, side=224) -> Labelled:
    return networks(models, seed, side, leave=("memory",))


def groups(labelled: Labelled) -> list[str]:
    return [f"folder {int(pair) % 3}" for pair in labelled.pairs]


@pytest.fixture(scope="module")
def general() -> Calibrator:
    return Calibrator.fit(networks(60, 0, 32), SCHEME)


@pytest.fixture(scope="module")
def knowing(general) -> Calibrator:
    return general.for_large_pictures(large(), groups(large()))


def said(calibrator: Calibrator, labelled: Labelled, side: int | None) -> np.ndarray:
    traits = Traits("a", side=side, classes=10)
    return np.array([calibrator.probability(row, traits) for row in labelled.rows])


def test_what_large_networks_contradict_counts_less_and_what_they_bear_out_more(general, knowing):
    factors = pooled_of(knowing.stages).large
    assert 0 <= factors.traces < 0.5 < 1 < factors.searches
    fresh = large(120, 6)
    before, after = (said(one, fresh, 224) for one in (general, knowing))
    gained = scoring.log_score(before, fresh.truth) - scoring.log_score(after, fresh.truth)
    assert gained > 0.1
    assert factors.log_score == pytest.approx(scoring.log_score(after, fresh.truth), abs=0.12)


@pytest.mark.parametrize("side", [28, 64, None])
def test_networks_of_other_pictures_are_judged_as_before(general, knowing, side):
    fresh, traits = networks(20, 9, 32), Traits("a", side=side, classes=10)
    np.testing.assert_array_equal(said(general, fresh, side), said(knowing, fresh, side))
    assert knowing.caveats(traits) == general.caveats(traits)


def test_what_is_known_of_them_is_said(knowing):
    (caveat,) = knowing.caveats(Traits("a", side=65, classes=10))
    score = pooled_of(knowing.stages).large.log_score
    assert caveat == (
        "what evidence counts for pictures above 64 pixels was learnt on 48 such networks; judged"
        f" without their populations, they had a log score of {score:.2f} (0.5 scores 0.69)"
    )
    stranger = knowing.caveats(Traits("z", side=224, classes=10))
    assert stranger == ("the calibrator has met no z, only a", caveat)


def test_it_comes_back_from_its_file_and_is_forgotten(general, knowing, tmp_path):
    knowing.save(tmp_path / "large.json")
    assert Calibrator.load(tmp_path / "large.json") == knowing
    assert knowing.for_large_pictures(None) == general


@pytest.mark.parametrize(
    ("name", "value"),
    [("above", 0), ("pool", -1), ("traces", "1"), ("searches", 1e9), ("models", 0)],
)
def test_files_that_contradict_themselves_are_refused(knowing, tmp_path, name, value):
    path = tmp_path / "large.json"
    knowing.save(path)
    document = json.loads(path.read_text())
    document["pooled"]["large"][name] = value
    path.write_text(json.dumps(document))
    with pytest.raises(CalibrationError, match=f"large.{name}"):
        Calibrator.load(path)


def test_files_of_the_schema_before_are_read(general, tmp_path):
    path = tmp_path / "old.json"
    general.save(path)
    document = json.loads(path.read_text())
    del document["pooled"]["large"]
    path.write_text(json.dumps(document | {"schema": 6}))
    assert Calibrator.load(path) == general


def test_other_networks_and_too_few_of_them_are_refused(general):
    with pytest.raises(CalibrationError, match="pictures of 64 pixels and more; expected 8 of"):
        general.for_large_pictures(large(side=64), groups(large()))
    with pytest.raises(CalibrationError, match="got 7 poisoned and 7 clean networks"):
        general.for_large_pictures(large(14), groups(large(14)))
    with pytest.raises(CalibrationError, match="48 names of 1 groups for 48 networks"):
        general.for_large_pictures(large(), ["folder"] * 48)
    with pytest.raises(CalibrationError, match="only a pooled calibrator judges networks of large"):
        fit(population(60, 0)).for_large_pictures(large(), groups(large()))
