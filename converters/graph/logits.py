"""`with_logits`: a network that ends in a softmax or sigmoid, cut before it.

Where a network is sure its probabilities hardly move, so their gradients say nothing; those of the
logits do. The order of the classes is the same.
"""

from dataclasses import replace

from converters.graph.graph import Graph, Node, Ref, pruned
from converters.graph.module import GraphConfig
from converters.graph.structure import architecture_of, described
from converters.model import Model
from converters.preparation import PreparedConfig

_SOFTMAX = {
    "aten._softmax.default": "a softmax",
    "aten.softmax.int": "a softmax",
    "aten._log_softmax.default": "a log-softmax",
    "aten.log_softmax.int": "a log-softmax",
}
_SIGMOID = {"aten.sigmoid.default": "a sigmoid"}
# Of a row of probabilities these keep the order of values.
_KEEPING = frozenset(
    {
        "aten._to_copy.default",
        "aten._unsafe_view.default",
        "aten.alias.default",
        "aten.clone.default",
        "aten.contiguous.default",
        "aten.detach.default",
        "aten.flatten.using_ints",
        "aten.log.default",
        "aten.permute.default",
        "aten.reshape.default",
        "aten.squeeze.default",
        "aten.squeeze.dim",
        "aten.squeeze.dims",
        "aten.t.default",
        "aten.transpose.int",
        "aten.unsqueeze.default",
        "aten.view.default",
    }
)


def with_logits(model: Model) -> tuple[Model, tuple[str, ...]]:
    """The model that ends before its last softmax or sigmoid, and the finding that says so.

    A model that does not end in one, or is no graph, comes back as it is.
    """
    config = model.config
    network = config.inner if isinstance(config, PreparedConfig) else config
    if not isinstance(network, GraphConfig):
        return model, ()
    graph, cut = _before_softmax(network.graph, network.num_classes)
    if not cut:
        return model, ()
    logits = replace(network, graph=graph)
    changed = replace(config, inner=logits) if isinstance(config, PreparedConfig) else logits
    found = f"the network ends in {cut}; what goes into it was taken for the logits"
    named = _named(replace(model, config=changed), network.graph, graph)
    return named, (found,)


def _named(model: Model, before: Graph, after: Graph) -> Model:
    """A network that is called by its structure is called by what is left of it."""
    if model.architecture != architecture_of(before):
        return model
    name = architecture_of(after)
    old, new = described(model.architecture, before), described(name, after)
    findings = tuple(new if finding == old else finding for finding in model.findings)
    return replace(model, architecture=name, findings=findings)


def _before_softmax(graph: Graph, classes: int) -> tuple[Graph, str]:
    """The graph that ends before its softmax or sigmoid, and what was cut off; "" for nothing."""
    makers = {name: node for node in graph.nodes for name in node.outputs if name is not None}
    (end,) = graph.outputs
    node = makers.get(end.name)
    while node is not None and node.op in _KEEPING:
        node = makers.get(_first(node).name)
    if node is None or not (node.op in _SIGMOID or _is_softmax(graph, node, classes)):
        return graph, ""
    cut = (_SOFTMAX | _SIGMOID)[node.op]
    return pruned(replace(graph, outputs=(_first(node),))), cut


def _is_softmax(graph: Graph, node: Node, classes: int) -> bool:
    """Whether a call is a softmax over all classes."""
    return node.op in _SOFTMAX and _width(graph, node) == classes


def _first(node: Node) -> Ref:
    """The tensor that a call of one tensor works on."""
    value = node.args[0]
    assert isinstance(value, Ref), f"{node.op} works on {value!r}, expected a tensor"
    return value


def _width(graph: Graph, node: Node) -> int:
    """Over how many values a softmax runs."""
    shape, axis = graph.specs[_first(node).name].shape, node.args[1]
    return shape[axis] if shape else 1
