"""stdout or stderr closed, full, or left by its reader: no traceback, all records, no false 1."""

import subprocess
import sys

import pytest

from jaxtroj.cli.progress import Progress
from jaxtroj.store import read_records

MODELS = 4
FAILED, USAGE, PIPE = 2, 4, 141
REDIRECTIONS = {
    ">&-": FAILED,
    "2>&-": FAILED,
    "<&- >&- 2>&-": FAILED,
    "2>/dev/full": FAILED,
    ">/dev/full": USAGE,
    "| head -n 1": PIPE,
    "| true": PIPE,
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams") / "models"
    folder.mkdir()
    for number in range(MODELS):
        (folder / f"{number}.pt").write_bytes(b"garbage")
    return folder


def shell(command: str, redirection: str) -> subprocess.CompletedProcess:
    line = f"set -o pipefail; {sys.executable} -m jaxtroj {command} {redirection}"
    return subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=120)


def _reader_took_all(found: subprocess.CompletedProcess, redirection: str) -> bool:
    """`head` may read all lines at once before it closes the pipe: then nothing was lost."""
    return redirection == "| head -n 1" and found.returncode == FAILED


@pytest.mark.parametrize("redirection", REDIRECTIONS)
def test_a_scan_keeps_every_record(dataset, tmp_path, redirection):
    run = tmp_path / "run"
    found = shell(f"scan {dataset} --evidence-only --out {run}", redirection)
    assert found.returncode == REDIRECTIONS[redirection] or _reader_took_all(found, redirection)
    assert len(read_records(run)) == MODELS
    assert "Traceback" not in found.stderr
    if found.returncode in (USAGE, PIPE):
        assert "stdout takes no more results" in found.stderr


@pytest.mark.parametrize("redirection", REDIRECTIONS)
def test_detect_says_so_by_its_status(dataset, redirection):
    found = shell(f"detect {dataset / '0.pt'} {dataset / '1.pt'} --evidence-only", redirection)
    assert found.returncode == REDIRECTIONS[redirection] or _reader_took_all(found, redirection)
    assert "Traceback" not in found.stderr
    if found.returncode == USAGE:
        assert "cannot write the results to stdout: No space left on device" in found.stderr


@pytest.mark.parametrize("command", ["--help", "scan --help", "scan --nonsense"])
def test_help_and_usage_errors(command):
    for redirection in (">&-", "2>&-", "<&- >&- 2>&-"):
        found = shell(command, redirection)
        assert found.returncode == (USAGE if "nonsense" in command else 0)
        assert "Traceback" not in found.stderr
    assert shell(command, ">/dev/full").returncode == USAGE


def test_progress_shows_names_as_they_are(capsys):
    with Progress() as progress:
        progress.line("a:skull:.pt [bold]b[/bold]")
    assert capsys.readouterr().err == "a:skull:.pt [bold]b[/bold]\n"


def test_names_in_lines_of_progress_cannot_move_the_cursor(capsys):
    with Progress() as progress:
        progress.update("\x1b[2J")
        progress.line("photo\x1b[31m\r\u202e.png is not used: [bold]no picture")
    assert capsys.readouterr().err == (
        "photo\\x1b[31m\\r\\u202e.png is not used: [bold]no picture\n"
    )
