"""What a file says of its values, beside what they are.

onnxruntime believes the file wherever it cannot infer a shape itself: of what loops, branches and
sequences give, of the inputs of a body, of what is picked by `NonZero`. It then folds `Shape` by
what the file says, so that a false description makes another network. Seen in onnxruntime 1.32.0.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from onnx import GraphProto, ModelProto, TypeProto, ValueInfoProto

from converters.errors import CorruptFileError, safe_repr
from converters.graph.onnx.built import Scope, Value
from converters.graph.onnx.check import inner_graphs
from converters.graph.onnx.liveness import reads
from converters.graph.onnx.types import TORCH_TYPES

_TAKING = frozenset("SequenceAt ConcatFromSequence SequenceMap".split())


def infos_of(graph: GraphProto, is_inner: bool) -> list[ValueInfoProto]:
    """The descriptions in a graph that a runtime may go by, those of its own inputs apart.

    An output of the whole model that no node reads decides nothing: files with stale shapes there
    are common, and onnxruntime warns of them and runs.
    """
    read = {name for node in graph.node for name in reads(node)}
    outputs = [_without_shape(o, not is_inner and o.name not in read) for o in graph.output]
    return [*graph.value_info, *outputs]


def _without_shape(info: ValueInfoProto, leave_out: bool) -> ValueInfoProto:
    if not leave_out or not info.type.HasField("tensor_type"):
        return info
    copy = ValueInfoProto()
    copy.CopyFrom(info)
    copy.type.tensor_type.ClearField("shape")
    return copy


def refuse(text: str) -> None:
    """Raise CorruptFileError with the sentence."""
    raise CorruptFileError(text)


@dataclass(frozen=True)
class Descriptions:
    """Compares values with what a file says of them.

    Attributes:
        misdescribed: told of other shapes; None where these are not those of the file.
        sequences: whether tensors are taken out of sequences. Else shapes of their elements decide
            nothing; ONNX's own conformance files have false ones.
    """

    misdescribed: Callable[[str], None] | None = refuse
    sequences: bool = True

    def check(self, infos: Iterable[ValueInfoProto], scope: Scope) -> None:
        """Compare the values of these names; `infos` as `infos_of` gives them, or a body's inputs.

        Raises CorruptFileError where a value is of another type.
        """
        for info in infos:
            value = scope.get(info.name)
            _check_types(info, value)
            counts = self.sequences or not isinstance(value and value.data, list)
            said = _other_shape(info, value) if self.misdescribed and counts else ""
            if self.misdescribed and said:
                self.misdescribed(said)


def takes_from_sequences(model: ModelProto) -> bool:
    """Whether a node anywhere in a model makes a tensor of a sequence."""
    graphs = [model.graph, *model.functions]
    while graphs:
        for node in graphs.pop().node:
            if node.op_type in _TAKING:
                return True
            graphs += inner_graphs(node)
    return False


def _check_types(info: ValueInfoProto, value: Value | None) -> None:
    """Raise CorruptFileError where a value is of another type than the file says."""
    for said, data in _pairs(info.type, None if value is None else value.data):
        if not said.elem_type or not isinstance(data, torch.Tensor):
            continue
        if TORCH_TYPES.get(said.elem_type) != data.dtype:
            raise CorruptFileError(
                f"the file says that value {safe_repr(info.name)} is of type "
                f"{safe_repr(said.elem_type)}, and it is {data.dtype}; export the model again"
            )


def _other_shape(info: ValueInfoProto, value: Value | None) -> str:
    """A sentence where a value has another shape than the file says; "" where it has that one.

    Sizes that are named or below 0 are open. A size of 0 is none of these: onnxruntime takes it as
    it stands.
    """
    for said, data in _pairs(info.type, None if value is None else value.data):
        if said.HasField("shape") and not _fits(said.shape, tuple(data.shape)):
            return (
                f"the file says that value {safe_repr(info.name)} is of shape "
                f"{_shown(said.shape)}, and it is {list(data.shape)}: onnxruntime may believe the "
                "file and run another network; export the model again, or take its `value_info` out"
            )
    return ""


def _pairs(said: TypeProto, data: Any) -> Iterator[tuple[TypeProto.Tensor, Any]]:
    """Each tensor of a value, and what is said of it; those of a sequence share one description."""
    kind = said.WhichOneof("value")
    if kind == "tensor_type" and isinstance(data, (torch.Tensor, np.ndarray)):
        yield said.tensor_type, data
    elif kind == "optional_type":
        yield from _pairs(said.optional_type.elem_type, data)
    elif kind == "sequence_type":
        for part in data if isinstance(data, list) else ():
            yield from _pairs(said.sequence_type.elem_type, part)


def _fits(said, shape: tuple[int, ...]) -> bool:
    sizes = zip(said.dim, shape, strict=False)
    return len(said.dim) == len(shape) and all(_size(d) in (None, n) for d, n in sizes)


def _size(dim) -> int | None:
    return dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else None


def _shown(said) -> list[int | str]:
    sizes: Iterable[int | None] = (_size(dim) for dim in said.dim)
    return ["?" if size is None else size for size in sizes][:16]
