"""Nodes in an order in which each comes after those whose values it uses.

ONNX demands it and onnxruntime does not, of a model's own graph; some converters to float16 leave
nodes out of order. Where every value is made once, the order changes nothing but when it is made.
Branches and functions stay as they are: onnxruntime too refuses them out of order.
"""

import heapq

from onnx import GraphProto

from converters.graph.onnx.liveness import reads


def sort_nodes(graph: GraphProto) -> bool:
    """Put the nodes in order; whether they were not.

    They stay as they are where values are made twice or by each other, which `check_model` refuses.
    """
    makers = {name: k for k, node in enumerate(graph.node) for name in node.output if name}
    made = sum(1 for node in graph.node for name in node.output if name)
    needs = [{makers[name] for name in reads(node) if name in makers} for node in graph.node]
    if len(makers) < made or all(max(before, default=-1) < k for k, before in enumerate(needs)):
        return False
    order = _order(needs)
    if len(order) < len(needs):
        return False
    nodes = list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes[k] for k in order)
    return True


def _order(needs: list[set[int]]) -> list[int]:
    """Numbers so that each comes after those it needs, else the smaller first; none of cycles."""
    users: list[list[int]] = [[] for _ in needs]
    for k, before in enumerate(needs):
        for other in before:
            users[other].append(k)
    left = [len(before) for before in needs]
    ready = [k for k, count in enumerate(left) if not count]
    order = []
    while ready:
        k = heapq.heappop(ready)
        order.append(k)
        for user in users[k]:
            left[user] -= 1
            if not left[user]:
                heapq.heappush(ready, user)
    return order
