"""onnx2torch's own converters, for the operators that `extensions` leaves to it.

onnx2torch imports torchvision, and that torch's compiler: 2 s of every process that opens an ONNX
file. So it is imported where a file holds an operator that only it covers: the first versions of
the arithmetic and logical ones, and of two others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
from onnx import NodeProto, helper

from converters.graph.onnx.operators import Call, Entry, Operation, call_of, entries

if TYPE_CHECKING:
    from onnx2torch.onnx_graph import OnnxGraph
    from onnx2torch.onnx_node import OnnxNode
    from onnx2torch.utils.common import OperationConverterResult

Converter = Callable[["OnnxNode", "OnnxGraph"], "OperationConverterResult"]


class _Initializer:
    """A known value as onnx2torch's `OnnxTensor` shows it."""

    def __init__(self, data: torch.Tensor):
        self._data = data

    def to_torch(self) -> torch.Tensor:
        """A copy, because modules made from it may change it."""
        return self._data.clone()

    def to_numpy(self):
        """The same as an array."""
        return self._data.clone().numpy()


class _NodeView:
    """What onnx2torch's converters ask of a graph, for the inputs of one node."""

    def __init__(self, node: NodeProto, inputs):
        present = [(n, v) for n, v in zip(node.input, inputs, strict=True) if v is not None]
        self.initializers = {
            name: _Initializer(value.data) for name, value in present if value.kind == 0
        }
        self.value_info = {
            name: helper.make_tensor_value_info(name, 1, list(value.data.shape))
            for name, value in present
        }

    def value_as_node_output(self, name: str):
        """Raises KeyError: a known value is always an initialiser here."""
        raise KeyError(name)


def converted(node: NodeProto, call: Call, inputs) -> tuple[torch.nn.Module, list[int]]:
    """The module and the positions of the inputs that it still takes.

    Raises:
        UnsupportedOperatorError: onnx2torch has no converter or refuses this form.
    """
    from onnx2torch.onnx_node import OnnxNode

    converter = _own_converters().get((call.domain, node.op_type, call.version))
    if converter is None:
        raise call.refuse("no converter")
    view: Any = SimpleNamespace() if not node.input else _NodeView(node, inputs)
    try:
        module, mapping = converter(OnnxNode(node, unique_name=node.op_type), view)
    except (NotImplementedError, KeyError, ValueError) as error:
        raise call.refuse(f"onnx2torch: {error}") from error
    return module, [list(node.input).index(name) for name in mapping.inputs if name]


def covered() -> frozenset[tuple[str, str, int]]:
    """(domain, operator, version) of every converter that onnx2torch brings itself."""
    return frozenset(_own_converters())


@cache
def _own_converters() -> dict[tuple[str, str, int], Converter]:
    """onnx2torch's registry as it is without ours."""
    from onnx2torch.node_converters import registry

    return {
        (key.domain, key.operation_type, key.version): converter
        for key, converter in registry._CONVERTER_REGISTRY.items()
    }


@cache
def extend_onnx2torch() -> None:
    """Puts what onnx2torch lacks and we have into its registry, for `onnx2torch.convert`.

    Nothing here needs it: for those who turn ONNX files into torch modules in their own code.
    """
    from onnx2torch.node_converters.registry import add_converter

    import converters.graph.onnx.extensions  # noqa: F401  (registers them)

    theirs = covered()
    for key, entry in entries().items():
        domain, name, version = key
        if key not in theirs:
            add = add_converter(operation_type=name, version=version, domain=domain)
            add(_as_converter(version, entry))


def _as_converter(version: int, entry: Entry) -> Converter:
    """The function as onnx2torch's registry wants it."""
    from onnx2torch.utils.common import OperationConverterResult, onnx_mapping_from_node

    def convert(node: OnnxNode, graph: OnnxGraph) -> OperationConverterResult:
        names = onnx_mapping_from_node(node).inputs
        constants = graph.initializers
        bound = {
            position: constants[names[position]].to_numpy()
            for position in entry.static
            if position < len(names) and names[position] in constants
        }
        module = Operation(entry.function, call_of(node.proto, version), bound)
        inputs = tuple(name for k, name in enumerate(names) if k not in bound)
        mapping = onnx_mapping_from_node(node)._replace(inputs=inputs)
        return OperationConverterResult(torch_module=module, onnx_mapping=mapping)

    return convert
