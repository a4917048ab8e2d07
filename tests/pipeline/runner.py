"""A composite action run step by step, as GitHub's runner does it: shells, outputs, conditions.

Semantics: https://docs.github.com/actions/sharing-automations/creating-actions/metadata-syntax-for-github-actions.
A step that `uses` another action is not run; what it would be given is kept.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_CONTEXT = re.compile(r"\b(inputs\.[\w-]+|steps\.\w+\.outputs\.\w+)")


@dataclass
class ActionRun:
    """What came of a run.

    Attributes:
        failed: name of the step that failed, None if none did.
        outputs: of the action.
        used: (action, its inputs) of every step that was to run another action.
        log: what the steps printed.
        commands: lines of it that the runner takes for its commands.
        summary: the job's page, as Markdown.
    """

    failed: str | None = None
    outputs: dict[str, str] = field(default_factory=dict)
    used: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    log: str = ""
    commands: list[str] = field(default_factory=list)
    summary: str = ""


def _commands(printed: str) -> Iterator[str]:
    """What the runner obeys: lines like `::name::`, and `##[name]` anywhere in a line.

    None between `::stop-commands::TOKEN` and `::TOKEN::`.
    """
    token = None
    for line in printed.splitlines():
        if token is not None:
            token = None if line.strip() == f"::{token}::" else token
        elif line.lstrip().startswith("::stop-commands::"):
            token = line.strip().removeprefix("::stop-commands::")
        elif line.lstrip().startswith("::") or "##[" in line:
            yield line


class Runner:
    """Runs `action.yml` in a workspace."""

    def __init__(self, workspace: Path, **inputs: str):
        self.action = yaml.safe_load((ROOT / "action.yml").read_text())
        declared = self.action["inputs"]
        assert set(inputs) <= set(declared), "GitHub warns of unknown inputs"
        missing = {name for name, one in declared.items() if one.get("required")} - set(inputs)
        assert not missing, missing
        self.workspace = workspace
        self.inputs = {n: inputs.get(n, str(one.get("default", ""))) for n, one in declared.items()}
        self.steps: dict[str, dict[str, str]] = {}

    def run(self) -> ActionRun:
        """All steps in order; after one that fails only those with always() would run."""
        found = ActionRun()
        for step in self.action["runs"]["steps"]:
            if found.failed is not None or not self._holds(step.get("if", "true")):
                continue
            if "uses" in step:
                given = {n: self._filled(str(v)) for n, v in step.get("with", {}).items()}
                found.used.append((step["uses"], given))
            elif self._shell(step, found) != 0:
                found.failed = step["name"]
        found.outputs = {
            name: self._filled(one["value"]) for name, one in self.action["outputs"].items()
        }
        return found

    def _value(self, name: str) -> str:
        kind, *path = name.split(".")
        if kind == "inputs":
            return self.inputs[path[0]]
        return self.steps.get(path[0], {}).get(path[2], "")

    def _filled(self, text: str) -> str:
        return _EXPRESSION.sub(lambda found: self._value(found[1]), text)

    def _holds(self, condition: str) -> bool:
        text = _EXPRESSION.sub(lambda found: found[1], condition)
        text = _CONTEXT.sub(lambda found: repr(self._value(found[1])), text)
        python = text.replace("&&", " and ").replace("||", " or ")
        return bool(eval(python, {"__builtins__": {}, "true": True}))

    def _shell(self, step: dict[str, Any], found: ActionRun) -> int:
        """One step under bash as the runner starts it; its status."""
        assert step["shell"] == "bash"
        files = {name: self.workspace / f".{name.lower()}" for name in ("OUTPUT", "STEP_SUMMARY")}
        for path in files.values():
            path.write_text("")
        script = self.workspace / ".step.sh"
        script.write_text(self._filled(step["run"]))
        environment = {
            **os.environ,
            **{name: self._filled(str(value)) for name, value in step.get("env", {}).items()},
            **{f"GITHUB_{name}": str(path) for name, path in files.items()},
            "GITHUB_ACTION_PATH": str(ROOT),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        found.log += done.stdout
        found.commands += _commands(done.stdout)
        found.summary += files["STEP_SUMMARY"].read_text()
        lines = files["OUTPUT"].read_text().splitlines()
        self.steps[step.get("id", "")] = dict(line.split("=", 1) for line in lines)
        return done.returncode
