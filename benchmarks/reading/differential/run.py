"""The loop: a mutant, our reading, the runtime's, one line of the tally."""

import json
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reading.differential.compare import difference
from benchmarks.reading.differential.formats import Arrays, Format
from benchmarks.reading.differential.runtime import Runtime, RuntimeReading
from converters.errors import ConverterError

# Files that a fork of the runtime opens one after another.
_BATCH = 25


@dataclass
class MutantTally:
    """Counts of one format.

    Attributes:
      done: mutants so far; the next has this number.
      outcomes: "both", "ours only", "runtime only", "neither" -> count.
      changes: name of what was changed -> outcome -> count.
      findings: number, change and difference of each disagreement, and errors of other types.
    """

    done: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    changes: dict[str, Counter[str]] = field(default_factory=dict)
    findings: list[dict[str, Any]] = field(default_factory=list)

    def add(self, line: dict[str, Any]) -> None:
        """Count one line of a log."""
        self.done = line["number"] + 1
        self.outcomes[line["outcome"]] += 1
        for change in line["change"].split("+"):
            self.changes.setdefault(change, Counter())[line["outcome"]] += 1
        if line.get("what"):
            self.findings.append(line)


def run(
    kind: Format, runtime: Runtime, work: Path, mutants: int, seed: int, step: int | None = None
) -> MutantTally:
    """Read mutants up to number `mutants`, from where the log in `work` ends.

    Args:
      kind: the format.
      runtime: what opens them beside us.
      work: folder of the log, which is only appended to, and of files that were read differently.
      mutants: how many in all.
      seed: of the mutations; a mutant is repeated by format, seed and number.
      step: how many now; all if not given.
    """
    log = work / f"{slug(kind.name)}-{seed}.jsonl"
    tally = replayed(log)
    mutants = mutants if step is None else min(mutants, tally.done + step)
    if tally.done >= mutants:
        return tally
    _cut_torn_line(log)
    with log.open("a") as out:
        while tally.done < mutants:
            numbers = range(tally.done, min(mutants, tally.done + _BATCH))
            for line in compared(kind, runtime, work, seed, numbers):
                print(json.dumps(line), file=out, flush=True)
                tally.add(line)
    return tally


def replayed(log: Path) -> MutantTally:
    """The tally of a log; empty where there is none. A last line that is torn is not counted."""
    tally = MutantTally()
    for line in log.read_bytes().splitlines(keepends=True) if log.is_file() else ():
        if line.endswith(b"\n"):
            tally.add(json.loads(line))
    return tally


def _cut_torn_line(log: Path) -> None:
    """End a log that a stopped run left inside a line at the line before."""
    content = log.read_bytes() if log.is_file() else b"\n"
    if not content.endswith(b"\n"):
        os.truncate(log, content.rfind(b"\n") + 1)


def mutant(kind: Format, seed: int, number: int) -> tuple[bytes, str]:
    """Bytes of a mutant and the name of its change; the same at every call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind.mutant(np.random.default_rng((seed, number)))


def compared(
    kind: Format, runtime: Runtime, work: Path, seed: int, numbers: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Mutants read by both, a line of the log for each."""
    folder = work / "mutants"
    folder.mkdir(exist_ok=True)
    paths, changes = [], []
    for number in numbers:
        content, change = mutant(kind, seed, number)
        paths.append(folder / f"{slug(kind.name)}-{number}{kind.suffix}")
        paths[-1].write_bytes(content)
        changes.append(change)
    runtime.ask(paths, kind.openings, kind.shape)
    ours = [_ours(kind, path) for path in paths]
    theirs = list(runtime.answers(paths))
    for number, change, path, own, other in zip(numbers, changes, paths, ours, theirs, strict=True):
        faults = _faults(own, other)
        if faults:  # opened by a process that opened nothing before
            other = runtime.open(path, kind.openings, kind.shape)
            faults = _faults(own, other)
        if faults:
            (work / "findings").mkdir(exist_ok=True)
            path.rename(work / "findings" / path.name)
        path.unlink(missing_ok=True)
        outcome = _outcome(own[0] is not None, any(reading.read for reading in other.values()))
        what = {"what": "; ".join(faults)} if faults else {}
        yield {"number": number, "change": change, "outcome": outcome, **what}


def _ours(kind: Format, path: Path) -> tuple[Arrays | None, str]:
    """Our arrays, or None and why."""
    try:
        return kind.read(path), ""
    except ConverterError as error:
        return None, f"refused: {error}"
    except Exception as error:  # noqa: BLE001  a finding: every error should be a ConverterError
        return None, f"failed: {type(error).__name__}: {str(error)[:300]}"


def _faults(ours: tuple[Arrays | None, str], theirs: Mapping[str, RuntimeReading]) -> list[str]:
    """Openings that read something else than we did, and our error if it is of another type."""
    arrays, reason = ours
    found = [reason] if reason.startswith("failed") else []
    if arrays is None:
        return found
    for opening, reading in theirs.items():
        what = difference(arrays, reading.arrays) if reading.read else ""
        found += [f"{opening}: {what}"] if what else []
    return found


def _outcome(ours: bool, theirs: bool) -> str:
    if ours and theirs:
        return "both"
    return "ours only" if ours else "runtime only" if theirs else "neither"


def slug(name: str) -> str:
    """A format's name in names of files."""
    return name.replace(", ", "-").replace(" ", "-")


def stored(tallies: dict[str, MutantTally]) -> dict[str, Any]:
    """The tallies as JSON values."""
    return {
        name: {
            "mutants": tally.done,
            "outcomes": dict(tally.outcomes),
            "changes": {change: dict(counts) for change, counts in sorted(tally.changes.items())},
            "findings": tally.findings,
        }
        for name, tally in tallies.items()
    }
