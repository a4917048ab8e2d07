import json
import signal
import subprocess
import sys

import pytest

from jaxtroj.cli.main import main
from jaxtroj.store import read_records


def run(*arguments) -> int:
    return main([str(word) for word in arguments])


@pytest.fixture
def dataset(tmp_path):
    for number in range(3):
        home = tmp_path / "round" / f"id-{number:08d}"
        (home / "example_data").mkdir(parents=True)
        (home / "model.pt").write_bytes(b"garbage" * number)
        (home / "ground_truth.csv").write_text(str(number % 2))
    return tmp_path / "round"


def test_scan_records_every_model_and_goes_on_where_it_stopped(dataset, tmp_path, capsys):
    arguments = ("scan", dataset, "--out", tmp_path / "run", "--evidence-only")
    assert run(*arguments, "--limit", 2) == 2
    first = capsys.readouterr()
    assert first.out.count("\n") == 2
    assert run(*arguments, "--json", "--truth") == 2
    captured = capsys.readouterr()
    objects = [json.loads(line) for line in captured.out.splitlines()[:3]]
    assert [found["model"] for found in objects] == [f"id-{n:08d}" for n in range(3)]
    assert "2 records" in captured.err and "3 failed" in captured.err
    assert "3 models, 1 poisoned  log score 0.6931" in captured.out


def test_other_settings_and_foreign_folders_are_refused(dataset, tmp_path, capsys):
    arguments = ("scan", dataset, "--out", tmp_path / "run", "--evidence-only")
    run(*arguments)
    assert run(*arguments, "--seed", 1) == 4
    assert "seed was 0, now 1" in capsys.readouterr().err
    assert run(*arguments, "--seed", 1, "--restart") == 2
    assert run("scan", dataset, "--out", dataset, "--evidence-only") == 4


def test_a_folder_without_models_has_nothing_to_scan(tmp_path, capsys):
    (tmp_path / "nothing").mkdir()
    assert run("scan", tmp_path / "nothing", "--out", tmp_path / "run") == 3
    assert "no model in" in capsys.readouterr().err


def test_a_missing_calibrator_stops_a_scan_before_it_starts(dataset, tmp_path, capsys):
    arguments = ("scan", dataset, "--out", tmp_path / "run", "--calibrator", tmp_path / "none.json")
    assert run(*arguments) == 4
    assert "none.json" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_ctrl_c_keeps_finished_records_and_exits_with_130(tmp_path):
    for number in range(3000):
        (tmp_path / "round").mkdir(exist_ok=True)
        (tmp_path / "round" / f"{number:04d}.pt").write_bytes(b"garbage")
    command = [sys.executable, "-m", "jaxtroj", "scan", str(tmp_path / "round"), "--evidence-only"]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=60)
    assert process.returncode == 130
    assert messages.endswith("jaxtroj: interrupted; finished records are kept\n")
    assert 3 <= len(read_records(tmp_path / "run")) < 3000
