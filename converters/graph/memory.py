"""Calls whose results say how tensors lie in memory, which a graph does not know.

`as_strided` picks elements by where they lie: of what a layer made that is decided by the kernel,
the formats of its weights and of the image. Behind one a second network can stand that a scan
does not see. So a program may pick by strides from a weight that lies in order, and from no other.
"""

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from converters.errors import UnsupportedOperatorError
from converters.graph.export_inputs import placeholders

STATE = (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR)
_PICKS = "aten.as_strided.default"
_BY_MEMORY = frozenset(
    """
    as_strided as_strided_ as_strided_copy as_strided_scatter _reshape_alias _reshape_alias_copy
    is_contiguous resize_as storage_offset stride sym_is_contiguous sym_storage_offset sym_stride
    """.split()
)


def refuse_layouts(program: ExportedProgram) -> None:
    """Refuse calls that depend on how a tensor lies in memory.

    Raises:
      UnsupportedOperatorError: `as_strided` of anything but a weight that lies in order, or
        another such call.
    """
    ordered = _ordered(program)
    for node in program.graph.nodes:
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            continue
        if target.overloadpacket.__name__ not in _BY_MEMORY or target.namespace != "aten":
            continue
        base = node.args[0] if node.args else node.kwargs.get("self")
        if str(target) != _PICKS or base not in ordered:
            raise UnsupportedOperatorError(
                f"{target} at {node.name} depends on how a tensor lies in memory, expected values "
                "alone, or as_strided of a weight that is contiguous; write it with reshape, "
                "transpose, unfold or indexing and export the network again",
                str(target),
            )


def _ordered(program: ExportedProgram) -> set[torch.fx.Node]:
    """Placeholders of weights and constants that fill their memory, in order."""
    tensors = {**program.constants, **program.state_dict}
    return {
        node
        for node, spec in placeholders(program)
        if spec.kind in STATE and _lies_in_order(tensors.get(str(spec.target)))
    }


def _lies_in_order(tensor: object) -> bool:
    if not isinstance(tensor, torch.Tensor) or not tensor.is_contiguous():
        return False
    return tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
