"""The GitHub Action, step by step: a poisoned model fails the job after everything was kept."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

import jaxtroj
from jaxtroj.record import digest_file
from tests.pipeline.runner import ROOT, Runner

EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"
OPTIONS = "--threshold 0.4 --stages weights,statistics"
UPLOADS = ["github/codeql-action/upload-sarif@v3", "actions/upload-artifact@v4"]


def test_poisoned_fails_at_the_end_and_accepted_passes(tmp_path):
    shutil.copytree(EXAMPLES / "poisoned", tmp_path / "my models" / "poisoned")
    found = Runner(tmp_path, models="my models", options=f"--limit 1\n{OPTIONS}\n").run()
    settings = json.loads((tmp_path / "jaxtroj-run" / "settings.json").read_text())
    assert settings["threshold"] == 0.4, "options of every line"
    assert (found.failed, found.outputs["status"]) == ("Verdict", "1"), found.log
    assert [name for name, _ in found.used][1:] == UPLOADS
    sarif = tmp_path / found.used[1][1]["sarif_file"]
    (log,) = json.loads(sarif.read_text())["runs"]
    assert log["results"][0]["ruleId"] == "JXT001"
    address = {"uri": "my%20models/poisoned/model.pt", "uriBaseId": "%SRCROOT%"}
    assert address.items() <= log["artifacts"][0]["location"].items()
    kept = tmp_path / found.used[2][1]["path"]
    assert {"records.jsonl", "report.html", "report.cdx.json"} <= {p.name for p in kept.iterdir()}
    assert "Models to look at" in found.summary
    digest = digest_file(EXAMPLES / "poisoned" / "model.pt")
    (tmp_path / "ours.toml").write_text(
        f'[[accepted]]\nsha256 = "{digest}"\nowner = "A"\nreason = "b"\nexpires = 2999-01-01\n'
    )
    again = Runner(tmp_path, models="my models", accept="ours.toml", upload="false",
                   options=f"--limit 1 {OPTIONS}").run()  # fmt: skip
    assert (again.failed, again.outputs["status"]) == (None, "0"), again.log
    assert len(again.used) == 1 and "Accepted models" in again.summary


@pytest.mark.parametrize(
    ("models", "status", "said", "written"),
    [
        ("none", "4", "none is absent", False),
        ("empty", "3", "no model in", False),
        ("$(touch hacked)", "4", "is absent", False),
        ("bare", "2", "expected", True),
    ],
)
def test_what_goes_wrong_is_said_and_kept(tmp_path, models, status, said, written):
    """`bare` is a model without examples."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "model.pt").write_bytes(b"")
    found = Runner(tmp_path, models=models).run()
    assert (found.failed, found.outputs["status"]) == ("Verdict", status), found.log
    assert said in found.log and not (tmp_path / "hacked").exists()
    assert [name for name, _ in found.used][1:] == (UPLOADS if written else [])


def test_names_of_models_are_no_commands_of_the_runner(tmp_path):
    """A pull request that adds a model may name it as it likes."""
    for name in ("::error file=a::fine", "::stop-commands::x", "a ##[add-mask]b"):
        (tmp_path / "nets" / name).mkdir(parents=True)
        (tmp_path / "nets" / name / "model.pt").write_bytes(b"")
    found = Runner(tmp_path, models="nets").run()
    assert "::error file=a::fine" in found.log and "##[add-mask]" in found.log
    assert found.commands == [] and found.outputs["status"] == "2"


def test_no_input_stands_in_the_text_of_a_script():
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    scripts = [step["run"] for step in action["runs"]["steps"] if "run" in step]
    assert len(scripts) == 4 and not any("${{" in script for script in scripts)
