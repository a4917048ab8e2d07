"""Predictions from result files, tables and run folders; hostile ones are one clear message."""

import math
import os

import pytest

from jaxtroj.errors import DatasetError, UsageError
from jaxtroj.leaderboard.predictions import read_predictions
from jaxtroj.leaderboard.result_files import NAMES_FILE, write_results


def test_result_files_are_read_as_the_harness_reads_them(tmp_path):
    contents = {
        "id-00000000": "0.25",
        "id-00000001": "1.0\n",
        "id-00000002": " 7e-1 \nsecond line is not read",
        "id-00000003": "",
        "id-00000004": "nan",
        "id-00000005": "[0.5]",
        "id-00000006": "1.5",
        "id-00000007": "-inf",
    }
    for name, text in contents.items():
        (tmp_path / f"{name}.txt").write_text(text)
    (tmp_path / "log.json").write_text("{}")
    found = read_predictions(tmp_path)
    said = [found.probabilities[name] for name in contents]
    assert said[:3] == [0.25, 1.0, 0.7]
    assert all(math.isnan(value) for value in said[3:6])
    assert said[6:] == [1.0, 0.0]
    assert [text.partition(":")[0] for text in found.problems] == [
        "id-00000005",
        "id-00000006",
        "id-00000007",
    ]


def test_blank_predictions_are_named_once(tmp_path):
    for name, text in {"a": "", "b": "nan", "c": " -NaN\n", "d": "0.5", "e": "x"}.items():
        (tmp_path / f"{name}.txt").write_text(text)
    assert read_predictions(tmp_path).blank == ("a", "b", "c")
    table = tmp_path / "table.csv"
    table.write_text("model,prediction\na,null\nb,0.5\na,None\nc,0\nd,inf\n")
    found = read_predictions(table)
    assert found.blank == ("a",) and len(found.problems) == 1


