"""When a value of an ONNX graph is read for the last time, so that its memory can go."""

from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, NodeProto


def spent_after(graph: GraphProto) -> list[list[str]]:
    """For each node the values made by nodes of the graph that nothing reads after it."""
    made = {name for node in graph.node for name in node.output if name}
    seen = {output.name for output in graph.output}
    spent: list[list[str]] = []
    for node in reversed(graph.node):
        touched = made.intersection((*node.output, *_reads(node))) - seen
        spent.append(sorted(touched))
        seen |= touched
    return spent[::-1]


def _reads(node: NodeProto) -> Iterator[str]:
    """Names that a node may read, those of the graphs inside it too."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield from current.input
        for attribute in current.attribute:
            for inner in (attribute.g, *attribute.graphs) if _has_graphs(attribute) else ():
                yield from (output.name for output in inner.output)
                pending += inner.node


def _has_graphs(attribute: AttributeProto) -> bool:
    return attribute.HasField("g") or len(attribute.graphs) > 0
