"""This front end behind ONNX's own backend interface, so that ONNX's conformance suites can run it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.base import Backend, BackendRep

from converters.graph.onnx.check import check_model
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.to_torch import build, graph_inputs
from converters.graph.onnx.types import numpy_from, tensor_from


class TorchRep(BackendRep):
    """A model waiting for inputs; their shapes are known only then, so it is built then.

    Attributes:
        strict: refuse what depends on the values of the inputs, as `to_torch` does.
    """

    def __init__(self, model: ModelProto, strict: bool = False):
        self._model = model
        self.strict = strict

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs as arrays; sequences as lists."""
        names = [info.name for info in graph_inputs(self._model)]
        examples = dict(zip(names, map(_to_torch, inputs), strict=False))
        module = build(self._model, examples, strict=self.strict, limits=OnnxLimits())
        with torch.no_grad():
            results = module(*examples.values())
        results = results if isinstance(results, tuple) else (results,)
        return tuple(map(_to_numpy, results))


class TorchBackend(Backend):
    """`prepare` and `run` as onnx.backend.test wants them."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_: Any) -> TorchRep:
        """Check a model and keep it."""
        check_model(model, OnnxLimits())
        return TorchRep(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Conversion runs on the CPU."""
        return device == "CPU"


def _to_torch(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_to_torch(item) for item in value]
    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    return None if value is None else tensor_from(np.asarray(value))


def _to_numpy(value: Any) -> Any:
    if isinstance(value, Sequence):
        return [_to_numpy(item) for item in value]
    return None if value is None else numpy_from(value)
