"""Models whose names look alike stay apart: in records, reports, pictures, and on resuming."""

import csv
import io
import os
from types import SimpleNamespace
from typing import Any

import pytest

from jaxtroj.cli.main import main
from jaxtroj.file_names import file_stem
from jaxtroj.populations import Asked
from jaxtroj.record import Record, parse_record, printable
from jaxtroj.scan.attempt import Attempt
from jaxtroj.settings import DEFAULT_CALIBRATOR, Settings
from jaxtroj.store import read_records

FILES = (
    b"a\nb.pt",
    rb"a\nb.pt",
    rb"a\\nb.pt",
    b"a\xffb.pt",
    rb"a\xffb.pt",
    "a\xffb.pt".encode(),
    b"a\x85b.pt",
    "a\x85b.pt".encode(),
    rb"a\u0085b.pt",
    b"a:b.pt",
    b"a;b.pt",
    b"=a.pt",
    b"x" * 240 + b"1.pt",
    b"x" * 240 + b"2.pt",
)
NAMES = [os.fsdecode(name) for name in FILES]


def run(*words) -> int:
    return main([str(word) for word in words])


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    for number, name in enumerate(NAMES):
        (folder / name).write_bytes(b"garbage%d" % number)
    return folder


def test_no_row_is_lost_and_nothing_is_scanned_twice(dataset, tmp_path, capsys):
    arguments = ("scan", dataset, "--out", tmp_path / "run", "--evidence-only")
    assert run(*arguments) == 2
    records = read_records(tmp_path / "run")
    assert {record.model for record in records} == set(map(printable, NAMES))
    assert len({record.sha256 or record.reason for record in records}) == len(NAMES)
    lines = (tmp_path / "run" / "records.jsonl").read_bytes()
    assert run(*arguments) == 2
    assert (tmp_path / "run" / "records.jsonl").read_bytes() == lines
    capsys.readouterr()
    assert run("report", tmp_path / "run", "--format", "csv") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))
    assert len({row["model"] for row in rows}) == len(rows) == len(NAMES)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_file_has_one_name_in_every_locale(monkeypatch, encoding):
    """With LC_ALL=C and PYTHONUTF8=0 a model was scanned again, under a second name."""
    names = list(map(printable, NAMES))
    monkeypatch.setattr(os, "fsencode", lambda name: name.encode(encoding, "surrogateescape"))
    monkeypatch.setattr(os, "fsdecode", lambda name: name.decode(encoding, "surrogateescape"))
    assert [printable(os.fsdecode(name)) for name in FILES] == names
    assert printable("模型") == "模型"  # of a manifest, which is UTF-8


def test_predictions_are_found_again_in_our_own_tables(dataset, tmp_path, capsys):
    run("scan", dataset, "--out", tmp_path / "run", "--evidence-only")
    truth = io.StringIO(newline="")
    writer = csv.writer(truth)
    kept = [name for name in NAMES if name.isprintable()]
    writer.writerows([name, number % 2] for number, name in enumerate(kept))
    (tmp_path / "truth.csv").write_text(truth.getvalue())
    out = ("--truth", tmp_path / "truth.csv", "--out", tmp_path / "scores")
    assert run("evaluate", tmp_path / "run", *out) == 0
    assert 'not_predicted": 0' in (tmp_path / "scores" / "scores.json").read_text()
    assert run("evaluate", tmp_path / "scores" / "models.csv", *out[:2]) == 0
    assert f"all: {len(kept)} models" in capsys.readouterr().out


def test_file_stems_stay_apart():
    names = [*map(printable, NAMES), "../a", "..:a", "a/b", "a:b", "A B", "a b", "", "."]
    stems = list(map(file_stem, names))
    stems += list(map(file_stem, stems))  # a model may be called as another's file
    assert len({file_stem(stem) for stem in stems[: len(names)]} | set(stems)) >= len(names)
    harmless = {stem for name, stem in zip(names, stems, strict=False) if name != stem}
    assert not harmless & {file_stem(stem) for stem in harmless}


def test_links_to_folders_of_one_name_are_different_models(tmp_path):
    for number in range(2):
        home = tmp_path / f"from{number}" / "model"
        home.mkdir(parents=True)
        (home / "model.pt").write_bytes(b"%d" % number)
        (tmp_path / "round").mkdir(exist_ok=True)
        (tmp_path / "round" / f"id-0000000{number}").symlink_to(home)
    run("scan", tmp_path / "round", "--out", tmp_path / "run", "--evidence-only")
    found = [record.model for record in read_records(tmp_path / "run")]
    assert found == ["id-00000000", "id-00000001"]


def test_a_calibrator_whose_name_is_no_utf8_is_named_in_records_that_can_be_read(tmp_path):
    path = tmp_path / os.fsdecode(b"cal\xff.json")
    path.write_bytes(DEFAULT_CALIBRATOR.read_bytes())
    settings = Settings(calibrator=path)
    attempt: Any = SimpleNamespace(settings=settings, asked=Asked("image"))
    words = Attempt.calibrator_in_words.__get__(attempt)
    assert words.startswith(r"cal\xff.json (")
    record = Record("a", "", 0.1, False, None, (), "ok", "because", calibrator=words)
    assert parse_record(record.to_json()) == record
