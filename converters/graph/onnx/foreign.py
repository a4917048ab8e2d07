"""onnx2torch's own converters, for the operators that `extensions` leaves to it."""

from types import SimpleNamespace

import torch
from onnx import NodeProto, helper
from onnx2torch.onnx_node import OnnxNode

from converters.graph.onnx.operators import Call, onnx2torch_converter


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
    converter = onnx2torch_converter(call.domain, node.op_type, call.version)
    if converter is None:
        raise call.refuse("no converter")
    view = SimpleNamespace() if not node.input else _NodeView(node, inputs)
    try:
        module, mapping = converter(OnnxNode(node, unique_name=node.op_type), view)  # pyright: ignore
    except (NotImplementedError, KeyError, ValueError) as error:
        raise call.refuse(f"onnx2torch: {error}") from error
    return module, [list(node.input).index(name) for name in mapping.inputs if name]
