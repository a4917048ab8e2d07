"""Which values of an ONNX graph a node reads, and when one is read for the last time."""

from collections.abc import Iterator

from onnx import GraphProto, NodeProto

from converters.graph.onnx.check import inner_graphs


def spent_after(graph: GraphProto) -> list[list[str]]:
    """For each node the values made by nodes of the graph that nothing reads after it.

    Their memory can go then.
    """
    made = {name for node in graph.node for name in node.output if name}
    seen = {output.name for output in graph.output}
    spent: list[list[str]] = []
    for node in reversed(graph.node):
        touched = made.intersection((*node.output, *reads(node))) - seen
        spent.append(sorted(touched))
        seen |= touched
    return spent[::-1]


def reads(node: NodeProto) -> Iterator[str]:
    """Names that a node may read, those of the graphs inside it too."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield from current.input
        for inner in inner_graphs(current):
            yield from (output.name for output in inner.output)
            pending += inner.node