def test_hostile_result_files_are_missing_predictions_with_a_reason(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xff\xfe0.5")
    (tmp_path / "b.txt").write_bytes(b"0.5\0")
    (tmp_path / "c.txt").write_bytes(b"9" * 10_000)
    (tmp_path / "d.txt").mkdir()
    os.mkfifo(tmp_path / "e.txt")
    (tmp_path / "f.txt").symlink_to(tmp_path / "f.txt")
    (tmp_path / os.fsdecode(b"g\n\xff.txt")).write_text("0.5")
    found = read_predictions(tmp_path)
    assert found.probabilities["g\\n\\xff"] == 0.5
    assert all(math.isnan(found.probabilities[name]) for name in "abcdef")
    assert len(found.problems) == 6


def test_results_written_are_read_back_and_missing_ones_have_no_file(tmp_path):
    said = {"id-00000000": 0.1, "id-00000001": 1 / 3, "id-00000002": math.nan}
    write_results(tmp_path / "results", [("id-00000002", 0.9)])  # of an earlier evaluation
    write_results(tmp_path / "results", said.items())
    found = read_predictions(tmp_path / "results")
    assert found.probabilities == {"id-00000000": 0.1, "id-00000001": 1 / 3}
    assert float((tmp_path / "results" / "id-00000001.txt").read_text()) == 1 / 3


@pytest.mark.parametrize("name", ["../up", "..", "a/b", "a b", "=1+1", "@x", "x" * 300, r"C:\\x"])
def test_names_that_are_no_file_names_are_read_back(tmp_path, name):
    write_results(tmp_path / "results", [(name, 0.25), ("id-1", 0.5)])
    assert read_predictions(tmp_path / "results").probabilities == {name: 0.25, "id-1": 0.5}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"]


def test_files_of_an_earlier_evaluation_go_and_those_of_others_stay(tmp_path):
    results = tmp_path / "results"
    write_results(results, [("id-1", 0.1), ("a b", 0.2)])
    (results / "notes.md").write_text("kept")
    write_results(results, [("id-2", 0.3)])
    assert read_predictions(results).probabilities == {"id-2": 0.3}
    assert {path.name for path in results.iterdir()} == {"id-2.txt", "notes.md", NAMES_FILE}
    (results / "other.txt").write_text("0.7")
    with pytest.raises(UsageError, match="holds 1 result files .* the first: 'other.txt'"):
        write_results(results, [("id-3", 0.3)])
    assert not (results / "id-3.txt").exists() and (results / "id-2.txt").exists()
    write_results(results, [("id-3", 0.3), ("other", 0.4)])
    assert read_predictions(results).probabilities == {"id-3": 0.3, "other": 0.4}


@pytest.mark.parametrize(
    "table", ['{"id-1.txt": "id-2"}', '{"../x.txt": "../x"}', '{"id-1.txt": 3}', "[]", "{"]
)
def test_a_table_of_names_that_evaluate_does_not_write_is_refused(tmp_path, table):
    (tmp_path / "id-1.txt").write_text("0.5")
    (tmp_path / NAMES_FILE).write_text(table)
    with pytest.raises(DatasetError, match=NAMES_FILE):
        read_predictions(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        "model_name,probability\na,0.25\nb,\n",
        "id , Predicted ,team\na,0.25,x\nb,None,x\n",
        "a,0.25\nb,nan\n",
        "\ufeffmodel,prediction\r\n\r\na,0.25\r\nb,\r\nb,\r\n",
    ],
)
def test_tables_of_another_team(tmp_path, text):
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode())
    found = read_predictions(path).probabilities
    assert found["a"] == 0.25 and math.isnan(found["b"]) and len(found) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"model_name,probability\n", "only a header"),
        (b"model_name,colour\na,red\n", "no table of predictions"),
        (
            b"model_name,probability,predicted\na,1,1\n",
            "several columns of probabilities",
        ),
        (b"model_name,probability\na,0.1\na,0.2\n", "several predictions for 'a'"),
        (b"model_name,x,probability\na,0.1\n", "line 2: 2 cells"),
        (b"model_name,probability\na,0.1\nb,1,0.2\n", "line 3: 3 cells, expected 2 as in"),
        (b"model_name,probability,note\na,0.1\n", "line 2: 2 cells, expected 3"),
        (b"a,0.1\nb,0.2,0.9\n", "line 2: 3 cells, expected 2"),
        (b"model_name,probability,probability\na,0.1,0.9\n", "two columns of one name"),
        (b"model_name,model,probability\na,b,0.1\nb,a,0.9\n", "'a' in column model_name and 'b'"),
        ("a,０.５\n".encode(), "no table of predictions"),
        (b'model_name,probability\n"a,0.1\n', "not a CSV table"),
        (b"model_name,probability\na,\xff\n", "not UTF-8"),
        (b"model_name,probability\na,0\0\n", "NUL bytes"),
        (b"model_name,probability\n" + b"a" * 200_000 + b",0.1\n", "not a CSV table"),
    ],
)
def test_a_file_that_is_no_table_is_one_message(tmp_path, content, message):
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=message) as caught:
        read_predictions(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def test_what_is_not_there_and_a_folder_of_nothing(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        read_predictions(tmp_path / "none")
    with pytest.raises(DatasetError, match="neither a run folder"):
        read_predictions(tmp_path)


@pytest.mark.parametrize(
    "table", ["model_name,probability\na,0.25,,\n", "model_name,probability,\na,0.25\n"]
)
def test_blank_cells_at_the_end_of_a_line_are_nothing(tmp_path, table):
    (tmp_path / "table.csv").write_text(table)
    assert read_predictions(tmp_path / "table.csv").probabilities == {"a": 0.25}


def test_a_table_without_a_header_may_begin_with_a_blank_prediction(tmp_path):
    (tmp_path / "table.csv").write_text("a,\nb,0.7\n")
    found = read_predictions(tmp_path / "table.csv")
    assert found.blank == ("a",) and found.probabilities["b"] == 0.7


@pytest.mark.parametrize(
    "text", ["０.５", "0_5", "0.2_5", "٠.٥", "0x1", "1e", ".", "0,5", "infinit"]
)
def test_only_decimal_ascii_is_a_number(tmp_path, text):
    (tmp_path / "table.csv").write_text(f'model_name,probability\na,"{text}"\n')
    found = read_predictions(tmp_path / "table.csv")
    assert math.isnan(found.probabilities["a"])
    assert len(found.problems) == 1 and "is no number, counts as 0.5" in found.problems[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [(".5", 0.5), ("5.", 1), ("+5e-1", 0.5), (" 1E0 ", 1), ("-inf", 0), ("Infinity", 1)],
)
def test_numbers_that_are_read(tmp_path, text, value):
    (tmp_path / "table.csv").write_text(f"model_name,probability\na,{text}\n")
    assert read_predictions(tmp_path / "table.csv").probabilities == {"a": value}


def test_a_cell_of_digits_that_is_no_number_takes_no_time(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(f"model,prediction\na,{'1' * 131_000}x\n")  # minutes, where digits backtrack
    found = read_predictions(table)
    assert math.isnan(found.probabilities["a"]) and "is no number" in found.problems[0]
