"""`evaluate` and `compare` end to end on run folders, result files and tables."""

import csv
import json
import math

import pytest

from jaxtroj.record import Record
from jaxtroj.store import RunStore
from tests.cli.labelled_runs import labelled_run, run, table_of


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


def test_models_of_an_erratum_are_left_out_with_that_reason(tmp_path, capsys):
    """A run with --include-errata has answers for them; the truth does not."""
    models = tmp_path / "round1-dataset-train" / "models"
    labels = {"id-00000001": 0, "id-00000002": 1, "id-00000184": 1, "id-00000599": 1}
    for name, label in labels.items():
        (models / name).mkdir(parents=True)
        (models / name / "model.pt").write_bytes(b"")
        (models / name / "ground_truth.csv").write_text(str(label))
    lines = [f"{name},0.4" for name in (*labels, "id-00000900")]
    (tmp_path / "said.csv").write_text("\n".join(lines))
    assert run("evaluate", tmp_path / "said.csv", "--truth", models, "--json") == 0
    captured = capsys.readouterr()
    scores = json.loads(captured.out)
    assert [scores[name] for name in ("models", "unlabelled", "errata")] == [2, 1, 2]
    said = "2 models of the run are left out (erratum by NIST: labelled poisoned, but no trigger"
    assert said in captured.err and "1 models of the run have no label" in captured.err


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
    compared = ("compare", small / "run", table, "--truth", truth, "--resamples", 1000)
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
    assert run("compare", table, small / "run", "--truth", truth, "--resamples", 1000) == 0
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


def test_a_model_that_no_set_of_one_truth_predicts_counts_once(tmp_path, capsys):
    truth = tmp_path / "truth.csv"
    truth.write_text("model,poisoned\na,1\nb,0\nc,1\nd,0\n")
    one = table_of(tmp_path / "one.csv", {"a": 0.9, "b": 0.1})
    two = table_of(tmp_path / "two.csv", {"b": 0.2, "c": 0.8})
    words = ("evaluate", one, two, "--truth", truth)
    assert run(*words, "--json") == 0
    said = capsys.readouterr()
    scores = json.loads(said.out)
    parts = {row["model"]: row["probability"] for row in scores["contributions"]}
    whole = {"one.csv/a": 0.9, "one.csv/b": 0.1, "two.csv/b": 0.2, "two.csv/c": 0.8}
    assert parts == whole | {"d": None}
    assert (scores["missing"], scores["not_predicted"]) == (1, 1)
    assert said.err.count("have no prediction") == 1
    assert f"{truth}: 1 labelled models have no prediction and count as 0.5" in said.err
    assert run(*words, "--by", "round") == 0
    assert "round not predicted: 1 models, 0 poisoned, 1 not" in capsys.readouterr().out
    assert run(*words, "--json", "--predicted-only") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["models"] == 4 and "1 labelled models have no" in said.err
    assert run("evaluate", one, two, "--truth", truth, "--truth", truth, "--json") == 0
    assert json.loads(capsys.readouterr().out)["models"] == 8  # two rounds, each with its truth


def test_two_folders_of_one_name_and_names_that_are_no_file_names(tmp_path, capsys):
    """Results written for odd names are read back as the same models."""
    truth = tmp_path / "truth.csv"
    truth.write_text("model,poisoned\na b,1\n../c,0\n")
    table = table_of(tmp_path / "table.csv", {"a b": 0.9, "../c": 0.2})
    assert run("evaluate", table, "--truth", truth, "--out", tmp_path / "x", "--json") == 0
    scores = json.loads(capsys.readouterr().out)
    assert run("evaluate", tmp_path / "x" / "results", "--truth", truth, "--json") == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["log_score"] == scores["log_score"] and said.err == ""
    table_of(table, {"a b": 0.5})
    assert run("evaluate", table, "--truth", truth, "--out", tmp_path / "y") == 0
    both = (tmp_path / "x" / "results", tmp_path / "y" / "results")
    capsys.readouterr()
    assert run("evaluate", *both, "--truth", truth, "--by", "round", "--json") == 0
    assert list(json.loads(capsys.readouterr().out)["groups"]) == [
        "round x/results",
        "round y/results",
    ]


