"""Files of strangers whose names look like options, or like addresses of a hub."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import jaxtroj
from jaxtroj.cli.main import main

pytestmark = pytest.mark.usefixtures("unguarded")

EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"


def called(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jaxtroj", *words], cwd=folder, capture_output=True, text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip


@pytest.fixture
def hostile(tmp_path) -> Path:
    """Code, an older model and an accepted poisoned one, and files that would name them."""
    shutil.copy(EXAMPLES / "poisoned" / "model.pt", tmp_path / "model.pt")
    (tmp_path / "evil.py").write_text("open('ran', 'w')\n")
    (tmp_path / "old.pt").write_bytes(b"kept")
    for name in ("--network=evil.py:a.pt", "--result_filepath=old.pt", "--accept=ours.bin", "-x"):
        (tmp_path / name).write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    "word", ["--network=evil.py:a.pt", "--result_filepath=old.pt", "--accept=ours.bin", "-x"]
)
@pytest.mark.parametrize("command", [("detect", "model.pt"), ("scan", ".", "--out", "run")])
def test_a_file_that_looks_like_an_option_is_refused(hostile, command, word):
    """`*.pt`, and the hook of pre-commit, put such names among the arguments."""
    before = sorted(path.name for path in hostile.iterdir())
    done = called(hostile, *command, word)
    assert done.returncode == 4 and done.stdout == ""
    assert f"{word} is the name of a file here, and would be taken for an option" in done.stderr
    assert f"write ./{word}" in done.stderr
    assert sorted(path.name for path in hostile.iterdir()) == before
    assert (hostile / "old.pt").read_bytes() == b"kept"


def test_it_can_be_named_and_options_of_other_names_are_options(hostile, monkeypatch, capsys):
    monkeypatch.chdir(hostile)
    main(["detect", "./--accept=ours.bin", "--json", "--stages", "weights"])
    main(["detect", "--json", "--stages", "weights", "--", "--accept=ours.bin"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["model"] for record in records] == ["--accept=ours.bin"] * 2
    assert all(record["status"] == "failed" for record in records), "an empty file"


@pytest.mark.parametrize("address", ["hf://org/net", "models:/net/1"])
def test_a_folder_does_not_stand_in_for_an_address(address, tmp_path, monkeypatch, capsys):
    shutil.copytree(EXAMPLES / "clean", tmp_path / address)
    monkeypatch.chdir(tmp_path)
    main(["detect", address, "--json", "--stages", "weights"])
    record = json.loads(capsys.readouterr().out)
    assert record["status"] == "failed" and not record["sha256"]
    assert "it is an address, and a folder of that name lies here" in record["reason"]
    main(["detect", str(tmp_path / address), "--json", "--stages", "weights", "--evidence-only"])
    assert json.loads(capsys.readouterr().out)["status"] == "ok"
