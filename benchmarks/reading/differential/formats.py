"""One row a format: how a mutant is made, how we open it, and how the runtime does."""

import io
import pickle
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.reading.differential import (
    bare,
    containers,
    networks,
    onnx_changes,
    programs,
    scripts,
    states,
)
from benchmarks.reading.differential.onnx_seed import SHAPE as GRAPH_SHAPE
from benchmarks.reading.differential.seeds import NETWORKS, network
from benchmarks.reading.differential.serve import example
from converters.input_form import InputForm

Arrays = Mapping[str, np.ndarray]
Random = np.random.Generator
SHAPE = (1, 3, 32, 32)


@dataclass(frozen=True)
class Format:
    """A container with what is in it.

    Attributes:
      name: for records.
      suffix: of the file.
      mutant: random -> bytes and the name of what was changed.
      openings: of the runtime, names in `serve.OPENINGS`.
      read: our opening; "logits", or "tensor:NAME" for every tensor.
      shape: of the example, channels first.
    """

    name: str
    suffix: str
    mutant: Callable[[Random], tuple[bytes, str]]
    openings: tuple[str, ...]
    read: Callable[[Path], Arrays]
    shape: tuple[int, ...] = SHAPE


def read_torch(path: Path) -> Arrays:
    """A file of torch or safetensors as jaxtroj opens it.

    Raises:
      ConverterError: it is refused.
    """
    from converters.artifact import open_artifact
    from converters.conversion import convert

    artifact = open_artifact(path)
    if not artifact.weights.modules:
        return {f"tensor:{name}": array for name, array in artifact.weights.tensors.items()}
    model = convert(artifact, InputForm(), SHAPE[2:])  # graphs take images of one size
    return {"logits": np.asarray(model(example(SHAPE).transpose(0, 2, 3, 1)))}


def read_graph(path: Path) -> Arrays:
    """An ONNX file or exported program as jaxtroj opens it.

    Raises:
      ConverterError: it is refused.
    """
    from converters.opening import open_model

    opened = open_model(path, InputForm(layout="NCHW", bounds=(0, 1)), usual_size=GRAPH_SHAPE[2:])
    return {"logits": np.asarray(opened.model(example(GRAPH_SHAPE).transpose(0, 2, 3, 1)))}


def saved(value: Any, zipped: bool, protocol: int = 2) -> bytes:
    """What torch.save writes."""
    import torch

    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(value, out, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


@cache
def _network_file(name: str, zipped: bool) -> bytes:
    return saved(network(name), zipped)


@cache
def _state_file(kind: str) -> bytes:
    from safetensors.torch import save

    from benchmarks.reading.fuzz_seeds import _tar

    state = network("shufflenet").state_dict()
    if kind == "safetensors":
        return save(state)
    return _tar(network("resnet")) if kind == "tar" else saved(state, kind == "zip")


def _others(zipped: bool) -> list[bytes]:
    """Files that a mutant may be spliced with."""
    kinds = [_state_file(kind) for kind in ("zip", "legacy", "tar", "safetensors")]
    return [*kinds, _network_file("bottleneck", zipped)]


def _saved_or_not(make: Callable[[], tuple[Any, str]], zipped: bool, random: Random):
    """A mutated object in its container; what torch cannot save counts as the object unchanged."""
    protocol = int(random.choice((2, 2, 2, 3, 4, 5)))
    value, what = make()
    try:
        return saved(value, zipped, protocol), what
    except Exception as error:  # noqa: BLE001  torch raises many types for what it cannot save
        return pickle.dumps(type(error).__name__), f"{what} (not saved)"


def _network_mutant(zipped: bool) -> Callable[[Random], tuple[bytes, str]]:
    def mutant(random: Random) -> tuple[bytes, str]:
        name = list(NETWORKS)[int(random.integers(len(NETWORKS)))]
        if random.random() < 0.35:
            return containers.mutate(_network_file(name, zipped), _others(zipped), random)
        return _saved_or_not(lambda: networks.mutate(network(name), random), zipped, random)

    return mutant


def _state_mutant(kind: str) -> Callable[[Random], tuple[bytes, str]]:
    def mutant(random: Random) -> tuple[bytes, str]:
        if kind in ("tar", "safetensors") or random.random() < 0.5:
            return containers.mutate(_state_file(kind), _others(kind == "zip"), random)
        state = network("shufflenet").state_dict()
        return _saved_or_not(lambda: states.mutate(state, random), kind == "zip", random)

    return mutant


_LOAD = ("torch.load", "torch.load mmap", "torch.load weights_only", "torch.jit.load")
FORMATS = (
    Format("torch zip, network", ".pt", _network_mutant(True), _LOAD, read_torch),
    Format("torch zip, state dict", ".pt", _state_mutant("zip"), _LOAD, read_torch),
    Format("legacy stream, network", ".pt", _network_mutant(False), _LOAD, read_torch),
    Format("legacy stream, state dict", ".pt", _state_mutant("legacy"), _LOAD, read_torch),
    Format("torch tar", ".tar", _state_mutant("tar"), _LOAD, read_torch),
    Format(
        "safetensors", ".safetensors", _state_mutant("safetensors"), ("safetensors",), read_torch
    ),
    Format(
        "TorchScript",
        ".pt",
        scripts.mutant,
        ("torch.jit.load", "torch.load"),
        read_torch,
    ),
    Format(
        "bare pickle", ".pkl", bare.mutant, ("pickle.load", "numpy.load", "torch.load"), read_torch
    ),
    Format("ONNX", ".onnx", onnx_changes.onnx_mutant, ("onnxruntime",), read_graph, GRAPH_SHAPE),
    Format(
        "exported program",
        ".pt2",
        programs.program_mutant,
        ("torch.export.load",),
        read_graph,
        GRAPH_SHAPE,
    ),
)
