"""The loop: a mutant, our reading, the runtime's, one line of the tally."""

import json
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reading.differential.compare import difference
from benchmarks.reading.differential.formats import Arrays, Format
from benchmarks.reading.differential.runtime import Runtime, RuntimeReading
from converters.errors import ConverterError


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


def run(kind: Format, runtime: Runtime, work: Path, mutants: int, seed: int) -> MutantTally:
    """Read mutants up to number `mutants`, from where the log in `work` ends.

    Args:
      kind: the format.
      runtime: what opens them beside us.
      work: folder of the log, which is only appended to, and of files that were read differently.
      mutants: how many in all.
      seed: of the mutations; a mutant is repeated by format, seed and number.
    """
    log = work / f"{_slug(kind.name)}-{seed}.jsonl"
    tally = replayed(log)
    with log.open("a") as out:
        for number in range(tally.done, mutants):
            line = compared(kind, runtime, work, seed, number)
            print(json.dumps(line), file=out, flush=True)
            tally.add(line)
    return tally


def replayed(log: Path) -> MutantTally:
    """The tally of a log; empty where there is none."""
    tally = MutantTally()
    for text in log.read_text().splitlines() if log.is_file() else ():
        tally.add(json.loads(text))
    return tally


def mutant(kind: Format, seed: int, number: int) -> tuple[bytes, str]:
    """Bytes of a mutant and the name of its change; the same at every call."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return kind.mutant(np.random.default_rng((seed, number)))


def compared(kind: Format, runtime: Runtime, work: Path, seed: int, number: int) -> dict[str, Any]:
    """One mutant, read by both."""
    content, change = mutant(kind, seed, number)
    path = work / f"{_slug(kind.name)}{kind.suffix}"
    path.write_bytes(content)
    ours, reason = _ours(kind, path)
    theirs = runtime.open(path, kind.openings, kind.shape)
    faults = list(_faults(ours, theirs)) if ours is not None else []
    faults += [reason] if reason.startswith("failed") else []
    if faults:
        (work / "findings").mkdir(exist_ok=True)
        (work / "findings" / f"{_slug(kind.name)}-{number}{kind.suffix}").write_bytes(content)
    outcome = _outcome(ours is not None, any(reading.read for reading in theirs.values()))
    what = {"what": "; ".join(faults)} if faults else {}
    return {"number": number, "change": change, "outcome": outcome, **what}


def _ours(kind: Format, path: Path) -> tuple[Arrays | None, str]:
    """Our arrays, or None and why."""
    try:
        return kind.read(path), ""
    except ConverterError as error:
        return None, f"refused: {error}"
    except Exception as error:  # noqa: BLE001  a finding: every error should be a ConverterError
        return None, f"failed: {type(error).__name__}: {str(error)[:300]}"


def _faults(ours: Arrays, theirs: dict[str, RuntimeReading]) -> Iterator[str]:
    for opening, reading in theirs.items():
        found = difference(ours, reading.arrays) if reading.read else ""
        if found:
            yield f"{opening}: {found}"


def _outcome(ours: bool, theirs: bool) -> str:
    if ours and theirs:
        return "both"
    return "ours only" if ours else "runtime only" if theirs else "neither"


def _slug(name: str) -> str:
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
