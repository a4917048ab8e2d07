"""Mutated real files against the readers: no crash, no hang, no memory beyond a bound.

    python -m benchmarks.reading.fuzz --work SCRATCH --inputs 100000
        --out benchmarks/results/fuzz.json

Every input is a mutation of a small real file (torch zip, legacy stream and tar, TorchScript,
safetensors, ONNX, exported program), keyed by seed and number, so a failure is repeated by its
number alone. A child process reads them under a limit of address space; the parent watches its
processor time, and starts another after a crash. An answer is a successful reading or one of the
reader's own errors; everything else is a failure, and its file is kept in SCRATCH/failures. A run
that was stopped goes on where it was, after its failures were read again: what was repaired since
is none any more.
"""

import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance
from benchmarks.reading.fuzz_mutations import mutated
from benchmarks.reading.fuzz_seeds import seeds
from converters.files import write_atomic

MOST_SECONDS = 5.0
MOST_BYTES = 2 * 2**30
_POLL = 0.5
_BATCH = 500
_MOST_FAILURES = 200
_LONGEST_MESSAGE = 50_000


@dataclass
class FuzzTally:
    """What happened so far.

    Attributes:
      seed: of the mutations.
      done: inputs read; the next has this number.
      outcomes: seed file -> kind of answer -> count.
      failures: number, seed file and what happened, of the first ones.
      slowest: processor seconds of the slowest input, with its number.
      peak: bytes by which the child's memory grew at most.
      seconds: processor seconds of all inputs.
    """

    seed: int
    done: int = 0
    outcomes: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, -1)
    peak: int = 0
    seconds: float = 0.0

    def add(self, number: int, name: str, answer: str, seconds: float, grown: int) -> None:
        """Count one input."""
        kinds = Counter(self.outcomes.get(name, {}))
        kinds[answer.partition(":")[0]] += 1
        self.outcomes[name] = dict(sorted(kinds.items()))
        failed = answer.startswith(("failed", "died", "hung")) or seconds > MOST_SECONDS
        if failed and len(self.failures) < _MOST_FAILURES:
            self.failures.append(
                {"number": number, "file": name, "what": answer, "seconds": round(seconds, 2)}
            )
        self.slowest = max(self.slowest, (round(seconds, 3), number))
        self.peak = max(self.peak, grown)
        self.seconds = round(self.seconds + seconds, 3)
        self.done = number + 1


def answer(path: Path, content: bytes) -> str:
    """What reading the file gives: "read", "refused", or "failed: ..." for any other exception."""
    from converters.errors import ConverterError

    path.write_bytes(content)
    try:
        _read(path)
    except ConverterError as error:
        said = str(error)
        if not said.isprintable() or len(said) > _LONGEST_MESSAGE:
            return f"failed: an error of {len(said)} characters, or not printable: {said[:60]!a}"
        return "refused"
    except Exception as error:  # noqa: BLE001  what is looked for
        return f"failed: {type(error).__name__}: {str(error)[:200]}"
    return "read"


def _read(path: Path) -> None:
    """A file through its reader, and as far as it is data, to the network it describes."""
    from converters.opening import ONNX, read_model
    from converters.rebuilt.network import rebuild
    from converters.rebuilt.table import known_network

    file = read_model(path)
    if file.format == ONNX:
        from converters.graph.onnx import to_torch
        from converters.graph.onnx.read import read_onnx

        parsed = read_onnx(path)
        to_torch(parsed.model, weights=parsed.weights)
    elif hasattr(file.content, "weights") and known_network(file.content.weights) is not None:
        rebuild(file.content.weights)


def _child(connection, work: Path, seed: int, files: dict[str, bytes], numbers: Sequence[int]):
    """Reads inputs and tells the parent of each; before it starts one, it tells its number."""
    import warnings

    warnings.simplefilter("ignore")
    path = work / f"input-{os.getpid()}"
    for name in sorted(files):  # imports and first calls, before memory is limited
        answer(path, files[name])
    before = _resident()
    limit = _address_space() + MOST_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in numbers:
        connection.send(("start", number))
        name, content = mutated(files, seed, number)
        started = time.process_time()
        got = answer(path, content)
        seconds = time.process_time() - started
        connection.send(("end", number, name, got, seconds, _peak_resident() - before))
    path.unlink(missing_ok=True)


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak_resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _processor_seconds(process: int) -> float:
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def answers(
    work: Path, seed: int, files: dict[str, bytes], numbers: Sequence[int]
) -> Iterator[tuple[int, str, str, float, int]]:
    """Number, seed file, answer, seconds and growth of memory of each input, in order."""
    context = multiprocessing.get_context("spawn")
    while numbers:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(theirs, work, seed, files, numbers))
        child.start()
        theirs.close()
        read = 0
        for result in _watched(child, ours, seed, files):
            read += 1
            yield result
        child.join()
        if not read:
            raise RuntimeError(f"the reading process ended with {child.exitcode} before any input")
        numbers = numbers[read:]


