"""What this machine can do at best: a matrix product and a copy, the floor under other figures.

    python -m benchmarks.speed.floor [--out FILE]

`floor_seconds` turns operations and bytes into the least time they could take here; a benchmark
that reports seconds reports its share of that beside them.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.provenance import RESULTS, provenance
from benchmarks.timing import median_seconds
from converters.files import write_atomic

_CPU_SIDE, _GPU_SIDE = 2048, 8192
_CPU_BYTES, _GPU_BYTES = 2**28, 2**31


def main() -> int:
    """Measure, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="A matrix product and a copy on this machine.")
    parser.add_argument("--out", type=Path, default=RESULTS / "floor.json")
    args = parser.parse_args()
    result = {"provenance": provenance(), **measure_floor()}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def measure_floor() -> dict[str, Any]:
    """Operations a second of matrix products by number type, bytes a second of a copy."""
    is_cpu = jax.default_backend() == "cpu"
    side, size = (_CPU_SIDE, _CPU_BYTES) if is_cpu else (_GPU_SIDE, _GPU_BYTES)
    types = ("float32",) if is_cpu else ("float32", "bfloat16")
    product = jax.jit(jnp.matmul)
    rates = {}
    for name in types:
        x = jax.random.normal(jax.random.key(0), (side, side), name)  # zeros run faster
        rates[name] = 2 * side**3 / median_seconds(product, x, x)
    row = jax.random.normal(jax.random.key(1), (size // 4,))
    copied = jax.jit(lambda x: x + 1)  # reads it once, writes it once
    return {
        "operations_per_second": rates,
        "bytes_per_second": 2 * size / median_seconds(copied, row),
    }


def floor_seconds(
    floor: dict[str, Any], operations: float, size: float, number: str = "float32"
) -> float:
    """The least seconds for so many operations and bytes moved: the larger of the two.

    >>> floor = {"operations_per_second": {"float32": 1e9}, "bytes_per_second": 1e9}
    >>> floor_seconds(floor, 2e9, 1e9)
    2.0
    """
    computing = operations / floor["operations_per_second"][number]
    return max(computing, size / floor["bytes_per_second"])


if __name__ == "__main__":
    sys.exit(main())
