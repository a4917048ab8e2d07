"""`jaxtroj calibrate` on stored records."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

import jaxtroj
from jaxtroj.cli.main import main
from jaxtroj.errors import CalibrationError
from jaxtroj.evidence.stages import CLASSIFIERS, IMAGES, TEXTS
from jaxtroj.evidence.versions import as_settings, check_gathered
from jaxtroj.record import Record
from jaxtroj.rounds import iter_models
from jaxtroj.scan import scan_model
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore, read_records

FIELDS = IMAGES.judged_fields["weights"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of 24 models, twelve poisoned by two kinds of trigger, and its METADATA.csv."""
    folder, random = tmp_path_factory.mktemp("labelled"), np.random.default_rng(0)
    table = ["model_name,poisoned,trigger_kind"]
    with RunStore(folder / "run", {}) as store:
        for number in range(24):
            name, bad = f"id-{number:08d}", number % 2 == 0
            evidence = {field: float(random.normal() + 3 * bad) for field in FIELDS}
            store.append(
                Record(name, "", 0.5, False, None, (), "ok", "", evidence=evidence,
                       architecture="resnet18")
            )  # fmt: skip
            table.append(f"{name},{bad},{('patch', 'blend')[number % 4 // 2] if bad else ''}")
    (folder / "truth.csv").write_text("\n".join(table))
    return folder


def calibrate(folder, *more):
    arguments = [folder / "run", "--truth", folder / "truth.csv", "--out", folder / "c.json"]
    return main(["calibrate", *map(str, (*arguments, *more))])


def test_groups_are_scored_by_fits_that_have_not_met_them(run, capsys):
    assert calibrate(run, "--groups", "trigger_kind") == 0
    lines = capsys.readouterr().out.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("each trigger_kind left out"))
    blend, patch = lines[place + 1 : place + 3]
    assert blend.split()[:2] == ["blend", "12"] and patch.split()[:2] == ["patch", "12"]
    assert sum(line.endswith("worst") for line in lines) == 1


def test_values_of_a_column_and_architectures_move_no_cursor(run, tmp_path, capsys):
    (tmp_path / "truth.csv").write_text(
        (run / "truth.csv").read_text().replace("blend", "b\x1b[2Klend")
    )
    with RunStore(tmp_path / "run", {}) as store:
        for record in read_records(run / "run"):
            store.append(replace(record, architecture="net\x1b[2K"))
    assert calibrate(tmp_path, "--groups", "trigger_kind") == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said and r"b\x1b[2Klend" in said and r"net\x1b[2K" in said


def test_evidence_of_a_scan_that_failed_half_way_teaches_nothing(run, tmp_path, capsys):
    records = read_records(run / "run")
    with RunStore(tmp_path / "run", {}) as store:
        for place, record in enumerate(records):
            store.append(replace(record, status="failed" if place < 4 else "ok"))
    (tmp_path / "truth.csv").write_text((run / "truth.csv").read_text())
    assert calibrate(tmp_path) == 0
    said = capsys.readouterr()
    assert "fitted on 20 models, 10 poisoned" in said.out
    assert "4 models that failed, or have no evidence or label, are left out" in said.err
    words = ["evaluate", str(tmp_path / "run"), "--truth", str(tmp_path / "truth.csv")]
    assert main([*words, "--cross-validate", "--json"]) == 0
    models = json.loads(capsys.readouterr().out)["contributions"]
    assert [m["model"] for m in models if m["probability"] == 0.5] == [r.model for r in records[:4]]


def copied(run, folder, label=None):
    """The run with its first two models twice, under other names; the truth of the copies."""
    text = (run / "truth.csv").read_text()
    with RunStore(folder / "run", {}) as store:
        for place, record in enumerate(read_records(run / "run")):
            record = replace(record, sha256=f"{place:064x}")
            store.append(record)
            if place < 2:
                store.append(replace(record, model=f"copy-{place}"))
                text += f"\ncopy-{place},{place == 0 if label is None else label},patch"
    (folder / "truth.csv").write_text(text)


@pytest.mark.parametrize("spelled", ["m\\{}", "m\\\\{}"], ids=["as it is", "as records double it"])
def test_names_with_a_backslash_have_their_labels(run, tmp_path, spelled, capsys):
    lines = ["model_name,poisoned"]
    with RunStore(tmp_path / "run", {}) as store:
        for place, record in enumerate(read_records(run / "run")):
            store.append(replace(record, model=f"m\\\\{place}"))
            lines.append(f"{spelled.format(place)},{place % 2 == 0}")
    (tmp_path / "truth.csv").write_text("\n".join(lines))
    assert calibrate(tmp_path) == 0
    assert "fitted on 24 models, 12 poisoned" in capsys.readouterr().out


def test_few_models_are_told(run, tmp_path, capsys):
    with RunStore(tmp_path / "run", {}) as store:
        for record in read_records(run / "run")[:12]:
            store.append(record)
    (tmp_path / "truth.csv").write_text((run / "truth.csv").read_text())
    assert calibrate(tmp_path) == 0
    assert "12 models are few; 20 or more are advised" in capsys.readouterr().err
    assert calibrate(run) == 0
    assert "are few" not in capsys.readouterr().err


