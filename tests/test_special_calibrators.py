"""Which calibrator answers for which pictures, and which stages are run for it."""

import argparse
import json

import numpy as np
import pytest

from jaxtroj.calibration import Calibrator, Labelled, Origin, Scheme
from jaxtroj.cli.options import add_settings, settings_from
from jaxtroj.errors import CalibrationError
from jaxtroj.evidence.stage import Subject, stages_for
from jaxtroj.evidence.stages import IMAGE_STAGES, IMAGES
from jaxtroj.populations import Asked, shipped
from jaxtroj.schemas import scheme_for
from jaxtroj.settings import Settings, base_rate, load_calibrator

STAGE_FIELDS = IMAGES.stage_fields
SMALL, LARGE = (
    tuple(stage.name for stage in stages_for(IMAGE_STAGES, Subject(side=side)))
    for side in (32, 224)
)


def fitted(stage: str, sides: tuple[int, int] | None, poisoned: int = 6) -> Calibrator:
    """On a dozen models whose fields of one stage are larger when they are poisoned."""
    draw = np.random.default_rng(0)
    labels = [place < poisoned for place in range(12)]
    rows = [{n: draw.normal() + 3 * label for n in STAGE_FIELDS[stage]} for label in labels]
    scheme = Scheme({stage: STAGE_FIELDS[stage]})
    origin = Origin(population=stage, sides=sides)
    return Calibrator.fit(Labelled(rows, labels, ["net"] * 12), scheme, origin)


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A general calibrator, one for 28 to 32 pixels and one for 30 to 40."""
    folder = tmp_path_factory.mktemp("calibrators")
    fitted("weights", None, poisoned=4).save(folder / "general.json")
    fitted("fixed", (28, 32)).save(folder / "small.json")
    fitted("probes", (30, 40)).save(folder / "middle.json")
    special = (folder / "small.json", folder / "middle.json")
    return Settings(calibrator=folder / "general.json", special_calibrators=special)


@pytest.mark.parametrize(
    ("size", "population"),
    [
        ((32, 32), "fixed"),
        ((28, 31), "fixed"),
        ((32, 36), "probes"),
        ((28, 36), "weights"),
        ((224, 224), "weights"),
        (None, "weights"),
    ],
)
def test_the_first_that_covers_the_pictures_is_taken(settings, size, population):
    found = load_calibrator(settings, Asked(size=size))
    assert found is not None and found.provenance.population == population
    assert base_rate(settings, Asked(size=size)) == found.base_rate


def test_a_calibrator_that_is_named_is_taken_for_all(settings):
    parser = argparse.ArgumentParser()
    add_settings(parser)
    named = settings_from(parser.parse_args(["--calibrator", str(settings.calibrator)]))
    found = load_calibrator(named, Asked(size=(32, 32)))
    assert found is not None and found.provenance.population == "weights"
    assert load_calibrator(Settings(calibrator=None), Asked(size=(32, 32))) is None


def test_identity_of_an_answer_knows_the_special_ones(settings):
    values = settings.as_json()
    assert len(values["special_calibrators"]) == 2
    assert "special_calibrators" not in Settings(calibrator=None).as_json()
    json.dumps(values, allow_nan=False)


def test_sides_survive_a_file_and_lies_are_refused(tmp_path):
    path = tmp_path / "c.json"
    fitted("fixed", (28, 32)).save(path)
    assert Calibrator.load(path).provenance.sides == (28, 32)
    document = json.loads(path.read_text())
    for lie in ([32, 28], [0, 32], [28], "28-32", [28.5, 32], {"low": 1}):
        document["provenance"]["sides"] = lie
        path.write_text(json.dumps(document))
        with pytest.raises(CalibrationError, match="sides"):
            Calibrator.load(path)
    del document["provenance"]["sides"]
    path.write_text(json.dumps(document))
    found = Calibrator.load(path)
    assert found.provenance.sides is None and found.covers((32, 32)) is None


@pytest.mark.parametrize("stages", [SMALL, LARGE])
def test_the_scheme_of_records_has_the_stages_that_occur(stages):
    row = {name: 0.0 for stage in stages for name in STAGE_FIELDS[stage]}
    judged = tuple(stage for stage in stages if stage in IMAGES.judged_fields)
    assert tuple(scheme_for("image", [row, {}]).stages) == judged and len(judged) >= 4


def test_shipped_special_calibrators_know_their_pictures_and_the_stages_run_for_them():
    sized = [one.path for one in shipped() if one.by_size]
    assert sized
    for path in sized:
        found = Calibrator.load(path)
        assert found.provenance.sides is not None and found.provenance.population
        assert set(found.stages) <= set(SMALL) and "fixed" in found.stages
