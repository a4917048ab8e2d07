"""`jaxtroj evaluate` where stored evidence is judged anew, by fits that have not met the model."""

import json

import numpy as np
import pytest

from jaxtroj.evidence.stages import IMAGES
from jaxtroj.record import Record
from jaxtroj.store import RunStore
from tests.cli.labelled_runs import labelled_run, run, table_of


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--cross-validate",), []),
        (
            ("--leave-one-out", "architecture"),
            ["without architecture densenet121", "without architecture resnet50"],
        ),
        (("--split", "60,20,20"), ["train, out of fold", "test", "holdout"]),
        (("--split", "part"), ["train, out of fold", "test"]),
    ],
)
def test_stored_evidence_is_judged_anew(tmp_path, capsys, options, expected):
    folder, truth = labelled_run(tmp_path, "one")
    assert run("evaluate", folder, "--truth", truth, "--json", *options) == 0
    scores = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert list(scores["groups"]) == expected
    assert scores["roc_auc"] > 0.9 and scores["log_score"] < 0.4
    assert scores["success"] == (scores["log_score"] < scores["success_log_score"])
    total = sum(group["models"] for group in scores["groups"].values())
    assert not expected or total == 48
    assert run("evaluate", folder, "--truth", truth, "--json", *options) == 0
    assert json.loads(capsys.readouterr().out) == scores


