"""`DynamicQuantizeLinear` as onnxruntime's quantiser writes it before opset 11: in ten nodes.

The scale and the zero point come from the range of the values, by `ReduceMin` and `ReduceMax`. Read
one by one these two work along the images, and the scale passes the layers by. Taken together they
are one operator, of which `ranges` and `dequantised` know what it may do. Every node must be just
the quantiser's, and no other node may read what lies between them.

Source: `_get_dynamic_input_quantization_params_uint8` in onnxruntime's
`quantization/onnx_quantizer.py`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onnx import GraphProto, NodeProto, TensorProto
from onnx.helper import get_attribute_value

from converters.graph.onnx.liveness import reads

Constant = Callable[[str], float | None]
"""The number that a name stands for in every run; None where it is no single number."""
BEFORE_OWN_OPERATOR = 10
"""The last opset without `DynamicQuantizeLinear`."""
_UINT8 = TensorProto.UINT8


@dataclass(frozen=True)
class OwnRange:
    """Values quantised by their own range.

    Attributes:
        values: the name of what is quantised.
        made: names of the 8-bit values, their scale and their zero point.
        nodes: those it is written in, the first of which the reductions are.
    """

    values: str
    made: tuple[str, str, str]
    nodes: tuple[NodeProto, ...]


def own_ranges(graph: GraphProto, constant: Constant) -> Iterator[OwnRange]:
    """Every place of a graph where values are quantised so, once for the same values."""
    makers = {name: node for node in graph.node for name in node.output}
    uses = Counter(name for node in graph.node for name in set(reads(node)))
    uses.update(output.name for output in graph.output)
    known: set[str] = set()
    for node in graph.node:
        found = _found(node, makers, constant)
        if found is not None and found.values not in known and _is_closed(found, uses):
            known.add(found.values)
            yield found


def _found(node: NodeProto, makers: dict[str, NodeProto], constant: Constant) -> OwnRange | None:
    """The nodes behind a `QuantizeLinear`, if they are the quantiser's."""
    if node.op_type != "QuantizeLinear" or node.domain or len(node.input) != 3 or node.attribute:
        return None
    values, scale, zero = node.input
    try:
        by_range = _maker(makers, scale, "Div")
        spread = _maker(makers, by_range.input[0], "Sub")
        high = _maker(makers, spread.input[0], "ReduceMax", keepdims=0)
        low = _maker(makers, spread.input[1], "ReduceMin", keepdims=0)
        cast = _maker(makers, zero, "Cast", to=_UINT8)
        floor = _maker(makers, cast.input[0], "Floor")
        place = _maker(makers, floor.input[0], "Div")
        below = _maker(makers, place.input[0], "Sub")
    except KeyError:
        return None
    wired = (
        list(high.input) == list(low.input) == [values]
        and place.input[1] == scale
        and below.input[1] == low.output[0]
        and constant(by_range.input[1]) == 255
        and constant(below.input[0]) == 0
    )
    nodes = (low, high, spread, by_range, below, place, floor, cast, node)
    return OwnRange(values, (node.output[0], scale, zero), nodes) if wired else None


def _maker(makers: dict[str, NodeProto], name: str, operator: str, **attributes) -> NodeProto:
    """The node that makes a value; KeyError where it is another operator, or of another form."""
    node = makers[name]
    said = {attribute.name: get_attribute_value(attribute) for attribute in node.attribute}
    if node.op_type != operator or node.domain or said != attributes:
        raise KeyError(name)
    return node


def _is_closed(found: OwnRange, uses: Counter[str]) -> bool:
    """Whether only these nodes read what lies between them."""
    inside = [node.output[0] for node in found.nodes if node.output[0] not in found.made]
    own = Counter(name for node in found.nodes for name in set(node.input))
    return all(uses[name] == own[name] for name in inside)
