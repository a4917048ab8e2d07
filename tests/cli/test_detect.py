import contextlib
import json
import os
import subprocess
import sys

import pytest

from jaxtroj.cli.main import main


def run(*arguments) -> int:
    return main([str(word) for word in arguments])


@pytest.fixture
def garbage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "model.pt"
    path.write_bytes(b"\x07garbage" * 50)
    return path


def test_json_is_one_strict_object_per_model(garbage, capsys):
    (garbage.parent / "empty.pt").write_bytes(b"")
    (garbage.parent / "folder").mkdir()
    models = [garbage, "empty.pt", "missing.pt", "folder", "new\nline.pt"]
    assert run("detect", *models, "--json", "--base-rate", "0.2") == 2
    lines = capsys.readouterr().out.splitlines()
    objects = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert len(objects) == 5
    for found in objects:
        assert (found["status"], found["probability"], found["poisoned"]) == ("failed", 0.2, False)
        assert found["reason"] and found["target_class"] is None and found["evidence"] == {}


def test_progress_goes_to_stderr_and_results_to_stdout(garbage, capsys):
    assert run("detect", garbage) == 2
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{garbage}  failed ") and captured.out.count("\n") == 1
    assert "read" in captured.err


def test_names_that_the_terminal_cannot_show_are_escaped(garbage):
    names = [b"m\xff.pt", "\u00e9.pt".encode(), b"new\nline.pt"]
    command = [sys.executable, "-m", "jaxtroj", "detect", *names]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, capture_output=True, env=environment)
    assert result.returncode == 2
    starts = [line.split(b"  ")[0] for line in result.stdout.splitlines()]
    assert starts == [b"m\\xff.pt", b"\\xe9.pt", b"new\\nline.pt"]


def test_on_a_terminal_what_stands_behind_a_verdict_has_lines_of_its_own(garbage):
    # A word that is longer than a line stays whole, so a path is given that is short anywhere.
    command = [sys.executable, "-m", "jaxtroj", "detect", garbage.name]
    lines = _on_terminal(command, {**os.environ, "COLUMNS": "80"})
    assert lines[0].startswith(f"{garbage.name}  failed ")
    assert len(lines) > 1 and all(line.startswith("  ") for line in lines[1:])
    assert max(map(len, lines[1:])) <= 80
    piped = subprocess.run(command, capture_output=True, text=True).stdout
    assert piped.count("\n") == 1 and piped.split() == " ".join(lines).split()


def _on_terminal(command, environment) -> list[str]:
    """Lines that a command writes to stdout where this is a terminal."""
    pty = pytest.importorskip("pty")
    ours, its = pty.openpty()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=its, stderr=subprocess.DEVNULL, env=environment
    ):
        os.close(its)
        written = b""
        # Linux ends a terminal whose last writer has gone by an error.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 4096):
                written += part
    os.close(ours)
    return written.decode().splitlines()


NIST_EXTRA = ("--scratch_dirpath", "s", "--round_training_dataset_dirpath", "r")


@pytest.mark.parametrize(
    ("arguments", "status", "written"),
    [
        (("--model_filepath", "model.pt", *NIST_EXTRA), 2, 0.5),
        (("--model_filepath", "none/model.pt", "--examples_dirpath", "none"), 2, 0.5),
        (("--model_filepath=model.pt", "--base-rate=0.25"), 2, 0.25),
        (("--model_filepath", "model.pt", "--no-such-flag"), 4, 0.5),
        (("--threshold", "7"), 4, 0.5),
        (("model.pt", "other.pt"), 4, 0.5),
    ],
)
def test_nist_result_file_is_written_whatever_happens(garbage, arguments, status, written):
    result = garbage.parent / "results" / "id-00000001.txt"
    assert run("detect", *arguments, "--result_filepath", result) == status
    assert float(result.read_text().strip()) == written
    assert [path.name for path in result.parent.iterdir()] == ["id-00000001.txt"]


def test_nist_result_is_there_even_when_the_process_is_killed(garbage):
    """The base rate is on disk before the process first says what it does."""
    result = garbage.parent / "result.txt"
    command = [sys.executable, "-m", "jaxtroj", "detect", "--model_filepath", "model.pt"]
    command += ["--result_filepath", str(result)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None and process.stderr.read(1)
        process.kill()
    assert float(result.read_text()) == 0.5


def test_an_unwritable_result_file_is_one_line(garbage, capsys):
    assert run("detect", garbage, "--result_filepath", garbage / "result.txt") == 4
    assert "cannot write the result file" in capsys.readouterr().err


def test_a_folder_of_many_models_points_to_scan(garbage, capsys):
    for name in ("id-00000000", "id-00000001"):
        (garbage.parent / "round" / name).mkdir(parents=True)
        (garbage.parent / "round" / name / "model.pt").write_bytes(b"")
    assert run("detect", garbage.parent / "round") == 4
    assert "jaxtroj scan" in capsys.readouterr().err
