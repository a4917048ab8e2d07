"""Container recipes read, and built without a daemon: every line run in a root of its own.

The root is this machine's with a layer over it that takes all writes, and a fresh Python
environment first on the PATH in the place of the base image's. Only Linux's root can lay it.

References: https://docs.docker.com/reference/dockerfile/ and
https://docs.sylabs.io/guides/latest/user-guide/definition_files.html.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_DOCKER = {"FROM", "ARG", "RUN", "COPY", "ENTRYPOINT"}  # what `Recipe` has a place for
_SECTIONS = {"files", "post", "runscript", "test"}
_ENVIRONMENT = "/environment"


@dataclass(frozen=True)
class Recipe:
    """What a recipe says.

    Attributes:
        base: image that it starts from.
        arguments: of the build, name -> default.
        steps: in order, ("copy", (sources.., target)) and ("run", (one shell script,)).
        start: command line of the container.
        checks: shell script of the recipe's own test, "" for none.
    """

    base: str
    arguments: Mapping[str, str]
    steps: tuple[tuple[str, tuple[str, ...]], ...]
    start: tuple[str, ...]
    checks: str = ""

    @property
    def scripts(self) -> tuple[str, ...]:
        """Every shell script in it."""
        return (*(words[0] for what, words in self.steps if what == "run"), self.checks)

    @property
    def sources(self) -> tuple[str, ...]:
        """What is copied out of the checkout."""
        return tuple(s for what, words in self.steps if what == "copy" for s in words[:-1])


def dockerfile(text: str) -> Recipe:
    """Read a Dockerfile; AssertionError for an instruction that is not known here."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines()
    found = [(line.split(maxsplit=1) + [""])[:2] for line in joined]
    assert {word for word, _ in found} <= _DOCKER, found
    said = {word: rest for word, rest in found if word in ("FROM", "ENTRYPOINT")}
    arguments = dict(rest.split("=", 1) for word, rest in found if word == "ARG")
    kinds = {"COPY": "copy", "RUN": "run"}
    steps = tuple(
        (kinds[word], tuple(shlex.split(rest)) if word == "COPY" else (rest,))
        for word, rest in found
        if word in kinds
    )
    assert found[0][0] == "FROM", "an image starts from another"
    return Recipe(said["FROM"], arguments, steps, tuple(json.loads(said["ENTRYPOINT"])))


def definition(text: str) -> Recipe:
    """Read a Singularity definition; AssertionError for a section that is not known here."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    head, *parts = re.split(r"^%(\w+)\n", "\n".join(lines) + "\n", flags=re.MULTILINE)
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    assert set(sections) == _SECTIONS, sections
    said = dict(line.split(": ", 1) for line in head.splitlines())
    assert said["Bootstrap"] == "docker" and set(said) == {"Bootstrap", "From"}
    copies = [("copy", tuple(shlex.split(line))) for line in sections["files"].splitlines()]
    start = shlex.split(sections["runscript"])
    assert start[0] == "exec" and start[-1] == "$@", start
    steps = (*copies, ("run", (sections["post"],)))
    return Recipe(said["From"], {}, steps, tuple(start[1:-1]), sections["test"])


class Build:
    """A container's root under construction.

    Attributes:
        layer: folder that holds what was written, by its path in the container.
        log: of all commands.
    """

    def __init__(self, folder: Path):
        self.folder, self.log = folder, ""
        self.layer = folder / "layer"
        for name in ("layer", "work", "root"):
            (folder / name).mkdir()
        self.run(f"{shlex.quote(sys._base_executable)} -m venv {_ENVIRONMENT}")  # type: ignore[attr-defined]

    def copy(self, *words: str) -> None:
        """Copy files of the checkout as COPY does: of a folder its content, into a folder "x/"."""
        *sources, target = words
        for name in sources:
            source, place = ROOT / name, self.layer / target.lstrip("/")
            if source.is_dir():
                skip = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, place, ignore=skip, dirs_exist_ok=True)
            else:
                file = place / source.name if target.endswith("/") else place
                file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, file)

    def run(self, script: str, variables: Mapping[str, str] | None = None) -> str:
        """Run a shell script in the root as a build does; its output. Fails if it fails."""
        root, log = self.folder / "root", self.folder / "log"
        layers = f"lowerdir=/,upperdir={self.layer},workdir={self.folder / 'work'}"
        steps = (
            f"mount -t overlay overlay -o {layers} {root}",
            *(f"mount --rbind /{name} {root}/{name}" for name in ("dev", "proc")),
            f'exec chroot {root} /bin/sh -e -c "$SCRIPT"',
        )
        path = f"{_ENVIRONMENT}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        kept = {n: v for n, v in os.environ.items() if n.startswith("PIP_") or "proxy" in n.lower()}
        environment = {**kept, "HOME": "/root", **(variables or {}), "PATH": path, "SCRIPT": script}
        with open(log, "w") as sink:
            done = subprocess.run(
                ["unshare", "-m", "/bin/sh", "-e", "-c", " && ".join(steps)],
                stdout=sink, stderr=subprocess.STDOUT, env=environment, cwd="/", check=False,
            )  # fmt: skip
        said = log.read_text()
        self.log += f"$ {script.strip()}\n{said}"
        assert done.returncode == 0, f"status {done.returncode} of {script}\n{said[-3000:]}"
        return said


def can_lay() -> bool:
    """Whether this is root on Linux, which can lay one folder over another."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None:
        return False
    return "overlay" in Path("/proc/filesystems").read_text()
