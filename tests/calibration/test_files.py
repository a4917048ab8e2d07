"""Calibrator files: exact, whole or not there, and hostile ones refused."""

import json
from dataclasses import replace

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
    (("schema",), 8),
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
    ((*FIRST, "rate"), 1e-320),
    ((*FIRST, "rate"), 1 - 1e-7),
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
    (("provenance", "models"), 2**63),
    (("provenance", "seed"), 2**63),
    (("provenance", "seed"), -(2**63) - 1),
    (("provenance", "evidence"), "image"),
    (("provenance", "evidence"), {"kind": "image", "version": 3}),
    (("provenance", "evidence"), {"kind": "image", "version": 0, "revision": 0}),
    (("provenance", "evidence"), {"kind": ["image"], "version": 3, "revision": 0}),
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


def test_a_name_that_stands_twice_is_refused(fitted, tmp_path):
    file = tmp_path / "calibrator.json"
    fitted.save(file)
    text = file.read_text()
    assert text.count('"seed": ') == 1
    file.write_text(text.replace('"seed": ', '"seed": 1, "seed": '))
    with pytest.raises(CalibrationError, match="not a calibrator: the name 'seed' stands twice"):
        Calibrator.load(file)


REFUSED = {
    "population": ({"population": "x" * 2001}, "population is .*expected a text of at most 2000"),
    "seed": ({"seed": 2**63}, "seed is 9223372036854775808, expected a whole number from"),
    "commit": ({"commit": "c" * 3000}, "commit is .*expected a text of at most 2000"),
    "models": ({"models": 2**63}, "24 of|30 of"),
}


@pytest.mark.parametrize(("odd", "message"), REFUSED.values(), ids=REFUSED)
def test_what_could_not_be_read_back_is_not_written(fitted, tmp_path, odd, message):
    file = tmp_path / "calibrator.json"
    fitted.save(file)
    before = file.read_bytes()
    changed = replace(fitted, provenance=replace(fitted.provenance, **odd))
    with pytest.raises(CalibrationError, match=f"cannot write the calibrator .*{message}"):
        changed.save(file)
    assert file.read_bytes() == before and len(list(tmp_path.iterdir())) == 1


def test_architectures_with_endless_names_are_not_written(fitted, tmp_path):
    reports = {
        name: replace(r, by_architecture={"x" * 2001: r.score})
        for name, r in fitted.reports.items()
    }
    with pytest.raises(CalibrationError, match="a key of the file.*at most 2000 characters"):
        replace(fitted, reports=reports).save(tmp_path / "calibrator.json")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", [2**53 + 1, 2**63 - 1, -(2**63)])
def test_seeds_of_64_bits_come_back_exactly(fitted, tmp_path, seed):
    file = tmp_path / "calibrator.json"
    replace(fitted, provenance=replace(fitted.provenance, seed=seed)).save(file)
    assert Calibrator.load(file).provenance.seed == seed


@pytest.mark.parametrize("base_rate", [5e-324, 1e-320, 1e-12, 0.5, 0.9999999999999999])
@pytest.mark.parametrize("name", ["small", "general"])
def test_answers_stay_inside_their_bounds_at_any_base_rate(name, base_rate):
    calibrator = Calibrator.load(BY_NAME[name].path)
    names = list(calibrator.stages.values())[-1].names
    for value in (None, -1e30, 0.0, 1e30):
        row = dict.fromkeys(names, value)
        assert 1e-12 <= calibrator.probability(row, base_rate=base_rate) <= 1 - 1e-12


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
        b'{"format": NaN, "format": "jaxtroj calibrator"}',
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
