"""Asks the runtime's process what it reads; see `serve`."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_NO_NETWORK = ("unshare", "-rn")


@dataclass(frozen=True)
class RuntimeReading:
    """What one opening of a file gave.

    Attributes:
      answer: "read", or "refused: ..." or "died: ..." with the reason.
      arrays: "logits" of a network, else "tensor:NAME" for every tensor; empty unless read.
    """

    answer: str
    arrays: dict[str, np.ndarray]

    @property
    def read(self) -> bool:
        """Whether the runtime accepts the file."""
        return self.answer == "read"


class Runtime:
    """A process with torch, without a network, that opens files in forks; a context manager."""

    def __init__(self, work: Path):
        self._out = work / "arrays"
        self._out.mkdir(parents=True, exist_ok=True)
        self.isolated = _can_unshare()
        command = [sys.executable, "-m", "benchmarks.reading.differential.serve"]
        self._process = subprocess.Popen(
            [*(_NO_NETWORK if self.isolated else ()), *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        self.version = self._answer()["ready"]

    def __enter__(self) -> "Runtime":
        return self

    def __exit__(self, *error: object) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()

    def open(
        self, path: Path, openings: Sequence[str], shape: tuple[int, ...]
    ) -> dict[str, RuntimeReading]:
        """What each opening gives.

        Args:
          path: the file.
          openings: names in `serve.OPENINGS`.
          shape: of the example whose logits are compared.
        """
        self.ask([path], openings, shape)
        return next(self.answers([path]))

    def ask(self, paths: Sequence[Path], openings: Sequence[str], shape: tuple[int, ...]) -> None:
        """Have files opened while the caller does something else; then call `answers`."""
        request = {
            "paths": [str(path.absolute()) for path in paths],
            "outs": [str(self._stored(path)) for path in paths],
            "openings": list(openings),
            "shape": shape,
        }
        assert self._process.stdin is not None
        print(json.dumps(request), file=self._process.stdin, flush=True)

    def answers(self, paths: Sequence[Path]) -> Iterator[dict[str, RuntimeReading]]:
        """What `open` gives, of each of the files that `ask` was given; all must be taken."""
        for path in paths:
            told = self._answer()
            stored = self._stored(path)
            content = stored.read_bytes() if told["arrays"] else b""
            stored.unlink(missing_ok=True)
            yield {
                name: RuntimeReading(answer, _arrays(told["arrays"].get(name, {}), content))
                for name, answer in told["answers"].items()
            }

    def _stored(self, path: Path) -> Path:
        return (self._out / path.name).absolute()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the runtime's process ended with {self._process.wait()}")
        return json.loads(line)


def _arrays(described: dict[str, list[Any]], content: bytes) -> dict[str, np.ndarray]:
    """Arrays by name out of what the runtime stored: type, shape and place of each."""
    found = {}
    for name, (kind, shape, place) in described.items():
        count = int(np.prod(shape, dtype=np.int64))
        found[name] = np.frombuffer(content, np.dtype(kind), count, place).reshape(shape)
    return found


def _can_unshare() -> bool:
    if shutil.which(_NO_NETWORK[0]) is None:
        return False
    return not subprocess.run([*_NO_NETWORK, "true"], capture_output=True).returncode
