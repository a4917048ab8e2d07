"""The front end behind ONNX's own backend interface, so that ONNX's suites can run it.

A case of the suites gives every input, also those that decide shapes, so a model is built when its
inputs are known and for these alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, TensorProto, numpy_helper
from onnx.backend.base import Backend, BackendRep

from converters.errors import UnsupportedOperatorError
from converters.graph.onnx.check import check_model
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.torch_module import OnnxModule, build, graph_inputs
from converters.graph.onnx.types import numpy_from, tensor_from


class TorchRep(BackendRep):
    """A checked model that is built and run by torch."""

    def __init__(self, model: ModelProto):
        self._model = model

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs as arrays; sequences as lists."""
        names = [info.name for info in graph_inputs(self._model)]
        examples = dict(zip(names, map(_to_torch, inputs), strict=False))
        module = build(self._model, examples, strict=False, limits=OnnxLimits())
        return self._results(module, examples)

    def _results(self, module: OnnxModule, examples: Mapping[str, Any]) -> tuple[Any, ...]:
        with torch.no_grad():
            results = module(*examples.values())
        return tuple(map(_to_numpy, results if isinstance(results, tuple) else (results,)))


class JaxRep(TorchRep):
    """The same, captured and replayed in JAX, in 64 bits where the file asks for them."""

    def _results(self, module: OnnxModule, examples: Mapping[str, Any]) -> tuple[Any, ...]:
        import jax

        from converters.graph.replay import run
        from converters.graph.tape import capture

        inputs = list(examples.values())
        with torch.no_grad():
            results = module(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        if not all(isinstance(value, torch.Tensor) for value in (*inputs, *results)):
            raise UnsupportedOperatorError("sequences, optional values and text stay in torch")
        captured = capture(module, inputs)
        with jax.enable_x64(True):
            given = [numpy_from(value) for value in inputs]
            return tuple(np.asarray(x) for x in run(captured.graph, captured.params, given))


class TorchBackend(Backend):
    """`prepare` and `run` as onnx.backend.test wants them, by torch alone."""

    rep = TorchRep

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", **_: Any) -> TorchRep:
        """Check a model and keep it."""
        check_model(model, OnnxLimits())
        return cls.rep(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Conversion runs on the CPU."""
        return device == "CPU"


class JaxBackend(TorchBackend):
    """The whole way to JAX."""

    rep = JaxRep


def _to_torch(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_to_torch(item) for item in value]
    if isinstance(value, TensorProto):
        value = numpy_helper.to_array(value)
    if value is None or np.asarray(value).dtype == object:
        return value
    return tensor_from(np.asarray(value))


def _to_numpy(value: Any) -> Any:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_to_numpy(item) for item in value]
    return numpy_from(value) if isinstance(value, torch.Tensor) else value
