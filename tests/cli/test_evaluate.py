"""`evaluate` and `compare` end to end on run folders, result files and tables."""

import csv
import json
import math

import numpy as np
import pytest

from jaxtroj.cli.main import main
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.record import Record
from jaxtroj.store import RunStore


def run(*arguments) -> int:
    return main([str(word) for word in arguments])


def failed(name: str) -> Record:
    return Record(name, "", 0.5, False, None, (), "failed", "empty file")


@pytest.fixture
def small(tmp_path):
    with RunStore(tmp_path / "run", {"made": "up"}) as store:
        for number in range(3):
            store.append(failed(f"id-{number:08d}"))
    truth = tmp_path / "METADATA.csv"
    truth.write_text(
        "model_name,poisoned,kind\nid-00000000,False,a\nid-00000001,True,b\nid-9,True,c\n"
    )
    return tmp_path


def test_evaluate_a_run(small, capsys):
    arguments = ("evaluate", small / "run", "--truth", small / "METADATA.csv")
    assert run(*arguments, "--by", "kind") == 0
    captured = capsys.readouterr()
    assert "all: 3 models, 2 poisoned, 1 not predicted" in captured.out
    assert "kind b: 1 models" in captured.out and "success: no" in captured.out
    assert "1 models of the run have no label" in captured.err
    assert "1 labelled models have no prediction and count as 0.5" in captured.err
    assert run(*arguments, "--json", "--predicted-only") == 0
    scores = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (scores["models"], scores["accuracy"], scores["unlabelled"]) == (2, 0.5, 1)
    assert run(*arguments, "--by", "colour") == 4


def test_models_without_an_answer_are_counted_and_in_no_reliability(small, capsys):
    truth, table = small / "METADATA.csv", small / "table.csv"
    with RunStore(small / "run", {"made": "up"}) as store:
        store.append(Record("id-9", "", 0.9, True, 3, (), "ok", "because"))
    assert run("evaluate", small / "run", "--truth", truth, "--by", "kind") == 0
    said = capsys.readouterr().out
    assert "all: 3 models, 2 poisoned, 2 without an answer (base rate)  log score" in said
    assert "kind b: 1 models, 1 poisoned, 1 without an answer (base rate)" in said
    assert "kind c: 1 models, 1 poisoned  log score" in said
    rows = said.partition("reliability, by stated probability")[2].splitlines()
    assert rows[0] == " (2 models without an answer left out):" and "  1 models" in rows[1]
    assert rows[2] == "models that cost most:"
    assert run("evaluate", small / "run", "--truth", truth, "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["at_base_rate"] == 2 and len(scores["reliability"]) == 1
    table.write_text("id-00000000,0.1\nid-9,0.9\n")
    compared = ("compare", small / "run", table, "--truth", truth, "--resamples", 50)
    assert run(*compared) == 0
    said = capsys.readouterr().out
    assert "3 models, 2 poisoned, without an answer (base rate) 2 of A, 0 of B; A minus" in said
    assert run(*compared, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["a_at_base_rate"], found["b_at_base_rate"]) == (2, 0)


def test_gathered_evidence_is_no_answer_until_it_is_judged(tmp_path, capsys):
    folder, truth = labelled_run(tmp_path, "one", reason="evidence only")
    for options, without in (((), 48), (("--cross-validate",), 0)):
        assert run("evaluate", folder, "--truth", truth, "--json", *options) == 0
        scores = json.loads(capsys.readouterr().out)
        assert scores["at_base_rate"] == without and (scores["reliability"] == []) == (without > 0)


def test_missing_predictions_count_as_one_half(small, capsys):
    (small / "results").mkdir()
    (small / "results" / "id-00000001.txt").write_text("0.9")
    arguments = ("--truth", small / "METADATA.csv", "--json")
    assert run("evaluate", small / "results", *arguments) == 0
    scores = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (scores["models"], scores["missing"], scores["not_predicted"]) == (3, 2, 2)
    assert scores["log_score"] == pytest.approx((2 * math.log(2) - math.log(0.9)) / 3)
    worst = scores["contributions"]
    assert [row["model"] for row in worst] == ["id-00000000", "id-9", "id-00000001"]
    assert worst[0]["probability"] is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[" * 200_000, "not a JSON record"),
        ('"probability": 2.0', "probability is 2.0, expected a number in [0, 1]"),
        ('"probability": NaN', "holds NaN, expected finite numbers"),
        ('"probability": 0.5, "probability": 0.9', "the name 'probability' stands twice"),
    ],
    ids=["nested", "2.0", "NaN", "twice"],
)
def test_every_command_refuses_a_line_that_no_scan_writes(small, capsys, line, message):
    records = small / "run" / "records.jsonl"
    first, *rest = records.read_text().splitlines()
    bad = first.replace('"probability": 0.5', line) if line.startswith('"') else line
    records.write_text("\n".join([first, bad, *rest]) + "\n")
    for command in (
        ("evaluate", small / "run", "--truth", small / "METADATA.csv"),
        ("report", small / "run"),
        ("calibrate", small / "run", "--truth", small / "METADATA.csv", "--out", small / "c.json"),
    ):
        assert run(*command) == 4
        said = capsys.readouterr().err
        assert "records.jsonl, line 2: " in said and message in said and said.count("\n") == 1


