"""The hook, run by pre-commit itself in a small repository; its environment is the tests' own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import jaxtroj
from jaxtroj.record import digest_file
from tests.pipeline.runner import ROOT

EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"
_GIT = {f"GIT_{who}_{what}": "x@example.org" for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")}  # fmt: skip


def call(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **_GIT, "PATH": path, "PRE_COMMIT_HOME": str(folder.parent / "pc")}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def committed(folder: Path) -> str:
    """The folder as a repository with everything in one commit; its id."""
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"]):
        done = call(folder, "git", *words)
        assert done.returncode == 0, done.stderr
    return call(folder, "git", "rev-parse", "HEAD").stdout.strip()


@pytest.fixture
def repository(tmp_path):
    """A repository with the poisoned example model, and the hook from a repository of its own."""
    pytest.importorskip("pre_commit", reason="needs pre-commit, of the extra `test`")
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    revision = committed(hooks)
    mine = tmp_path / "mine"
    shutil.copytree(EXAMPLES / "poisoned", mine / "net")
    # Its own environment would hold the gigabytes of torch; the rest is as users have it.
    hook = {"id": "jaxtroj", "language": "system", "verbose": True}
    words = ["--accept", "ours.toml", "--stages", "weights,statistics"]
    accepted = {**hook, "alias": "accepted", "args": words}
    config = {"repos": [{"repo": str(hooks), "rev": revision, "hooks": [hook, accepted]}]}
    (mine / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    digest = digest_file(mine / "net" / "model.pt")
    (mine / "ours.toml").write_text(
        f'[[accepted]]\nsha256 = "{digest}"\nowner = "A"\nreason = "b"\nexpires = 2999-01-01\n'
    )
    committed(mine)
    return mine


def test_the_hook_stops_a_poisoned_model_and_lets_an_accepted_one_pass(repository):
    files = ("--files", "net/model.pt", "net/generation.json")
    poisoned = call(repository, "pre-commit", "run", "jaxtroj", *files)
    assert poisoned.returncode == 1 and "exit code: 1" in poisoned.stdout
    assert "net/model.pt  poisoned  probability 0.9" in poisoned.stdout
    passed = call(repository, "pre-commit", "run", "accepted", *files)
    assert passed.returncode == 0 and "Passed" in passed.stdout, passed.stdout
    assert "net/model.pt  accepted" in passed.stdout
    other = call(repository, "pre-commit", "run", "accepted", "--files", "net/generation.json")
    assert other.returncode == 0 and "no files to check" in other.stdout