def test_leaving_one_round_out(tmp_path, capsys):
    (one, truth_one), (two, truth_two) = (labelled_run(tmp_path, name, 24) for name in ("a", "bb"))
    arguments = ("--truth", truth_one, "--truth", truth_two, "--json", "--leave-one-out", "round")
    assert run("evaluate", one, two, *arguments) == 0
    scores = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert list(scores["groups"]) == ["without round a", "without round bb"]
    assert scores["models"] == 48 and scores["roc_auc"] > 0.8
    assert {row["model"].split("/")[0] for row in scores["contributions"]} == {"a", "bb"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--split", "60,50"), "add up to 100"),
        (("--split", "model_name"), "expected one of train, test, holdout"),
        (("--leave-one-out", "colour"), "no column 'colour'"),
        (("--leave-one-out", "round"), "there is only 'one'"),
        (("--leave-one-out", "model_name", "--truth", "x"), "--truth once, or once for each"),
        (("--leaderboard", "{tmp}/one.csv"), "no leaderboard summary"),
        (("--out", "{tmp}/one.csv/out"), "cannot write in"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path, capsys, options, message):
    folder, truth = labelled_run(tmp_path, "one", 24)
    words = [word.format(tmp=tmp_path) for word in options]
    assert run("evaluate", folder, "--truth", truth, *words) == 4
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err and captured.err.count("\n") == 1


def test_stated_answers_are_left_out_of_what_is_judged_anew(tmp_path, capsys):
    folder, truth = labelled_run(tmp_path, "one", 24)
    table = table_of(tmp_path / "table.csv", {f"id-{n:08d}": n % 2 for n in range(24)})
    for truths in ((truth,), (truth, truth)):
        labels = [word for path in truths for word in ("--truth", path)]
        words = ("evaluate", folder, table, *labels, "--cross-validate", "--json")
        assert run(*words) == 0
        said = capsys.readouterr()
        assert json.loads(said.out)["models"] == 24
        assert f"{table} holds answers and no evidence: its 24 models are left out" in said.err
    assert run("evaluate", table, "--truth", truth, "--leave-one-out", "round") == 4
    assert "no model has evidence to fit on" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--cross-validate", "--split=60,40"])
def test_evidence_of_another_version_is_not_judged_anew(tmp_path, option, capsys):
    folder, truth = labelled_run(tmp_path, "one", 24)
    settings = folder / "settings.json"
    values = json.loads(settings.read_text())
    settings.write_text("{}")
    assert run("evaluate", folder, "--truth", truth, option) == 0
    assert f"{folder}: nothing says by which version" in capsys.readouterr().err
    settings.write_text(json.dumps(values | {"evidence_schema": 1}))
    assert run("evaluate", folder, "--truth", truth, option) == 4
    assert f"{folder}: the run holds image evidence of version 1" in capsys.readouterr().err
    assert run("evaluate", folder, "--truth", truth) == 0  # what was said stays what was said


def copied_run(folder, files: int, copies: int):
    """A run of files whose evidence is noise, some times each, with a hair of difference."""
    random = np.random.default_rng(3)
    fields = IMAGES.stage_fields["weights"]
    base = [{field: float(random.normal()) for field in fields} for _ in range(files)]
    lines = ["model_name,poisoned,part"]
    with RunStore(folder / "run", {"made": "up"}) as store:
        for number in range(files * copies):
            file = number % files
            evidence = {name: value + 1e-6 * number for name, value in base[file].items()}
            sha256, name = f"{file:064x}", f"id-{number:08d}"
            store.append(
                Record(name, sha256, 0.5, False, None, (), "ok", "evidence only", {}, evidence)
            )
            lines.append(f"{name},{file % 2},{('train', 'test')[number // files % 2]}")
    (folder / "truth.csv").write_text("\n".join(lines))
    return folder / "run", folder / "truth.csv"


@pytest.mark.parametrize("option", ["--cross-validate", "--split=60,40", "--split=part"])
def test_no_fit_has_met_a_copy_of_what_it_judges(tmp_path, option, capsys):
    """The evidence is noise: only a fit that has met a file could tell its label."""
    folder, truth = copied_run(tmp_path, files=40, copies=3)
    expected = 4 if option == "--split=part" else 0  # every file is in both parts: none is left
    assert run("evaluate", folder, "--truth", truth, option, "--json") == expected
    said = capsys.readouterr()
    assert "80 models are copies of others (one sha256): a fit counts each file once" in said.err
    if expected:
        assert "0 poisoned and 0 clean models with evidence" in said.err
        return
    scores = json.loads(said.out)
    assert scores["roc_auc"] < 0.75 and scores["log_score"] > 0.6
    groups = scores["groups"].values()
    assert all(group["models"] % 3 == 0 for group in groups)


def test_a_file_of_two_labels_is_not_judged_anew(tmp_path, capsys):
    folder, truth = copied_run(tmp_path, files=20, copies=2)
    lines = truth.read_text().splitlines()
    truth.write_text("\n".join([*lines[:-1], lines[-1].replace(",1,", ",0,")]))
    assert run("evaluate", folder, "--truth", truth, "--cross-validate") == 4
    assert "are one file (sha256 000000000000) with two labels" in capsys.readouterr().err


def test_models_that_lack_a_stage_are_told_before_they_are_judged_anew(tmp_path, capsys):
    with RunStore(tmp_path / "run", {"made": "up"}) as store:
        random, lines = np.random.default_rng(0), ["model_name,poisoned"]
        for number in range(48):
            stages = ("weights", "statistics") if number >= 8 else ("weights",)
            fields = [name for stage in stages for name in IMAGES.judged_fields[stage]]
            evidence = {name: random.normal() + number % 2 for name in fields}
            record = Record(
                f"id-{number}", f"{number:064x}", 0.5, False, None, (), "ok", "", {}, evidence
            )
            store.append(record)
            lines.append(f"id-{number},{number % 2}")
    (tmp_path / "truth.csv").write_text("\n".join(lines))
    words = ("evaluate", tmp_path / "run", "--truth", tmp_path / "truth.csv")
    assert run(*words, "--cross-validate") == 0
    said = "8 models lack the fields of stage statistics and are judged by the stages up to weights"
    assert said in capsys.readouterr().err
    words = ("calibrate", *words[1:], "--out", tmp_path / "c.json")
    assert run(*words) == 0
    assert said in capsys.readouterr().err
