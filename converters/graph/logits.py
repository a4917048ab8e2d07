"""`with_logits`: a network that ends in a softmax or sigmoid, cut before it.

Where a network is sure its probabilities hardly move, so their gradients say nothing; those of the
logits do. The order of the classes is the same: of several sigmoids that are 1 in float32, or next
to it, the first wins in torch, so logits stay as far apart as these can tell. One positive factor
of all classes behind it, or one number added to all, is cut off too (`converters.graph.affine`).
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from converters.graph.affine import affine_of, keeps_apart
from converters.graph.cuts import cut_by
from converters.graph.graph import CONSTANT, INPUT, Graph, Node, Ref, TensorSpec, pruned
from converters.graph.module import GraphConfig
from converters.graph.replay import run
from converters.graph.structure import architecture_of, described
from converters.model import Model

# How a reader's finding ends that an output is squashed; untrue once the squashing is cut off.
NO_LOGITS = "not logits: their gradients are small where the network is sure"
_SOFTMAX = {
    "aten._softmax.default": "a softmax",
    "aten.softmax.int": "a softmax",
    "aten._log_softmax.default": "a log-softmax",
    "aten.log_softmax.int": "a log-softmax",
}
_SIGMOID = {"aten.sigmoid.default": "a sigmoid", "aten.hardsigmoid.default": "a hard sigmoid"}
_SATURATED = {
    "aten.sigmoid.default": "through.saturated.default",
    "aten.hardsigmoid.default": "through.saturated.hard",
}
_LOG = "aten.log.default"
# Of probabilities these keep the order of values; in a whole type all would be 0 or 1.
_VALUES = frozenset(
    {
        "aten._to_copy.default",
        "aten.alias.default",
        "aten.clone.default",
        "aten.contiguous.default",
        "aten.detach.default",
        _LOG,
    }
)
# These keep the values, and may give them to other classes.
_PLACES = frozenset(
    {
        "aten._unsafe_view.default",
        "aten.flatten.using_ints",
        "aten.index_select.default",
        "aten.permute.default",
        "aten.reshape.default",
        "aten.select.int",
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

    Of a network with one output what only cuts its probability, and keeps on which side of 0.5 it
    is, goes too. A model that does not end in one, reorders the classes after it, or is no graph,
    comes back as it is.
    """
    network = model.config.core
    if not isinstance(network, GraphConfig):
        return model, ()
    graph, cut = _before_softmax(network, model.params)
    if not cut:
        return model, ()
    changed = model.config.around(replace(network, graph=graph))
    found = f"the network ends in {cut}; what goes into it was taken for the logits"
    true = tuple(known for known in model.findings if not known.endswith(NO_LOGITS))
    named = _named(replace(model, config=changed, findings=true), network.graph, graph)
    return named, (found,)


def _named(model: Model, before: Graph, after: Graph) -> Model:
    """A network that is called by its structure is called by what is left of it."""
    if model.architecture != architecture_of(before):
        return model
    name = architecture_of(after)
    old, new = described(model.architecture, before), described(name, after)
    findings = tuple(new if finding == old else finding for finding in model.findings)
    return replace(model, architecture=name, findings=findings)


def _before_softmax(network: GraphConfig, params: Mapping[str, Any]) -> tuple[Graph, str]:
    """The graph that ends before its softmax or sigmoid, and what was cut off; "" for nothing."""
    graph, classes = network.graph, network.num_classes
    makers = {name: node for node in graph.nodes for name in node.outputs if name is not None}
    (end,) = graph.outputs
    node, after = makers.get(end.name), []
    while node is not None and (source := _kept(network, params, node)) is not None:
        after.insert(0, node)
        node = makers.get(source.name)
    if node is None or not (node.op in _SIGMOID or _is_softmax(graph, node, classes)):
        return graph, ""
    is_exact = node.op in _SIGMOID
    if not (_keep_places(graph, node, after) and keeps_apart(graph, params, after, is_exact)):
        return graph, ""
    cut = (_SOFTMAX | _SIGMOID)[node.op]
    if classes > 1 and node.op in _SIGMOID:
        return _saturating(graph, node), cut
    return pruned(replace(graph, outputs=(_first(node),))), cut


def _saturating(graph: Graph, end: Node) -> Graph:
    """The graph that ends in logits which are equal where the sigmoids `end` are."""
    nodes = [
        replace(node, op=_SATURATED[end.op], kwargs=()) if node is end else node
        for node in graph.nodes
    ]
    return pruned(replace(graph, nodes=tuple(nodes), outputs=(Ref(str(end.outputs[0])),)))


def _kept(network: GraphConfig, params: Mapping[str, Any], node: Node) -> Ref | None:
    """The tensor whose order of values a call keeps, if not their places; None for other calls.

    Of a single value a call keeps whether it is above 0.5.
    """
    is_one = network.num_classes == 1
    if is_one and (source := cut_by(network.graph, params, node)) is not None:
        return source
    is_float = all(spec is not None and "float" in spec.dtype for spec in node.specs)
    if not is_one and (step := affine_of(network.graph, params, node)) is not None:
        return step.source if is_float else None
    tensors = [name for name in node.refs() if not name.startswith(CONSTANT)]
    if node.op not in _VALUES | _PLACES or len(tensors) != 1 or (is_one and node.op == _LOG):
        return None
    return _first(node) if is_float else None


def _keep_places(graph: Graph, start: Node, after: list[Node]) -> bool:
    """Whether every class keeps its number in the calls after `start`, tried on the numbers."""
    shape = graph.specs[_first(start).name].shape
    value, nodes = Ref(f"{INPUT}0"), []
    for node in after:
        if node.op in _PLACES:
            specs = tuple(spec and replace(spec, dtype="float32") for spec in node.specs)
            nodes.append(replace(node, args=(value, *node.args[1:]), specs=specs))
            value = Ref(str(node.outputs[0]))
    given = (TensorSpec(shape, "float32"),)
    moving = Graph(given, (), graph.constants, tuple(nodes), (value,))
    numbers = np.arange(math.prod(shape), dtype=np.float32)
    (moved,) = run(moving, {}, [numbers.reshape(shape)])
    return np.array_equal(np.ravel(moved), numbers)


def _is_softmax(graph: Graph, node: Node, classes: int) -> bool:
    """Whether a call is a softmax over all classes; over one output it is 1 for every picture."""
    return classes > 1 and node.op in _SOFTMAX and _width(graph, node) == classes


def _first(node: Node) -> Ref:
    """The tensor that a call of one tensor works on."""
    value = node.args[0]
    assert isinstance(value, Ref), f"{node.op} works on {value!r}, expected a tensor"
    return value


def _width(graph: Graph, node: Node) -> int:
    """Over how many values a softmax runs."""
    shape, axis = graph.specs[_first(node).name].shape, node.args[1]
    return shape[axis] if shape else 1