def test_result_files_of_others_are_no_part_of_an_evaluation(tmp_path, capsys):
    truth = tmp_path / "truth.csv"
    truth.write_text("model,poisoned\na,1\nb,0\n")
    table, out = tmp_path / "table.csv", tmp_path / "out"
    words = ("evaluate", table, "--truth", truth, "--out", out)
    table_of(table, {"a": 0.9, "b": 0.1})
    assert run(*words) == 0
    table_of(table, {"a": 0.9})
    assert run(*words) == 0
    assert [path.name for path in (out / "results").glob("*.txt")] == ["a.txt"]
    (out / "results" / "harness.txt").write_text("0.5")
    before = (out / "scores.json").read_text()
    table_of(table, {"a": 0.7})
    capsys.readouterr()
    assert run(*words) == 4
    assert "holds 1 result files that this evaluation would not" in capsys.readouterr().err
    assert (out / "scores.json").read_text() == before


def test_both_spellings_of_a_backslash_are_one_model(tmp_path, capsys):
    """As it is in a table, doubled in a record; and doubled in a truth made from records."""
    truth, again = tmp_path / "truth.csv", tmp_path / "again.csv"
    truth.write_text("model,poisoned\nC:\\x,1\n")
    again.write_text("model,poisoned\nC:\\\\x,1\n")
    with RunStore(tmp_path / "run", {"made": "up"}) as store:
        store.append(Record("C:\\\\x", "", 0.9, True, 3, (), "ok", "because"))
    raw = table_of(tmp_path / "raw.csv", {"C:\\x": 0.9})
    doubled = table_of(tmp_path / "doubled.csv", {"C:\\\\x": 0.9})
    given = [(raw, truth), (doubled, truth), (tmp_path / "run", truth)]
    given += [(doubled, again), (tmp_path / "run", again)]
    for source, labels in given:
        assert run("evaluate", source, "--truth", labels, "--json") == 0, (source, labels)
        scores = json.loads(capsys.readouterr().out)
        assert (scores["models"], scores["contributions"][0]["probability"]) == (1, 0.9)
    other = table_of(tmp_path / "other.csv", {"D:\\y": 0.9})
    assert run("evaluate", other, "--truth", truth) == 4
    assert r"the run names D:\y, the truth C:\\x; give" in capsys.readouterr().err


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


def test_compare_names_only_models_that_count(tmp_path, capsys):
    truth = tmp_path / "truth.csv"
    truth.write_text("model,poisoned\n" + "".join(f"m{n},{n % 2}\n" for n in range(8)))
    one = table_of(tmp_path / "one.csv", {"m0": 0.1, "m1": 0.9, "m2": 0.2, "m6": ""})
    two = table_of(tmp_path / "two.csv", {"m0": 0.1, "m1": 0.9, "m3": "nan", "m4": 0.3})
    words = ("compare", one, two, "--truth", truth, "--resamples", 1000)
    assert run(*words) == 0
    said = capsys.readouterr()
    assert said.out.startswith("4 models, 1 poisoned")
    assert said.err.splitlines() == [
        f"jaxtroj: {path}: 1 labelled models have no prediction and count as 0.5 (--predicted-only"
        " leaves them out)"
        for path in (one, two)
    ]
    assert run(*words, "--predicted-only") == 0
    said = capsys.readouterr()
    assert said.out.startswith("2 models") and "count as 0.5" not in said.err
    assert said.err.count("1 labelled models have no prediction; left out") == 2


def test_compare_two_detectors(tmp_path, capsys):
    folder, truth = labelled_run(tmp_path, "one", 24)
    table = tmp_path / "other.csv"
    table.write_text("".join(f"id-{n:08d},{0.9 if n % 2 else 0.1}\n" for n in range(20)))
    arguments = ("compare", folder, table, "--truth", truth, "--resamples", 1000)
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
