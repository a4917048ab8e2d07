"""`jaxtroj report` end to end: where it writes, what it says, what it refuses."""

import json
import subprocess
import sys

import pytest

from jaxtroj.cli.main import main
from jaxtroj.record import Record
from jaxtroj.store import RunStore


def run(*arguments) -> int:
    return main([str(word) for word in arguments])


@pytest.fixture
def small(tmp_path):
    with RunStore(tmp_path / "run", {"made": "up"}) as store:
        for number, probability in enumerate((0.9, 0.2, 0.7)):
            poisoned = probability > 0.5
            store.append(
                Record(f"id-{number}", "", probability, poisoned, None, (), "ok", "because")
            )
        store.append(Record("id-3", "", 0.5, False, None, (), "failed", "empty file"))
    truth = tmp_path / "truth.csv"
    truth.write_text("model_name,poisoned,kind\nid-0,True,a\nid-1,False,b\nid-9,True,a\n")
    return tmp_path


def test_the_page_goes_beside_the_records(small, capsys):
    assert run("report", small / "run") == 0
    captured = capsys.readouterr()
    assert captured.out == "" and "the report is" in captured.err
    assert (small / "run" / "report.html").read_text().startswith("<!doctype html>")
    assert run("report", small / "run", "--out", "-") == 0
    assert capsys.readouterr().out == (small / "run" / "report.html").read_text()


@pytest.mark.parametrize("form", ["json", "csv", "sarif", "markdown", "cyclonedx"])
def test_other_formats_go_to_stdout_or_a_file(small, capsys, form):
    assert run("report", small / "run", "--format", form) == 0
    shown = capsys.readouterr().out
    assert "id-0" in shown
    assert run("report", small / "run", "--format", form, "--out", small / "new" / "file") == 0
    assert (small / "new" / "file").read_text() == shown


def test_truth_adds_scores_and_says_what_fell_out(small, capsys):
    arguments = ("report", small / "run", "--truth", small / "truth.csv", "--format", "json")
    assert run(*arguments, "--by", "kind", "--plots", small / "plots") == 0
    captured = capsys.readouterr()
    scores = json.loads(captured.out)["scores"]
    assert scores["all"]["models"] == 3 and {"kind a", "kind b"} < scores.keys()
    assert "1 labelled models have no prediction and count as 0.5" in captured.err
    assert "2 models of the run have no label" in captured.err
    assert (small / "plots" / "roc.svg").is_file() and (small / "plots" / "sweep.png").is_file()
    assert run(*arguments, "--predicted-only") == 0
    assert json.loads(capsys.readouterr().out)["scores"]["all"]["models"] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--by", "kind"), "need --truth"),
        (("--predicted-only",), "need --truth"),
        (("--format", "pdf"), "invalid choice: 'pdf'"),
        (("--truth", "absent"), "absent"),
    ],
)
def test_usage_errors(small, capsys, options, said):
    assert run("report", small / "run", *options) == 4
    assert said in capsys.readouterr().err


def test_what_is_no_run_folder_or_cannot_be_written(small, capsys):
    assert run("report", small) == 4
    assert "is not a run folder" in capsys.readouterr().err
    (small / "file").write_text("")
    assert run("report", small / "run", "--out", small / "file" / "page.html") == 4
    assert "cannot write" in capsys.readouterr().err
    assert run("report", small / "run", "--plots", small / "file") == 4
    assert "cannot write" in capsys.readouterr().err


def test_it_loads_no_network_library(small):
    script = (
        "import sys; from jaxtroj.cli.main import main;"
        f" main(['report', {str(small / 'run')!r}]);"
        " sys.exit(any(name in sys.modules for name in ('torch', 'jax', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == 0


def test_results_of_backgrounds_stand_in_the_page_beside_the_published_rows(small, capsys):
    result = {"schema": 1, "kind": "in9", "model": "<b>mine</b>", "sha256": "ab", "bg_gap": 0.1}
    result |= {"variants": {"original": {"accuracy": 0.913}}, "comparable": True}
    result |= {"reservations": []}
    (small / "r.json").write_text(json.dumps(result))
    assert run("report", small / "run", "--backgrounds", small / "r.json", "--out", "-") == 0
    page = capsys.readouterr().out
    assert "&lt;b&gt;mine" in page and "91.3" in page and "ResNet-50 (IN-9L)" in page
    assert run("report", small / "run", "--out", "-") == 0
    assert "ResNet-50 (IN-9L)" not in capsys.readouterr().out


def test_another_run_lies_beside(small, capsys):
    with RunStore(small / "other", {}) as store:
        store.append(Record("id-0", "", 0.2, False, None, (), "ok", "because"))
        store.append(Record("id-7", "", 0.2, False, None, (), "ok", "because"))
    assert run("report", small / "run", "--beside", small / "other", "--out", "-") == 0
    page = capsys.readouterr().out
    assert "1 models are in both runs, 1 of them with another verdict" in page and "id-7" in page
    assert run("report", small / "run", "--beside", small / "none") == 4
    assert "is not a run folder" in capsys.readouterr().err
    assert run("report", small / "run", "--beside", small / "other", "--format", "csv") == 4
    assert "--beside needs --format html" in capsys.readouterr().err


def test_backgrounds_in_another_format_are_refused(small, capsys):
    words = ("--backgrounds", small / "r.json", "--format", "csv")
    assert run("report", small / "run", *words) == 4
    assert "needs --format html" in capsys.readouterr().err
