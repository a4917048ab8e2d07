"""Structural checks of a parsed ONNX model, before anything is computed.

What two readers could take for two networks is refused, also where onnxruntime happens to read it
as this package would: another version of it, or another runtime, may not.
"""

import math
from collections.abc import Iterable, Sequence, Set

import onnx
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, defs

from converters.errors import (
    ConversionError,
    CorruptFileError,
    TooLargeError,
    UnsupportedOperatorError,
    safe_repr,
)
from converters.graph.onnx.attributes import check_attributes, domain_of
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.types import torch_type

_OLDEST_IR = 3
_MAX_DIMENSIONS = 16
# onnxruntime has operators of its own there, and runs them, not a function of the same name.
_TAKEN_DOMAINS = ("ai.onnx", "com.microsoft", "com.ms", "org.pytorch")

Scopes = tuple[Set[str], ...]


def check_model(model: ModelProto, limits: OnnxLimits, outside: Set[str] = frozenset()) -> None:
    """Refuse a model that no program should try to run.

    Args:
        model: the parsed file.
        limits: caps on sizes.
        outside: initialisers whose data was read from external files already.

    Raises:
        CorruptFileError: no graph or opset, values made twice, out of order or never, dimensions
            that contradict the data, or a second way to read it.
        UnsupportedOperatorError: an older format than IR 3, an unknown domain, sparse weights.
        TooLargeError: a cap is exceeded.
    """
    if not model.HasField("graph"):
        raise CorruptFileError("the file holds no graph; it is no ONNX model")
    if not _OLDEST_IR <= model.ir_version <= onnx.IR_VERSION:
        older = model.ir_version < _OLDEST_IR
        bound = f"older than {_OLDEST_IR}" if older else f"newer than {onnx.IR_VERSION}"
        raise UnsupportedOperatorError(
            f"IR version {safe_repr(model.ir_version)} is {bound}; export the model anew"
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
    if not model.graph.output:
        raise CorruptFileError("the graph has no output")
    _check_declared_weights(model.graph)
    _check_graph(model.graph, (), limits)
    for function in model.functions:
        _check_function(function, limits)


def _check_opsets(model: ModelProto) -> None:
    if not model.opset_import:
        raise CorruptFileError("the file imports no operator set")
    _check_unique([domain_of(o.domain) for o in model.opset_import], "operator set")
    newest = defs.onnx_opset_version()
    for opset in model.opset_import:
        if domain_of(opset.domain) == "" and not 1 <= opset.version <= newest:
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


def _check_declared_weights(graph: GraphProto) -> None:
    """Weights that are listed as inputs too are what the list says."""
    weights = {tensor.name: tensor for tensor in graph.initializer}
    for info in graph.input:
        tensor, said = weights.get(info.name), info.type.tensor_type
        if tensor is None:
            continue
        sizes = [d.dim_value if d.HasField("dim_value") else None for d in said.shape.dim]
        fits = not said.HasField("shape") or len(sizes) == len(tensor.dims)
        fits = fits and all(n in (None, m) for n, m in zip(sizes, tensor.dims, strict=False))
        if not fits or said.elem_type not in (0, tensor.data_type):
            raise CorruptFileError(
                f"weight {safe_repr(info.name)} is declared with another shape or type"
            )


def _check_graph(graph: GraphProto, outer: Scopes, limits: OnnxLimits) -> None:
    """Values are made once, before they are used; also in the graphs inside."""
    if graph.sparse_initializer:
        raise UnsupportedOperatorError("sparse weights are not supported")
    weights = [tensor.name for tensor in graph.initializer]
    inputs = [info.name for info in graph.input]
    outputs = [info.name for info in graph.output]
    _check_unique(weights, "weight")
    _check_unique(inputs, "input")
    if not outer:
        _check_unique(outputs, "output")
    known = {*weights, *inputs}
    hiding = [name for name in weights if any(name in names for names in outer)]
    if hiding:
        raise CorruptFileError(
            f"weight {safe_repr(hiding[0])} of a branch or loop has the name of a value outside,"
            " which runtimes read differently"
        )
    _check_order(graph.node, (*outer, known), limits)
    for name in outputs:
        if not any(name in names for names in (*outer, known)):
            raise CorruptFileError(f"output {safe_repr(name)} is never made")


def _check_function(function: FunctionProto, limits: OnnxLimits) -> None:
    domain = domain_of(function.domain)
    taken = any(domain == name or domain.startswith(f"{name}.") for name in _TAKEN_DOMAINS)
    if not domain or taken:
        raise CorruptFileError(
            f"the file defines {safe_repr(function.name)} of domain {safe_repr(domain)} itself, "
            "where runtimes have operators of their own; which of both runs is not certain"
        )
    _check_unique([domain_of(o.domain) for o in function.opset_import], "operator set")
    _check_unique(list(function.input), "input")
    names = [*function.attribute, *(a.name for a in function.attribute_proto)]
    _check_unique(names, "attribute")
    known = set(function.input)
    _check_order(function.node, (known,), limits, inside=True)
    for name in function.output:
        if name not in known:
            raise CorruptFileError(f"output {safe_repr(name)} of a function is never made")


def _check_order(
    nodes: Sequence[NodeProto], scopes: Scopes, limits: OnnxLimits, inside: bool = False
) -> None:
    """Adds what the nodes make to the last of `scopes`, in order."""
    known = scopes[-1]
    assert isinstance(known, set)
    later = {name for node in nodes for name in node.output if name}
    for node in nodes:
        for name in node.input:
            if name and not any(name in names for names in scopes):
                raise CorruptFileError(_unknown(node, name, name in later))
        check_attributes(node, inside)
        for graph in inner_graphs(node):
            if len(scopes) > limits.depth:
                raise TooLargeError(
                    f"graphs are nested deeper than OnnxLimits.depth = {limits.depth}"
                )
            _check_graph(graph, scopes, limits)
        for name in filter(None, node.output):
            if any(name in names for names in scopes):
                raise CorruptFileError(f"value {safe_repr(name)} is made twice")
            known.add(name)


def _unknown(node: NodeProto, name: str, later: bool) -> str:
    reason = (
        "made later: the nodes form a cycle, or are out of order inside a branch or function; "
        "export the network again"
        if later
        else "never made: a weight or an input is missing"
    )
    return f"{safe_repr(node.op_type)} node {safe_repr(node.name)} uses {safe_repr(name)}, {reason}"


def inner_graphs(node: NodeProto) -> Iterable[GraphProto]:
    """The graphs that a node holds as attributes: its branches, or the body of its loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _check_unique(names: list[str], kind: str) -> None:
    if len(set(names)) != len(names):
        raise CorruptFileError(f"two {kind}s have the same name")


def check_signature(node: NodeProto, domain: str, version: int) -> None:
    """Refuse a node with more inputs or outputs than its operator has, or needed ones left out."""
    try:
        schema = defs.get_schema(node.op_type, domain=domain, max_inclusive_version=version)
    except defs.SchemaError:
        return
    given, made = len(node.input), len(node.output)
    if given > schema.max_input or made > schema.max_output or made < schema.min_output:
        raise ConversionError(
            f"{given} inputs and {made} outputs, expected {schema.min_input} to "
            f"{schema.max_input} and {schema.min_output} to {schema.max_output}"
        )
