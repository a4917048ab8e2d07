"""Forward passes, the unit of work of every bank, through both doors and beside other runtimes.

    python -m benchmarks.speed.forward [--architectures A ...] [--image-size PX] [--batches N ...]

Torchvision networks with random weights, written as a module's pickle and as ONNX. Each file is
opened as a scan opens it; then our two programs, PyTorch (channels last) and, where it is
installed, onnxruntime take turns on the same pictures, all with the memory settings of every
`jaxtroj` command. Quality: the largest difference from PyTorch's logits over their largest size.
The floor is the operations that XLA counts over what a matrix product reaches here.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch

from benchmarks.provenance import provenance
from benchmarks.rivals.torch_neural_cleanse import frozen
from benchmarks.speed.conversion import write_files
from benchmarks.speed.floor import floor_seconds, measure_floor
from benchmarks.speed.gradients import point_arguments
from benchmarks.timing import interleaved_seconds
from converters.families.folding import fold
from converters.files import write_atomic
from converters.input_form import InputForm
from converters.model import apply
from converters.opening import convert_file, read_model
from jaxtroj import runtime
from jaxtroj.generate.torch_device import torch_device

ARCHITECTURES = ("resnet50", "densenet121", "inception_v3", "mobilenet_v2", "vgg16_bn")

Call = Callable[[], np.ndarray]


def main() -> int:
    """Measure, print and write; returns the exit status."""
    args = point_arguments("Forward passes of ours and others.", ARCHITECTURES, "forward")
    floor, rows = measure_floor(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.architectures:
            files = write_files(Path(folder), name, args.image_size)
            for batch in args.batches:
                rows.append(measure(name, files, args.image_size, batch, floor))
                print(rows[-1], file=sys.stderr)
                runtime.give_back()
    result = {"provenance": provenance(), "floor": floor, "rows": rows}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(rows, indent=1))
    return 0


def measure(
    name: str, files: tuple[Path, Path], size: int, batch: int, floor: dict[str, Any]
) -> dict[str, Any]:
    """One architecture and batch: seconds of each runtime, agreement, share of the floor."""
    pickled, exported = files
    pictures = np.random.default_rng(0).random((batch, size, size, 3), np.float32)
    calls, operations = {}, 0.0
    for door, path in (("pickle", pickled), ("onnx", exported)):
        calls[door], operations = _ours(path, pictures)
    calls |= _rivals(pickled, exported, pictures)
    seconds = interleaved_seconds(calls)
    answers = {runtime_name: call() for runtime_name, call in calls.items()}
    truth = answers["pytorch"]
    return {
        "architecture": name,
        "image_size": size,
        "batch": batch,
        "seconds": {rival: round(took, 4) for rival, took in seconds.items()},
        "of_pytorch": {door: round(seconds[door] / seconds["pytorch"], 3) for door in calls},
        "share_of_floor": round(floor_seconds(floor, operations, 0.0) / seconds["pickle"], 3),
        "difference": {door: _difference(answers[door], truth) for door in calls},
    }


def _ours(path: Path, pictures: np.ndarray) -> tuple[Call, float]:
    """A call of a file's compiled program, and the operations in it."""
    height, width = pictures.shape[1:3]
    model = convert_file(read_model(path), InputForm(image_size=(height, width)), None).model
    model = fold(model)  # as the evidence is gathered from it
    x = jnp.asarray(pictures)
    forward = jax.jit(lambda p, x: apply(model.config, p, x)).lower(model.params, x).compile()
    operations = float((forward.cost_analysis() or {}).get("flops", 0.0))
    return lambda: np.asarray(forward(model.params, x)), operations


def _rivals(pickled: Path, exported: Path, pictures: np.ndarray) -> dict[str, Call]:
    planes = np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))
    # Written by this benchmark a moment ago, by torch itself.
    network = frozen(torch.load(pickled, weights_only=False))
    x = torch.from_numpy(planes).to(torch_device(), memory_format=torch.channels_last)

    def by_torch() -> np.ndarray:
        with torch.inference_mode():
            return network(x).cpu().numpy()

    if find_spec("onnxruntime") is None or x.is_cuda:  # a rival of CPUs
        return {"pytorch": by_torch}
    import onnxruntime  # pyright: ignore[reportMissingImports]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(
        str(exported), options, providers=["CPUExecutionProvider"]
    )
    return {
        "pytorch": by_torch,
        "onnxruntime": lambda: session.run(None, {"input": planes})[0],
    }


def _difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    return float(f"{np.abs(ours - theirs).max() / np.abs(theirs).max():.2g}")


if __name__ == "__main__":
    sys.exit(main())