def _watched(child: Any, ours: Any, seed: int, files: dict[str, bytes]):
    """Results of one child until it is through, dies, or is killed for taking too long."""
    current, started = None, 0.0
    while True:
        if not ours.poll(_POLL):
            if not child.is_alive() and not ours.poll():
                if current is not None:
                    yield (current, _name(files, seed, current), f"died: {child.exitcode}", 0.0, 0)
                return
            if current is not None and _processor_seconds(child.pid) - started > 2 * MOST_SECONDS:
                child.kill()
                child.join()
                yield (current, _name(files, seed, current), "hung", 2 * MOST_SECONDS, 0)
                return
            continue
        try:
            message = ours.recv()
        except EOFError:
            child.join()
            if current is not None:
                yield (current, _name(files, seed, current), f"died: {child.exitcode}", 0.0, 0)
            return
        if message[0] == "start":
            current, started = message[1], _processor_seconds(child.pid)
        else:
            current = None
            yield message[1:]


def _name(files: dict[str, bytes], seed: int, number: int) -> str:
    return mutated(files, seed, number)[0]


def _resumed(out: Path, seed: int) -> FuzzTally:
    if not out.is_file():
        return FuzzTally(seed)
    stored = json.loads(out.read_text())["tally"]
    tally = FuzzTally(**{**stored, "slowest": tuple(stored["slowest"])})
    if tally.seed != seed:
        raise SystemExit(f"{out} is of seed {tally.seed}; give another --out, or that seed")
    return tally


def _still_failing(
    work: Path, tally: FuzzTally, files: dict[str, bytes]
) -> Iterator[dict[str, Any]]:
    """Failures of an earlier run that are not repaired since; the others count by their answer."""
    found = answers(work, tally.seed, files, [failure["number"] for failure in tally.failures])
    for failure, (_, name, got, seconds, _) in zip(tally.failures, found, strict=True):
        if got not in ("read", "refused") or seconds > MOST_SECONDS:
            yield failure
            continue
        counts = tally.outcomes[name]
        counts[failure["what"].partition(":")[0]] -= 1
        counts[got] = counts.get(got, 0) + 1
        tally.outcomes[name] = {kind: n for kind, n in sorted(counts.items()) if n}


def _save(out: Path, tally: FuzzTally, files: dict[str, bytes]) -> None:
    content = {
        "provenance": provenance(),
        "bounds": {"seconds": MOST_SECONDS, "bytes": MOST_BYTES},
        "seed_files": {name: len(content) for name, content in sorted(files.items())},
        "tally": asdict(tally),
    }
    write_atomic(out, json.dumps(content, indent=1).encode() + b"\n")


def run(work: Path, out: Path, inputs: int, seed: int, own: Path | None = None) -> FuzzTally:
    """Read inputs up to number `inputs`, from where the last run stopped; the tally is kept in out.

    Args:
      work: scratch folder; holds the seed files, so that a resumed run has the same.
      out: JSON file.
      inputs: how many in all.
      seed: of the mutations.
      own: folder with further files to mutate.
    """
    (work / "failures").mkdir(parents=True, exist_ok=True)
    files = seeds(work / "seeds", own)
    tally = _resumed(out, seed)
    tally.failures = list(_still_failing(work, tally, files))
    for number, name, got, seconds, grown in answers(work, seed, files, range(tally.done, inputs)):
        known = len(tally.failures)
        tally.add(number, name, got, seconds, grown)
        if len(tally.failures) > known:
            (work / "failures" / f"{number}-{name}").write_bytes(mutated(files, seed, number)[1])
        if tally.done % _BATCH == 0:
            _save(out, tally, files)
    _save(out, tally, files)
    return tally


def main(argv: list[str] | None = None) -> int:
    """Returns 1 when an input failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="scratch folder")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="results, JSON")
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", type=Path, metavar="DIR", help="further files to mutate")
    args = parser.parse_args(argv)
    tally = run(args.work, args.out, args.inputs, args.seed, args.files)
    print(f"{tally.done} inputs, {len(tally.failures)} failures, slowest {tally.slowest}")
    for failure in tally.failures[:20]:
        print(failure)
    return int(bool(tally.failures))


if __name__ == "__main__":
    sys.exit(main())