def test_copies_of_a_file_count_once(run, tmp_path, capsys):
    copied(run, tmp_path)
    assert calibrate(tmp_path) == 0
    said = capsys.readouterr()
    assert "2 models are copies of others (one sha256) and are left out" in said.err
    assert "fitted on 24 models, 12 poisoned" in said.out


def test_a_file_of_two_labels_is_refused(run, tmp_path, capsys):
    copied(run, tmp_path, label=False)
    assert calibrate(tmp_path) == 4
    assert "id-00000000 and copy-0 are one file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("column", "message"), [("architecture", "two or more"), ("colour", "no column 'colour'")]
)
def test_groups_that_cannot_be(run, capsys, column, message):
    assert calibrate(run, "--groups", column) == 4
    assert message in capsys.readouterr().err


OTHERS = [
    # settings that differ from those of today, status, what is said
    ({}, 0, ""),
    (
        {"evidence_schema": 2},
        4,
        f"image evidence of version 2, expected version {IMAGES.version}, in which fields mean",
    ),
    ({"evidence_schema": "\x1b[2J"}, 4, r"of version '\x1b[2J', expected"),
    (
        {"evidence_revision": 1},
        0,
        f"image evidence of revision 1, scans measure it by revision {IMAGES.revision}",
    ),
]


@pytest.mark.parametrize(("other", "status", "said"), OTHERS)
def test_evidence_of_another_version_is_refused(run, tmp_path, capsys, other, status, said):
    with RunStore(tmp_path / "run", Settings().as_json() | other) as store:
        for record in read_records(run / "run"):
            store.append(record)
    (tmp_path / "truth.csv").write_text((run / "truth.csv").read_text())
    assert calibrate(tmp_path) == status
    errors = capsys.readouterr().err
    assert said in errors and ("evidence of" in errors) == bool(said)
    assert ("gather it again: jaxtroj scan --evidence-only --restart" in errors) == bool(said)
    assert (tmp_path / "c.json").exists() == (status == 0)


@pytest.mark.parametrize(
    ("settings", "status", "said"),
    [(None, 0, "nothing says by which version of image evidence"), ("[", 4, "is not JSON")],
)
def test_settings_that_are_lost_or_damaged_are_told(run, tmp_path, capsys, settings, status, said):
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "copy/run/settings.json").unlink()
    if settings is not None:
        (tmp_path / "copy/run/settings.json").write_text(settings)
    assert calibrate(tmp_path / "copy") == status
    assert said in capsys.readouterr().err


def test_every_kind_of_evidence_has_its_own_version():
    now = as_settings()
    assert now["evidence_schema"] == IMAGES.version
    assert now["classifier_evidence_schema"] == CLASSIFIERS.version
    for kind, name in ((TEXTS.kind, "text_evidence_schema"),
                       (CLASSIFIERS.kind, "classifier_evidence_schema")):  # fmt: skip
        assert check_gathered(kind, now) == ""
        with pytest.raises(CalibrationError, match=f"{kind} evidence of version 9, expected"):
            check_gathered(kind, now | {name: 9})


@pytest.fixture(scope="module")
def dated(run, tmp_path_factory) -> Path:
    """A calibrator of the run, whose settings say by which version its evidence was gathered."""
    folder = tmp_path_factory.mktemp("dated")
    with RunStore(folder / "run", Settings().as_json()) as store:
        for record in read_records(run / "run"):
            store.append(record)
    (folder / "truth.csv").write_text((run / "truth.csv").read_text())
    assert calibrate(folder) == 0
    return folder / "c.json"


def test_a_calibrator_keeps_the_version_of_its_evidence(run, dated):
    kept = json.loads(dated.read_text())["provenance"]["evidence"]
    assert kept == asdict(IMAGES.measured)
    assert calibrate(run) == 0  # the settings of this run say nothing
    assert json.loads((run / "c.json").read_text())["provenance"]["evidence"] is None


JUDGED_BY = [
    # evidence that the calibrator was fitted on, how a model is answered, what is said
    (None, "ok", ""),
    (asdict(IMAGES.measured), "ok", ""),
    (
        asdict(IMAGES.measured) | {"revision": 1},
        "ok",
        f"evidence of revision 1, this is of revision {IMAGES.revision}: the probability may",
    ),
    (
        asdict(IMAGES.measured) | {"version": 2},
        "failed",
        f"'image' evidence of version 2, expected image evidence of version {IMAGES.version};",
    ),
    (
        {"kind": "\x1b[2J", "version": 1, "revision": 0},
        "failed",
        r"fitted on '\x1b[2J' evidence of version 1, expected image evidence",
    ),
]


@pytest.mark.parametrize(("evidence", "status", "said"), JUDGED_BY)
def test_a_calibrator_of_another_version_judges_nothing(dated, tmp_path, evidence, status, said):
    document = json.loads(dated.read_text())
    document["provenance"]["evidence"] = evidence
    (tmp_path / "c.json").write_text(json.dumps(document))
    settings = Settings(calibrator=tmp_path / "c.json", stages=("weights",))
    examples = Path(jaxtroj.__file__).parent / "data" / "examples"
    record = scan_model(next(iter_models(examples / "clean")), settings)
    assert record.status == status and said in record.reason
    assert ("evidence of" in record.reason) == bool(said)
    assert any("revision 1" in caveat for caveat in record.caveats) == ("revision 1" in said)
