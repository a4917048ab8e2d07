"""From a file to the first answer: reading, converting, compiling, and inference afterwards.

    python -m benchmarks.speed.conversion [--architectures A ...] [--image-size PX] [--out FILE]

Each network gets random weights and is written twice, as torchvision's whole-module pickle and as
ONNX. Every file is opened in a fresh process, so that seconds and peak memory are what a user sees.
Inference is timed in turns with PyTorch (channels_last) and, where it is installed, onnxruntime.
Quality: the largest difference from PyTorch's logits over their largest size.
"""

import argparse
import json
import resource
import sys
import tempfile
import time
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fresh_process import answer_of
from benchmarks.provenance import RESULTS, provenance
from benchmarks.timing import interleaved_seconds
from converters.files import write_atomic

ARCHITECTURES = ("resnet50", "densenet121", "inception_v3")
_SELF = "benchmarks.speed.conversion"
_CLASSES, _BATCH = 5, 8
_MIB = 2**20


def main() -> int:
    """Measure, print and write; returns the exit status."""
    args = _arguments()
    if args.open is not None:
        print(json.dumps(open_here(args.open, args.image_size)))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.architectures:
            for path in write_files(Path(folder), name, args.image_size):
                rows.append(
                    {
                        "architecture": name,
                        **answer_of(_SELF, "--open", path, "--image-size", args.image_size),
                    }
                )
                print(rows[-1], file=sys.stderr)
    result = {"provenance": provenance(), "batch": _BATCH, "rows": rows}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(rows, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Seconds from a model file to its first answer.")
    parser.add_argument("--architectures", nargs="+", default=list(ARCHITECTURES))
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--open", type=Path, metavar="FILE", help="measure this file, here")
    parser.add_argument("--out", type=Path, default=RESULTS / "conversion.json")
    return parser.parse_args()


def write_files(folder: Path, name: str, size: int) -> tuple[Path, Path]:
    """A torchvision pickle and an ONNX file of the same random weights."""
    import torch
    import torchvision

    torch.manual_seed(0)
    options = {"init_weights": True, "aux_logits": False} if name == "inception_v3" else {}
    network = getattr(torchvision.models, name)(num_classes=_CLASSES, **options).eval()
    pickled, exported = folder / f"{name}.pt", folder / f"{name}.onnx"
    torch.save(network, pickled)
    export(network, exported, _BATCH, size)
    return pickled, exported


def export(network: Any, path: Path, batch: int, size: int) -> None:
    """Write a torch network over pictures as ONNX, the number of pictures open."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch announces its newer exporter
        torch.onnx.export(
            network,
            (torch.zeros(batch, 3, size, size),),
            str(path),
            dynamo=False,
            input_names=["input"],
            dynamic_axes={"input": {0: "n"}},
        )


def open_here(path: Path, size: int) -> dict[str, Any]:
    """Open one file in this process; seconds of each step, peak memory, inference beside rivals."""
    import jax
    import jax.numpy as jnp

    from converters.input_form import InputForm
    from converters.model import apply
    from converters.opening import convert_file, read_model

    started = time.perf_counter()
    file = read_model(path)
    read = time.perf_counter()
    model = convert_file(file, InputForm(image_size=(size, size)), None).model
    converted = time.perf_counter()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    pictures = np.random.default_rng(0).random((_BATCH, size, size, 3), np.float32)
    x, began = jnp.asarray(pictures), time.perf_counter()
    forward = jax.jit(lambda p, x: apply(model.config, p, x)).lower(model.params, x).compile()
    compiled = time.perf_counter()
    ours = {"jaxtroj": lambda: jax.block_until_ready(forward(model.params, x))}
    rivals = _rivals(path, pictures)
    seconds = interleaved_seconds({**ours, **rivals})
    answers = {name: np.asarray(call()) for name, call in {**ours, **rivals}.items()}
    truth = answers[next(iter(rivals))]
    difference = np.abs(answers["jaxtroj"] - truth).max() / np.abs(truth).max()
    return {
        "format": path.suffix[1:],
        "megabytes": round(path.stat().st_size / 1e6, 1),
        "read_seconds": round(read - started, 2),
        "convert_seconds": round(converted - read, 2),
        "compile_seconds": round(compiled - began, 2),
        "peak_memory_mib": round(grown / _MIB),
        "inference_seconds": {name: round(s, 4) for name, s in seconds.items()},
        "difference_from": next(iter(rivals)),
        "difference": float(f"{difference:.2g}"),
    }


def _rivals(path: Path, pictures: np.ndarray) -> dict[str, Any]:
    """Calls of other runtimes on the same file and pictures, PyTorch's own file by PyTorch."""
    planes = np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))
    if path.suffix == ".pt":
        import torch

        # Written by this benchmark a moment ago, by torch itself.
        network = torch.load(path, weights_only=False).to(memory_format=torch.channels_last)
        x = torch.from_numpy(planes).to(memory_format=torch.channels_last)

        def call() -> np.ndarray:
            with torch.inference_mode():
                return network(x).numpy()

        return {"pytorch": call}
    if find_spec("onnxruntime") is None:
        import onnx
        from onnx.reference import ReferenceEvaluator

        evaluator = ReferenceEvaluator(onnx.load(path))
        return {"onnx reference": lambda: list(evaluator.run(None, {"input": planes}))[0]}
    import onnxruntime  # pyright: ignore[reportMissingImports]

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return {"onnxruntime": lambda: session.run(None, {"input": planes})[0]}


if __name__ == "__main__":
    sys.exit(main())
