"""What choosing kernels costs XLA on a GPU, and what the kernels cost that it chooses.

    python -m benchmarks.speed.gpu_kernels [--architectures A ...] [--batches N ...] [--out FILE]

`benchmarks.speed.gradients` in a process of its own for each of four ways: those of every `jaxtroj`
command (`jaxtroj.runtime`), the same in TF32, XLA's own, and kernels that nothing was timed for.
PyTorch takes turns with each. Compiled programs are not kept between them.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.provenance import provenance
from benchmarks.speed.gradients import point_arguments
from converters.files import write_atomic

ARCHITECTURES = ("resnet50", "densenet121")
_FEW = "--xla_gpu_enable_triton_gemm=false"
# Settings that stand against those of `jaxtroj.runtime`; none leaves them.
WAYS: dict[str, dict[str, str]] = {
    "jaxtroj": {},
    "jaxtroj, TF32": {"JAX_DEFAULT_MATMUL_PRECISION": "default"},
    "XLA's own": {
        "XLA_FLAGS": "--xla_gpu_enable_triton_gemm=true --xla_gpu_autotune_level=4",
        "JAX_DEFAULT_MATMUL_PRECISION": "default",
    },
    "nothing timed": {
        "XLA_FLAGS": f"{_FEW} --xla_gpu_autotune_level=0",
        "JAX_DEFAULT_MATMUL_PRECISION": "default",
    },
}
_PATIENCE = 600.0


def main() -> int:
    """Measure, print and write; returns the exit status."""
    args = point_arguments("Kernels that XLA chooses on a GPU.", ARCHITECTURES, "gpu_kernels")
    points = [
        "--architectures", *args.architectures, "--image-size", str(args.image_size),
        "--batches", *map(str, args.batches),
    ]  # fmt: skip
    rows = {way: _measured(settings, points) for way, settings in WAYS.items()}
    result = {"provenance": provenance(), "ways": rows}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(rows, indent=1))
    return 0


def _measured(settings: dict[str, str], points: list[str]) -> list[dict[str, Any]] | str:
    """Rows of `benchmarks.speed.gradients` under these settings, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "gradients.json"
        command = [sys.executable, "-m", "benchmarks.speed.gradients", *points, "--out", str(file)]
        # Both shares of the GPU's memory would not fit where jax takes most of it at once.
        fixed = {"XDG_CACHE_HOME": folder, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        try:
            subprocess.run(
                command, env=os.environ | fixed | settings, check=True, timeout=_PATIENCE,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            return str(error)
        return json.loads(file.read_bytes())["rows"]


if __name__ == "__main__":
    sys.exit(main())