def test_blank_and_nan_predictions_are_said_like_other_odd_ones(small, capsys):
    table, truth = small / "table.csv", small / "METADATA.csv"
    table.write_text("model,probability\nid-00000000,\nid-00000001,nan\nid-9,inf\nother,nan\n")
    assert run("evaluate", table, "--truth", truth) == 0
    captured = capsys.readouterr()
    assert "3 models, 2 poisoned, 2 not predicted" in captured.out
    assert "1 odd predictions; the first: id-9: inf is outside" in captured.err
    said = "2 predictions are blank or NaN and count as 0.5; the first: id-00000000"
    assert f"jaxtroj: {table}: {said}\n" in captured.err
    assert run("compare", table, small / "run", "--truth", truth, "--resamples", 50) == 0
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cells", "right", "of"),
    [("3,None", 1, 1), ("1,3", 1, 1), ("1,2", 0, 1), ("None,", 0, 0), (f"{'9' * 5000},", 0, 0)],
)
def test_target_of_either_trigger_is_right(tmp_path, capsys, cells, right, of):
    with RunStore(tmp_path / "run", {"made": "up"}) as store:
        store.append(Record("a", "", 0.9, True, 3, (), "ok", ""))
    truth = tmp_path / "truth.csv"
    columns = "model_name,poisoned,triggers_0_target_class,triggers_1_target_class"
    truth.write_text(f"{columns}\na,True,{cells}\n")
    assert run("evaluate", tmp_path / "run", "--truth", truth, "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    assert (scores["target_class_right"], scores["target_class_of"]) == (right, of)


def labelled_run(folder, name: str, count: int = 48, shift: float = 2.0, reason: str = ""):
    """A run with made-up evidence of the weights stage and two architectures, and its truth.

    With a reason of `evidence only` no model is called poisoned.
    """
    random = np.random.default_rng(len(name))
    lines = ["model_name,poisoned,part"]
    with RunStore(folder / name, {"made": "up"}) as store:
        for number in range(count):
            poisoned = bool(number % 2)
            fields = IMAGES.stage_fields["weights"]
            evidence = {field: random.normal() + shift * poisoned for field in fields}
            model, architecture = f"id-{number:08d}", ("resnet50", "densenet121")[number // 2 % 2]
            said = 0.7 if poisoned else 0.3
            lines.append(f"{model},{poisoned},{('train', 'test')[number >= count // 2]}")
            store.append(
                Record(
                    model,
                    "",
                    said,
                    poisoned and not reason,
                    None,
                    (),
                    "ok",
                    reason,
                    {},
                    evidence,
                    architecture,
                )
            )
    truth = folder / f"{name}.csv"
    truth.write_text("\n".join(lines))
    return folder / name, truth


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


def test_answers_without_evidence_cannot_be_judged_anew(small, capsys):
    arguments = ("evaluate", small / "run", "--truth", small / "METADATA.csv")
    assert run(*arguments, "--cross-validate") == 4
    assert "no model has evidence to fit on" in capsys.readouterr().err


def test_files_of_an_evaluation(tmp_path, capsys):
    folder, truth = labelled_run(tmp_path, "one", 24)
    out = tmp_path / "out"
    assert run("evaluate", folder, "--truth", truth, "--out", out, "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    assert json.loads((out / "scores.json").read_text()) == scores
    tables = {
        path.stem: list(csv.DictReader(path.read_text().splitlines())) for path in out.glob("*.csv")
    }
    assert {name: len(rows) for name, rows in tables.items()} == {
        "models": 24,
        "confusion": 101,
        "roc": 3,
        "sweep": 990,
    }
    assert list(tables["confusion"][0]) == ["TP", "FP", "FN", "TN", "TPR", "FPR", "Thresholds"]
    assert tables["confusion"][0]["FP"] == "12" and tables["confusion"][50]["TP"] == "12"
    assert float(tables["models"][0]["log_score"]) == scores["contributions"][0]["log_score"]
    for name in ("sweep", "roc"):
        assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"</svg>" in (out / f"{name}.svg").read_bytes()
    first = (out / "sweep.svg").read_bytes()
    from_files = ("evaluate", out / "results", "--truth", truth, "--json", "--out")
    assert run(*from_files, out) == 4
    assert "results, which the command reads; name another place" in capsys.readouterr().err
    assert run(*from_files, tmp_path / "again") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["log_score"] == scores["log_score"]
    assert (tmp_path / "again" / "sweep.svg").read_bytes() == first
    truth.write_text("".join(truth.read_text().splitlines(True)[:2]))  # one model, one kind
    assert run(*from_files, tmp_path / "again") == 0
    assert not list((tmp_path / "again").glob("*.svg")), "those of other models"


def test_place_on_an_official_leaderboard(tmp_path, shared_data, capsys):
    folder, truth = labelled_run(tmp_path, "one", 24)
    board = shared_data / "trojai" / "leaderboards" / "round0-leaderboard-summary.csv"
    assert run("evaluate", folder, "--truth", truth, "--leaderboard", board, "--json") == 0
    place = json.loads(capsys.readouterr().out)["leaderboard"]
    assert place["best"]["team"] == "Cassandra" and round(place["best"]["log_score"], 2) == 0.16
    lines = board.read_text().splitlines()[1:]
    better = sum(float(line.split(",")[2]) < -math.log(0.7) for line in lines)
    assert place["submissions"] == len(lines) and place["by_log_score"] == better + 1


def test_the_name_of_a_team_moves_no_cursor(tmp_path, capsys):
    folder, truth = labelled_run(tmp_path, "one", 24)
    board = tmp_path / "board.csv"
    board.write_text("Team,CrossEntropyLoss,ROC-AUC\na\x1b[2Kb,0.1,0.9\n")
    assert run("evaluate", folder, "--truth", truth, "--leaderboard", board) == 0
    said = capsys.readouterr().out
    assert r"a\x1b[2Kb" in said and "\x1b" not in said


def test_compare_two_detectors(tmp_path, capsys):
    folder, truth = labelled_run(tmp_path, "one", 24)
    table = tmp_path / "other.csv"
    table.write_text("".join(f"id-{n:08d},{0.9 if n % 2 else 0.1}\n" for n in range(20)))
    arguments = ("compare", folder, table, "--truth", truth, "--resamples", 200)
    assert run(*arguments) == 0
    captured = capsys.readouterr()
    assert "24 models" in captured.out and "B is better" in captured.out
    assert "4 labelled models have no prediction" in captured.err
    assert run(*arguments, "--json", "--predicted-only") == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["models"] == 20
    assert found["log_score"]["difference"] == pytest.approx(math.log(0.9) - math.log(0.7))
    table.write_text("id-00000000,0.1\n")
    assert run(*arguments, "--predicted-only") == 0
    said = capsys.readouterr().out
    assert "too few models to tell" in said and "is better:" in said and "B is better" not in said
    assert run(*arguments, "--truth", truth) == 4
    assert "one --truth" in capsys.readouterr().err
    assert run(*arguments, "--seed", -1) == 4
    assert "--seed: expected a whole number from 0" in capsys.readouterr().err
