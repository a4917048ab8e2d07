"""Mutants of real files, read by jaxtroj and by a runtime: the same, or one of both refuses.

    python -m benchmarks.reading.differential --work SCRATCH --mutants 10000 --out FILE

Each mutant is a small file that torch or onnx wrote, with its network, state dict, graph or
container changed in structure: reordered, renamed, doubled, aliased, shadowed, spliced. We open it,
and in a process without a network torch does, by every opening that users call; onnxruntime, where
it is installed, opens ONNX files (elsewhere it counts as refusing them all). Where both read it,
logits of one example agree to 1e-4 of their size, or every tensor is equal; anything else is a
finding, and its file is kept in SCRATCH/findings. Formats take turns of equal time. A stopped run
goes on where its logs end; with `--collect` they are only counted, also while it runs.
"""

import argparse
import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.provenance import RESULTS, provenance
from benchmarks.reading.differential.formats import FORMATS, Format
from benchmarks.reading.differential.run import MutantTally, run, stored
from benchmarks.reading.differential.runtime import Runtime
from converters.files import write_atomic

_STEP, _TURNS = 50, 20


def main(argv: list[str] | None = None) -> int:
    """Returns 1 when a mutant was read in two ways, or an error was no ConverterError."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, metavar="DIR", help="logs and findings")
    parser.add_argument("--out", type=Path, default=RESULTS / "differential.json", metavar="FILE")
    parser.add_argument("--mutants", type=int, default=10_000, help="of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--collect", action="store_true", help="count what is in the logs")
    parser.add_argument("--format", action="append", choices=[kind.name for kind in FORMATS])
    args = parser.parse_args(argv)
    kinds = [kind for kind in FORMATS if kind.name in (args.format or [k.name for k in FORMATS])]
    args.work.mkdir(parents=True, exist_ok=True)
    _quiet()
    with Runtime(args.work) as runtime:
        if args.collect:
            args.mutants = 0
        tallies = _in_turns(kinds, runtime, args)
    for name, tally in tallies.items():
        print(f"{name}: {tally.done} mutants, {dict(tally.outcomes)}")
        for finding in tally.findings[:20]:
            print(f"  {finding}")
    return int(any(tally.findings for tally in tallies.values()))


def _in_turns(
    kinds: Sequence[Format], runtime: Runtime, args: argparse.Namespace
) -> dict[str, MutantTally]:
    """The tallies of all formats, of which the one that took the least time is next."""
    import jax

    tallies: dict[str, MutantTally] = {}
    seconds = dict.fromkeys([kind.name for kind in kinds], 0.0)
    left, turns = list(kinds), 0
    while left:
        kind = min(left, key=lambda kind: seconds[kind.name])
        begun = time.monotonic()
        tally = tallies[kind.name] = run(kind, runtime, args.work, args.mutants, args.seed, _STEP)
        seconds[kind.name] += time.monotonic() - begun
        if tally.done >= args.mutants:
            left.remove(kind)
        turns += 1
        if turns % _TURNS == 0 or not left:
            _save(args.out, tallies, args.seed, runtime)
            jax.clear_caches()  # programs of graphs, each of which was run once
    return {kind.name: tallies[kind.name] for kind in kinds}


def _quiet() -> None:
    """One thread, and no pages of log for each program that torch refuses."""
    import torch

    torch.set_num_threads(1)
    logging.getLogger("torch").setLevel(logging.CRITICAL)


def _save(out: Path, tallies: dict[str, MutantTally], seed: int, runtime: Runtime) -> None:
    content = {
        "provenance": provenance(),
        "seed": seed,
        "runtime": {"torch": runtime.version, "without network": runtime.isolated},
        "formats": stored(tallies),
    }
    write_atomic(out, json.dumps(content, indent=1).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
