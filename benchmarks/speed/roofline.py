"""What a verdict would cost on an accelerator that is not here: a lower bound, from its data sheet.

    python -m benchmarks.speed.roofline MODEL [--examples DIR] [--stages a,b] [--bank DIR]
        [--out FILE]

scans a model, or all of a folder, on this machine, counts the calls of every compiled program
(`programs`), and takes operations and bytes of each from XLA's cost analysis of the program that
was compiled here. On an accelerator a program takes at least the longest of

    operations / peak rate,   bytes / memory rate,   kernels * seconds of a launch

and a verdict the sum over calls. Not in it: compiling, copies to the device, the host's own work
between programs, and what peaks never reach. Forward passes and input gradients run in batches
`jaxtroj.network` makes 16 times as large there, so their launches are counted a sixteenth as often.
Bytes and kernels are those of XLA's fusions for CPUs; other backends fuse more.

Data sheets: https://www.nvidia.com/en-us/data-center/h100/ (SXM) and
https://www.nvidia.com/en-us/data-center/a100/ (80 GB SXM), dense rates.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS, provenance
from benchmarks.speed.programs import Program, add_arguments, record, scanned
from converters.files import write_atomic

_BATCHED = ("jaxtroj.network._logits", "jaxtroj.network._gradients")
_SHOWN = 12  # programs of a table
_LARGER = 16  # batches of those on accelerators
_ENTRY = re.compile(r"^ENTRY .*?\{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
_KERNEL = re.compile(
    r"= \S+ (?:fusion|convolution|dot|custom-call|reduce|reduce-window|select-and-scatter|sort|"
    r"scatter|gather|copy|transpose|concatenate|pad|call|while|rng-bit-generator)\("
)


@dataclass(frozen=True)
class Chip:
    """An accelerator's data sheet.

    Attributes:
        operations: a second, by number: "float32" without tensor cores, "tf32" (what jax takes for
            float32 by default), "bfloat16".
        bytes: of memory, a second.
        launch: seconds to start a kernel; no data sheet says it, 5 microseconds is usual.
    """

    operations: Mapping[str, float]
    bytes: float
    launch: float = 5e-6


CHIPS = {
    "H100": Chip({"float32": 67e12, "tf32": 494.7e12, "bfloat16": 989.4e12}, 3.35e12),
    "A100": Chip({"float32": 19.5e12, "tf32": 156e12, "bfloat16": 312e12}, 2.039e12),
}


@dataclass(frozen=True)
class Cost:
    """What all calls of a program take: operations, bytes moved, kernels launched."""

    operations: float
    bytes: float
    kernels: float

    def seconds(self, chip: Chip, number: str) -> dict[str, float]:
        """The least time by what bounds it: "compute", "memory", "launch".

        >>> chip = Chip({"tf32": 1e9}, 1e6, 1e-3)
        >>> Cost(2e9, 1e6, 10).seconds(chip, "tf32")
        {'compute': 2.0, 'memory': 1.0, 'launch': 0.01}
        """
        moved = self.bytes / 2 if number == "bfloat16" else self.bytes
        return {
            "compute": self.operations / chip.operations[number],
            "memory": moved / chip.bytes,
            "launch": self.kernels * chip.launch,
        }


def cost_of(program: Program) -> Cost:
    """The cost of all calls of a program, by the one that XLA compiles for this machine."""
    compiled = program.jitted.lower(*program.arguments, **program.keywords).compile()
    found = compiled.cost_analysis() or {}
    launches = program.calls / (_LARGER if program.name in _BATCHED else 1)
    return Cost(
        program.calls * float(found.get("flops", 0.0)),
        program.calls * float(found.get("bytes accessed", 0.0)),
        launches * kernels_in(compiled.as_text()),
    )


def kernels_in(text: str) -> int:
    """How many kernels a compiled program launches: its fusions and the operations outside them.

    >>> kernels_in("ENTRY main {\\n  a = f32[2] fusion(x), calls=f\\n  b = f32[2] tuple(a)\\n}\\n")
    1
    """
    entry = _ENTRY.search(text)
    return max(1, len(_KERNEL.findall(entry[1] if entry else text)))


def table(costs: Sequence[tuple[Program, Cost]], chip: Chip, number: str) -> dict[str, Any]:
    """Seconds of all verdicts on a chip; the longest programs with what bounds them."""
    rows = []
    for program, cost in costs:
        seconds = cost.seconds(chip, number)
        bound = max(seconds, key=lambda name: seconds[name])
        rows.append(
            {
                "program": program.name,
                "shapes": program.shapes,
                "calls": program.calls,
                "milliseconds": round(1e3 * seconds[bound], 4),
                "bound": bound,
            }
        )
    rows.sort(key=lambda row: -row["milliseconds"])
    total = sum(row["milliseconds"] for row in rows)
    shares = {
        name: round(sum(r["milliseconds"] for r in rows if r["bound"] == name) / (total or 1), 3)
        for name in ("compute", "memory", "launch")
    }
    told = {"seconds": round(total / 1e3, 5), "share_bound_by": shares, "programs": len(rows)}
    return told | {"longest": rows[:_SHOWN]}


def main(words: Sequence[str] | None = None) -> int:
    """Scan, analyse, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="A lower bound for a verdict on an accelerator.")
    add_arguments(parser)
    parser.add_argument("--out", type=Path, default=RESULTS / "roofline.json")
    args = parser.parse_args(words)
    programs = record()
    records = scanned(programs, args)
    costs = [(program, cost_of(program)) for program in list(programs)]
    result = {
        "provenance": provenance(),
        "models": len(records),
        "architectures": sorted({record.architecture or "" for record in records}),
        "here_seconds": round(sum(sum(record.seconds.values()) for record in records), 2),
        "operations": sum(cost.operations for _, cost in costs),
        "bytes": sum(cost.bytes for _, cost in costs),
        "chips": {
            name: {number: table(costs, chip, number) for number in chip.operations}
            for name, chip in CHIPS.items()
        },
    }
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    for name, by_number in result["chips"].items():
        for number, told in by_number.items():
            print(f"{name:5} {number:9} {told['seconds']:9.4f} s  {told['share_bound_by']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
