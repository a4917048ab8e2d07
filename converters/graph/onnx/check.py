"""Structural checks of a parsed ONNX model, before anything is computed."""

import math
from collections.abc import Set

from onnx import GraphProto, ModelProto, TensorProto, defs

from converters.errors import (
    CorruptFileError,
    TooLargeError,
    UnsupportedOperatorError,
    safe_repr,
)
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.types import torch_type

_OLDEST_IR = 3
_MAX_DIMENSIONS = 16


def check_model(model: ModelProto, limits: OnnxLimits, outside: Set[str] = frozenset()) -> None:
    """Refuse a model that no program should try to run.

    Args:
        model: the parsed file.
        limits: caps on sizes.
        outside: initialisers whose data was read from external files already.

    Raises:
        CorruptFileError: no graph or opset, values made twice, out of order or never, dimensions
            that contradict the data.
        UnsupportedOperatorError: an older format than IR 3, an unknown domain, sparse weights.
        TooLargeError: a cap is exceeded.
    """
    if not model.HasField("graph"):
        raise CorruptFileError("the file holds no graph; it is no ONNX model")
    if model.ir_version < _OLDEST_IR:
        raise UnsupportedOperatorError(
            f"IR version {model.ir_version} is older than {_OLDEST_IR}; export the model anew"
        )
    _check_opsets(model)
    if len(model.graph.node) > limits.nodes:
        raise TooLargeError(f"{len(model.graph.node)} nodes, more than OnnxLimits.nodes")
    for tensor in model.graph.initializer:
        check_tensor(tensor, limits)
        if tensor.data_location == TensorProto.EXTERNAL and tensor.name not in outside:
            raise CorruptFileError(
                f"tensor {safe_repr(tensor.name)} lies in a file that was not read"
            )
    _check_graph(model.graph)


def _check_opsets(model: ModelProto) -> None:
    if not model.opset_import:
        raise CorruptFileError("the file imports no operator set")
    newest = defs.onnx_opset_version()
    for opset in model.opset_import:
        if opset.domain in ("", "ai.onnx") and not 1 <= opset.version <= newest:
            raise UnsupportedOperatorError(
                f"opset {safe_repr(opset.version)} is not one of 1 to {newest}, which are known "
                "here"
            )


def check_tensor(tensor: TensorProto, limits: OnnxLimits) -> int:
    """Number of elements of a tensor; refuses absurd dimensions and unknown types."""
    torch_type(tensor.data_type)
    if len(tensor.dims) > _MAX_DIMENSIONS or any(dim < 0 for dim in tensor.dims):
        raise CorruptFileError(f"tensor {safe_repr(tensor.name)} has impossible dimensions")
    elements = math.prod(tensor.dims)
    if elements > limits.tensor_elements:
        raise TooLargeError(
            f"tensor {safe_repr(tensor.name)} has {safe_repr(elements)} elements, more than "
            f"OnnxLimits.tensor_elements = {limits.tensor_elements}"
        )
    return elements


def _check_graph(graph: GraphProto) -> None:
    """Values are made once, before they are used."""
    if graph.sparse_initializer:
        raise UnsupportedOperatorError("sparse weights are not supported")
    weights = [tensor.name for tensor in graph.initializer]
    inputs = [info.name for info in graph.input]
    _check_unique(weights, "weight")
    _check_unique(inputs, "input")
    known = {*weights, *inputs}
    _check_order(graph, known)
    for info in graph.output:
        if info.name not in known:
            raise CorruptFileError(f"output {safe_repr(info.name)} is never made")
    if not graph.output:
        raise CorruptFileError("the graph has no output")


def _check_order(graph: GraphProto, known: set[str]) -> None:
    """Adds what the nodes make to `known`."""
    made_later = {name for node in graph.node for name in node.output if name}
    for node in graph.node:
        for name in node.input:
            if name and name not in known:
                reason = (
                    "made later: the nodes are out of order or form a cycle"
                    if name in made_later
                    else "never made: a weight or an input is missing"
                )
                raise CorruptFileError(
                    f"{safe_repr(node.op_type)} node {safe_repr(node.name)} uses "
                    f"{safe_repr(name)}, {reason}"
                )
        for name in filter(None, node.output):
            if name in known:
                raise CorruptFileError(f"value {safe_repr(name)} is made twice")
            known.add(name)


def _check_unique(names: list[str], kind: str) -> None:
    if len(set(names)) != len(names):
        raise CorruptFileError(f"two {kind}s of the graph have the same name")
