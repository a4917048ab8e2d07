"""How much memory converting a file takes at most, over the memory of its weights.

    python -m benchmarks.speed.peak_memory [--files KIND ...] [--out FILE]

A ResNet50 as torchvision's whole-module pickle, as a state dict and as ONNX, an AlexNet as ONNX
(no family's network, and two thirds of its weights are one tensor), and a BERT-base text classifier
as a Hugging Face folder with safetensors; all weights are random. Each is converted in a fresh
process that has converted a small network by the same way before, so that what imports take is not
counted. Memory is what the kernel holds for the process (resident, and its high-water mark).
"""

import argparse
import ctypes
import gc
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.fresh_process import answer_of
from benchmarks.provenance import RESULTS, provenance
from benchmarks.speed.conversion import export
from converters.files import write_atomic
from jaxtroj import runtime

_SELF = "benchmarks.speed.peak_memory"
_CLASSES, _SIZE = 5, 224
_MIB = 2**20


def main() -> int:
    """Measure, print and write; returns the exit status."""
    args = _arguments()
    if args.open is not None:
        print(json.dumps(measure_here(*args.open)))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for kind in args.files:
            warm, path = FILES[kind](Path(folder))
            rows.append({"file": kind, **answer_of(_SELF, "--open", warm, path)})
            print(rows[-1], file=sys.stderr)
    result = {"provenance": provenance(), "image_size": _SIZE, "rows": rows}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(rows, indent=1))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Memory of converting, over that of the weights.")
    parser.add_argument("--files", nargs="+", choices=list(FILES), default=list(FILES))
    parser.add_argument(
        "--open", nargs=2, type=Path, metavar=("SMALL", "FILE"), help="measure FILE, here"
    )
    parser.add_argument("--out", type=Path, default=RESULTS / "peak_memory.json")
    return parser.parse_args()


def _torchvision(name: str) -> Any:
    """A network whose norms are no two alike: exporters store equal tensors once."""
    import torch
    import torchvision

    torch.manual_seed(0)
    network = getattr(torchvision.models, name)(num_classes=_CLASSES).eval()
    for part in network.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            torch.nn.init.normal_(part.bias)
            torch.nn.init.normal_(part.running_mean)  # pyright: ignore[reportArgumentType]
    return network


def _pickles(folder: Path) -> tuple[Path, Path]:
    return _saved(folder, lambda network, path: _save(network, path.with_suffix(".pt")))


def _states(folder: Path) -> tuple[Path, Path]:
    return _saved(
        folder, lambda network, path: _save(network.state_dict(), path.with_suffix(".pt"))
    )


def _save(value: Any, path: Path) -> Path:
    import torch

    torch.save(value, path)
    return path


def _resnet_onnx(folder: Path) -> tuple[Path, Path]:
    return _saved(folder, _exported)


def _alexnet_onnx(folder: Path) -> tuple[Path, Path]:
    return _saved(folder, _exported, "squeezenet1_1", "alexnet")


def _exported(network: Any, path: Path) -> Path:
    export(network, path.with_suffix(".onnx"), 1, _SIZE)
    return path.with_suffix(".onnx")


def _saved(
    folder: Path, save: Callable[[Any, Path], Path], small: str = "resnet18", big: str = "resnet50"
) -> tuple[Path, Path]:
    """Paths of a small network and a big one, written one after another."""
    warm, path = (save(_torchvision(name), folder / name) for name in (small, big))
    return warm, path


def _bert(folder: Path) -> tuple[Path, Path]:
    """A tiny BERT and BERT-base, as text classifiers."""
    from transformers import BertConfig, BertForSequenceClassification

    tiny = BertConfig(
        vocab_size=100, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32,
    )  # fmt: skip
    for name, config in (("tiny", tiny), ("base", BertConfig())):
        BertForSequenceClassification(config).save_pretrained(folder / name)
    return folder / "tiny", folder / "base"


FILES: dict[str, Callable[[Path], tuple[Path, Path]]] = {
    "resnet50-pickle": _pickles,
    "resnet50-state-dict": _states,
    "resnet50-onnx": _resnet_onnx,
    "alexnet-onnx": _alexnet_onnx,
    "bert-base-safetensors": _bert,
}
"""Kind -> what writes a small and a big file of it."""


def measure_here(warm: Path, path: Path) -> dict[str, Any]:
    """Convert `path` in this process, after `warm`; memory at most and afterwards, over weights."""
    runtime.prepare()  # as the commands and their workers do
    _convert(warm)
    _trim()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew, see proc(5)
    model = _convert(path).model
    peak = _status("VmHWM")
    weights = sum(value.nbytes for value in model.params.values())
    _trim()
    return {
        "weights_mib": round(weights / _MIB),
        "before_mib": round(before / _MIB),
        "peak_over_weights": round((peak - before) / weights, 2),
        "kept_over_weights": round((_status("VmRSS") - before) / weights, 2),
        "architecture": model.architecture,
    }


def _convert(path: Path) -> Any:
    from converters.input_form import NOTHING_SAID, InputForm
    from converters.opening import open_model

    return open_model(path, NOTHING_SAID if path.is_dir() else InputForm(image_size=(_SIZE, _SIZE)))


def _trim() -> None:
    """Give free memory back, so that what is resident is in use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _status(key: str) -> int:
    """Bytes that the kernel names under a key of /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {key}; this benchmark needs Linux")


if __name__ == "__main__":
    sys.exit(main())
