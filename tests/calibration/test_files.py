"""Calibrator files: exact, whole or not there, and hostile ones refused."""

import json

import pytest

from jaxtroj.calibration import Calibrator
from jaxtroj.calibration.transfer import Traits, Transfer
from jaxtroj.errors import CalibrationError
from jaxtroj.populations import BY_NAME

from .conftest import regressions


def test_save_and_load_are_exact_and_leave_no_traces(fitted, tmp_path):
    path = tmp_path / "calibrator.json"
    fitted.save(path)
    fitted.save(path)
    assert [item.name for item in tmp_path.iterdir()] == ["calibrator.json"]
    assert Calibrator.load(path) == fitted
    provenance = json.loads(path.read_text())["provenance"]
    assert provenance["population"] == "synthetic" and provenance["models"] == 60


def test_unwritable_and_missing_files(fitted, tmp_path):
    with pytest.raises(CalibrationError, match="cannot write"):
        fitted.save(tmp_path / "absent" / "calibrator.json")
    with pytest.raises(CalibrationError, match="cannot write"):
        (tmp_path / "folder").mkdir()
        fitted.save(tmp_path / "folder")
    assert [item.name for item in tmp_path.iterdir()] == ["folder"]
    with pytest.raises(CalibrationError, match="cannot read"):
        Calibrator.load(tmp_path / "absent.json")


def _set(document, path, value):
    *steps, last = path
    for step in steps:
        document = document[step]
    if value is KeyError:
        del document[last]
    else:
        document[last] = value


FIRST = ("stages", 0)
HOSTILE = [
    (("format",), "other"),
    (("schema",), 4),
    (("schema",), True),
    (("stages",), []),
    (("stages",), {"a": 1}),
    ((*FIRST, "stage"), 7),
    ((*FIRST, "stage"), "probes"),
    ((*FIRST, "intercept"), "1.0"),
    ((*FIRST, "intercept"), True),
    ((*FIRST, "intercept"), None),
    ((*FIRST, "intercept"), 10**400),
    ((*FIRST, "intercept"), 1e200),
    ((*FIRST, "low"), 0),
    ((*FIRST, "high"), 1),
    ((*FIRST, "high"), 0.2),
    ((*FIRST, "rate"), 1.0),
    ((*FIRST, "models"), 1.5),
    ((*FIRST, "fields"), []),
    ((*FIRST, "architectures"), {"resnet50": []}),
    ((*FIRST, "architectures"), {"x" * 5000: 1.0}),
    ((*FIRST, "fields", 0, "name"), "flip"),
    ((*FIRST, "fields", 0, "spread"), 0),
    ((*FIRST, "fields", 0, "scale"), -1),
    ((*FIRST, "fields", 0, "scale"), 0),
    ((*FIRST, "fields", 0, "scale"), 5e-324),
    ((*FIRST, "fields", 0, "spread"), 5e-324),
    ((*FIRST, "fields", 0, "direction"), 0.5),
    ((*FIRST, "intercept"), 1e4),
    ((*FIRST, "fields", 0, "low"), 1e9),
    ((*FIRST, "fields", 0, "weight"), KeyError),
    ((*FIRST, "stop", "worst_drop"), -1),
    ((*FIRST, "out_of_fold", "roc_auc"), 2),
    (("stages", 1, "fields", 1, "weight"), -3.0),
    (("provenance",), []),
    (("provenance", "poisoned"), 60),
    (("provenance", "population"), "x" * 10_000),
    (("unfitted",), "no list"),
]


@pytest.mark.parametrize(("path", "value"), HOSTILE, ids=[str(p[0]) for p in HOSTILE])
def test_hostile_calibrators_are_refused(fitted, tmp_path, path, value):
    file = tmp_path / "calibrator.json"
    fitted.save(file)
    document = json.loads(file.read_text())
    _set(document, path, value)
    file.write_text(json.dumps(document))
    with pytest.raises(CalibrationError, match="calibrator"):
        Calibrator.load(file)


ANYTHING = (0, -1, 1, 0.5, 1e308, 5e-324, 1e100, -1e100, 10**30, None, True, "x", [], {})


def _places(value, path=()):
    """Every place in a document, one for each list."""
    if path:
        yield path
    parts = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        parts = list(enumerate(value))[-1:]
    for name, part in parts:
        yield from _places(part, (*path, name))


def _answers(calibrator, rows):
    for row in rows:
        verdict = calibrator.verdict(row, Traits("resnet50"), calibrator.base_rate)
        yield verdict.probability
        for stage in calibrator.stages:
            calibrator.can_stop(row, stage, Traits("resnet50"), calibrator.base_rate)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shipped", [BY_NAME["small"].path])
def test_any_value_anywhere_is_refused_or_leaves_answers(tmp_path, shipped):
    text = shipped.read_text()
    fields = list(regressions(Calibrator.load(shipped)).values())[-1].linear.fields
    rows = [{f.name: f.clean for f in fields}, {f.name: f.poisoned for f in fields}]
    rows += [{f.name: far for f in fields} for far in (1e30, -1e30, 0.0)]
    file, refused = tmp_path / "calibrator.json", 0
    for place in _places(json.loads(text)):
        for value in ANYTHING:
            document = json.loads(text)
            _set(document, place, value)
            file.write_text(json.dumps(document))
            try:
                changed = Calibrator.load(file)
            except CalibrationError:
                refused += 1
                continue
            assert all(0 < answer < 1 for answer in _answers(changed, rows)), (place, value)
    assert refused > 300


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{",
        b'{"format": "jaxtroj calibrator"}',
        b"[" * 100_000,
        b'{"format": NaN}',
        b'{"format": Infinity}',
        b"9" * 10_000,
    ],
)
def test_files_that_are_no_calibrators(tmp_path, content):
    (tmp_path / "calibrator.json").write_bytes(content)
    with pytest.raises(CalibrationError, match="not a"):
        Calibrator.load(tmp_path / "calibrator.json")


def test_nothing_but_numbers_near_the_cap(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxtroj.calibration.files.MAX_BYTES", 10)
    (tmp_path / "calibrator.json").write_bytes(b"1" * 11)
    with pytest.raises(CalibrationError, match="larger than"):
        Calibrator.load(tmp_path / "calibrator.json")


# What the shipped files of schema 1 answered before there was a second one: name, architecture,
# whose medians, P at their own base rate, P of an architecture that they have not met at 0.1.
FIRST_SCHEMA = [
    ("small", "graph:9db2829c", "clean", 0.2234738201913915, 0.027027027027027032),
    ("small", "graph:9db2829c", "poisoned", 0.9577179754303909, 0.6401386420380263),
]


@pytest.mark.parametrize(("name", "architecture", "whose", "known", "strange"), FIRST_SCHEMA)
def test_files_of_the_first_schema_answer_as_before(name, architecture, whose, known, strange):
    path = BY_NAME[name].path
    assert json.loads(path.read_text())["schema"] == 1
    calibrator = Calibrator.load(path)
    fields = list(regressions(calibrator).values())[-1].linear.fields
    row = {f.name: (getattr(f, whose) + 0.5 * f.centre) / 1.5 for f in fields}
    assert calibrator.probability(row, Traits(architecture), calibrator.base_rate) == known
    assert calibrator.probability(row, Traits("vgg"), 0.1) == strange
    assert (calibrator.met, calibrator.transfer, calibrator.kinds) == (None, Transfer(), {})
