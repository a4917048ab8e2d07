"""Architectural backdoors: what in a network's calls, not in its weights, may wait for a trigger.

A static check of a captured graph. It looks for comparisons of what the image decides that switch
more than the element compared (Bober-Irizar et al., "Architectural Backdoors in Neural Networks",
CVPR 2023, https://arxiv.org/abs/2206.07840), for pixels that reach the logits past the trained
layers (other than the scale of what was quantised, `dequantised`), for small paths beside the
network, for constants like patterns laid over the image, and for constants beside which values are
rounded away (`offsets`). ReLU, clipping, pooling and activations written as comparisons element by
element are none of it.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from converters.findings import SUSPICION
from converters.graph.dequantised import Dequantisation
from converters.graph.graph import CONSTANT, INPUT, PARAM, Graph, Node
from converters.graph.offsets import rounded_away
from converters.graph.recorder import Captured
from converters.graph.structure import base_name

_MOST = 5
_EQUALITIES = {"eq", "ne"}
_ORDERS = {"lt", "le", "gt", "ge", "less", "greater", "sign", "heaviside"}
# What turns a condition into another one, or into a number, element by element.
_CONDITIONS = {
    *("logical_not", "logical_and", "logical_or", "logical_xor", "bitwise_not", "bitwise_and"),
    *("bitwise_or", "bitwise_xor", "_to_copy", "to", "clone", "view", "reshape", "unsqueeze"),
    *("squeeze", "_unsafe_view", "permute", "transpose", "flatten"),
}
_LAYERS = {
    *("convolution", "_convolution", "conv1d", "conv2d", "conv3d", "linear", "addmm", "mm"),
    *("matmul", "bmm", "baddbmm", "einsum", "bilinear", "lstm", "gru", "rnn_tanh", "rnn_relu"),
}
_JOINS = {
    *("add", "sub", "rsub", "mul", "div", "where", "cat", "stack", "maximum", "minimum", "pow"),
    *("index_put", "scatter", "scatter_add", "slice_scatter", "select_scatter", "copy", "addcmul"),
}
_LOOKUPS = {"index", "gather", "index_select", "embedding", "take"}
# A path of its own below this share of the other's weights is no second network.
_SMALL_SHARE = 0.05
_MOST_SHARE = 0.25


@dataclass
class _Traces:
    """What is known of every value.

    Attributes:
      graph: of the network.
      fewest: trained layers on the shortest way from the image; values it does not decide lack.
      nearest: bits of the trained layers that the value comes from without another in between.
      behind: bits of all trained layers it comes from.
      learned: values made of weights alone.
      sizes: weights of each trained layer.
    """

    graph: Graph
    fewest: dict[str, int] = field(default_factory=lambda: {f"{INPUT}0": 0})
    nearest: dict[str, int] = field(default_factory=lambda: {f"{INPUT}0": 0})
    behind: dict[str, int] = field(default_factory=lambda: {f"{INPUT}0": 0})
    learned: set[str] = field(default_factory=set)
    sizes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._quantised = Dequantisation(self.graph, self.fewest)

    def fed(self, node: Node) -> list[str]:
        """What a call takes of the image; a scale that it only takes back is none of it."""
        scale = self._quantised.scale_taken_back(node)
        return [n for n in dict.fromkeys(node.refs()) if n in self.fewest and n != scale]

    def add(self, node: Node) -> None:
        """Take in a call, those before it being known."""
        names, fed = list(dict.fromkeys(node.refs())), self.fed(node)
        weights = [n for n in names if n.startswith(PARAM) or n in self.learned]
        made = [name for name in node.outputs if name is not None]
        if not fed:
            self.learned.update(made if weights else ())
            return
        fewest = min(self.fewest[name] for name in fed)
        nearest = behind = 0
        for name in fed:
            nearest, behind = nearest | self.nearest[name], behind | self.behind[name]
        if base_name(node) in _LAYERS and weights:
            nearest = 1 << len(self.sizes)
            behind, fewest = behind | nearest, fewest + 1
            self.sizes.append(sum(math.prod(self.graph.specs[n].shape) for n in weights))
        for name in made:
            self.fewest[name], self.nearest[name] = fewest, nearest
            self.behind[name] = behind

    def weights(self, bits: int) -> int:
        """Weights of these trained layers."""
        return sum(size for number, size in enumerate(self.sizes) if bits >> number & 1)


def inspect(captured: Captured) -> tuple[str, ...]:
    """What looks like an architectural backdoor, a sentence each; or one that nothing does.

    Args:
      captured: for one image, with one output.
    """
    graph = captured.graph
    traces = _Traces(graph)
    for node in graph.nodes:
        traces.add(node)
    found = [
        *_comparisons(graph, traces),
        *_bypasses(graph, traces),
        *_patterns(captured, traces),
        *rounded_away(captured),
    ]
    if not found:
        count = len(graph.nodes)
        return (f"none of the {count} operators depends on a comparison of its input",)
    more = [f"{len(found) - _MOST} more operators like these"] if len(found) > _MOST else []
    return tuple(f"{SUSPICION}: {text}" for text in [*found[:_MOST], *more])


def _place(node: Node) -> str:
    return f"{node.op} at {node.source or 'the top of the network'}"


def _size(graph: Graph, name: str) -> int:
    return math.prod(graph.specs[name].shape)


def _comparisons(graph: Graph, traces: _Traces) -> Iterator[str]:
    users: dict[str, list[Node]] = {}
    for node in graph.nodes:
        for name in set(node.refs()):
            users.setdefault(name, []).append(node)
    for node in graph.nodes:
        fed = [name for name in node.refs() if name in traces.fewest]
        if not fed or node.outputs[0] is None:
            continue
        name = base_name(node)
        if name in _LOOKUPS:
            if any(_is_index(graph, n) and not traces.behind[n] for n in fed):
                yield f"{_place(node)} picks values by what pixels say"
            continue
        if not _compares(graph, node, name) or len(set(fed)) < len(fed):  # x != x: not a number
            continue
        if name in _EQUALITIES:
            yield f"{_place(node)} tests whether values that the image decides are equal"
        elif min(traces.fewest[n] for n in fed) == 0:
            yield f"{_place(node)} compares pixels before any trained layer"
        elif _switches(graph, node.outputs[0], users):
            yield f"{_place(node)} compares what the image decides and switches more than that"


def _is_index(graph: Graph, name: str) -> bool:
    return "float" not in graph.specs[name].dtype


def _compares(graph: Graph, node: Node, name: str) -> bool:
    if name in _EQUALITIES | _ORDERS:
        return True
    made = node.outputs[0]
    return (
        name in ("_to_copy", "to")
        and made is not None
        and graph.specs[made].dtype == "bool"
        and all("float" in graph.specs[ref].dtype for ref in node.refs())
    )


def _switches(graph: Graph, name: str, users: dict[str, list[Node]]) -> bool:
    """Whether a condition decides more elements than it has, or is summed up to decide them."""
    size, pending, seen = _size(graph, name), [name], {name}
    while pending:
        for user in users.get(pending.pop(), []):
            for made in filter(None, user.outputs):
                if _size(graph, made) != size:
                    return True
                if base_name(user) in _CONDITIONS and made not in seen:
                    seen.add(made)
                    pending.append(made)
    return False


def _bypasses(graph: Graph, traces: _Traces) -> Iterator[str]:
    output = graph.outputs[0].name
    joined = False
    tail = _tail(graph, traces)
    for node in graph.nodes:
        fed = traces.fed(node)
        if len(fed) < 2 or base_name(node) not in _JOINS:
            continue
        raw = [n for n in fed if not traces.behind[n]]
        if raw and len(raw) < len(fed):
            joined = True
            yield f"{_place(node)} lets pixels past the trained layers"
        elif node.outputs[0] in tail and (share := _smaller_share(fed, traces)) is not None:
            yield (
                f"{_place(node)} adds a path of its own to the logits, with {share:.1%} of the "
                "weights beside it"
            )
    if not joined and traces.fewest.get(output) == 0:
        yield "no trained layer lies between pixels and logits"


def _tail(graph: Graph, traces: _Traces) -> set[str]:
    """Values that no trained layer follows; one whose scale is taken back behind it does."""
    tail = {output.name for output in graph.outputs}
    for node in reversed(graph.nodes):
        if base_name(node) not in _LAYERS and tail.intersection(filter(None, node.outputs)):
            tail.update(traces.fed(node))
    return tail


def _smaller_share(fed: list[str], traces: _Traces) -> float | None:
    """Weights of the smaller of two separate ways over those of the larger; None if it is none."""
    for one in fed:
        for other in fed:
            alone = traces.weights(traces.behind[one] & ~traces.behind[other])
            beside = traces.weights(traces.behind[other] & ~traces.behind[one])
            apart = not traces.nearest[one] & traces.nearest[other]
            if apart and alone and alone < _SMALL_SHARE * beside:
                return alone / beside
    return None


def _patterns(captured: Captured, traces: _Traces) -> Iterator[str]:
    graph = captured.graph
    pixels = max(graph.inputs[0].shape[-2:]) if graph.inputs[0].shape else 0
    for node in graph.nodes:
        names = list(node.refs())
        raw = [n for n in names if n in traces.fewest and not traces.behind[n]]
        if not raw or base_name(node) not in _JOINS:
            continue
        for name in names:
            array = _values(captured, name)
            if array is None or array.size < pixels * 2:
                continue
            level, count = _odd_elements(array)
            if 0 < count <= _MOST_SHARE * array.size:
                yield (
                    f"{_place(node)} lays a constant over the pixels, {count} of whose "
                    f"{array.size} elements are not {level:g}, as in a pattern"
                )


def _values(captured: Captured, name: str) -> np.ndarray | None:
    if name.startswith(PARAM):
        return np.asarray(captured.params[name.removeprefix(PARAM)], np.float64)
    if name.startswith(CONSTANT):
        return captured.graph.constants[int(name.removeprefix(CONSTANT))].array().astype(np.float64)
    return None


def _odd_elements(array: np.ndarray) -> tuple[float, int]:
    """The commonest value, and how many elements have another."""
    values, counts = np.unique(array, return_counts=True)
    return float(values[counts.argmax()]), int(array.size - counts.max())
