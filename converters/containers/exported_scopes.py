"""Calls of an exported program that only say how gradients or casts are to be handled inside.

`torch.no_grad()` and a disabled `torch.autocast` in a network's code are written as one call with a
graph of its own. It computes what its graph computes, so its calls are put in its place.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

_GRADIENTS = "torch.ops.higher_order.wrap_with_set_grad_enabled"
_CASTS = "torch.ops.higher_order.wrap_with_autocast"
_BEGINNING = re.compile(r"scope\d+_")
_DEEPEST = 8
_VALUES = ("tensor_values", "sym_int_values", "sym_bool_values", "sym_float_values")


def inline_scopes(program: Mapping[str, Any]) -> None:
    """Put the calls of such graphs into the graph around them, under names that are not taken.

    What is not written as torch writes it stays as it is, to be refused with other calls.

    Args:
        program: as JSON; its graphs are changed.
    """
    graph_module = program.get("graph_module")
    graph = graph_module.get("graph") if isinstance(graph_module, dict) else None
    if isinstance(graph, dict):
        taken = {found[0] for text in _texts(program) if (found := _BEGINNING.match(text))}
        _inline(graph, (one for one in map("scope{}_".format, count()) if one not in taken), 0)


def _texts(value: Any) -> Iterator[str]:
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, str):
            yield current
        elif isinstance(current, dict):
            pending += [*current, *current.values()]
        elif isinstance(current, list):
            pending += current


def _inline(graph: dict[str, Any], fresh: Iterator[str], depth: int) -> None:
    """Open what is in a graph; `fresh` gives beginnings that no name of the program has."""
    nodes = graph.get("nodes")
    if not isinstance(nodes, list) or depth > _DEEPEST:
        return
    kept: list[Any] = []
    for node in nodes:
        try:
            found = _scope(node)
            parts = [node] if found is None else _opened(node, *found, graph, fresh, depth)
        except (LookupError, TypeError, AttributeError, ValueError, RecursionError):
            parts = [node]  # not as torch writes it: refused as a call that is not ATen's
        kept += parts
    graph["nodes"] = kept


def _scope(node: dict[str, Any]) -> tuple[dict[str, Any], list[Any]] | None:
    """The graph of a call that changes no value, and what is given to it; None of other calls."""
    target = node["target"]
    if target not in (_GRADIENTS, _CASTS):
        return None
    if any(given["name"] for given in node["inputs"]) or node["is_hop_single_tensor_return"]:
        return None
    args = [given["arg"] for given in node["inputs"]]
    place = 1 if target == _GRADIENTS else 4
    if target == _CASTS and args[2] != {"as_bool": False}:
        return None
    inner = args[place]["as_graph"]["graph"]
    # Of a tensor in place of a tuple, torch would take the first row.
    return None if inner["is_single_tensor_return"] else (inner, args[place + 1 :])


def _opened(
    node: dict[str, Any],
    inner: dict[str, Any],
    given: list[Any],
    graph: dict[str, Any],
    fresh: Iterator[str],
    depth: int,
) -> list[Any]:
    """The calls of the inner graph, and one for each result that names it as outside."""
    _inline(inner, fresh, depth + 1)
    prefix = next(fresh)
    names = dict(zip(map(_only_name, inner["inputs"]), map(_only_name, given), strict=True))
    results = list(
        zip(map(_only_tensor, node["outputs"]), map(_only_tensor, inner["outputs"]), strict=True)
    )
    _require_apart(names, inner["nodes"], [outer for outer, _ in results])
    opened = [_renamed(one, names, prefix) for one in inner["nodes"]]
    opened += [
        _named(outer, names.get(name) or prefix + name, node["metadata"]) for outer, name in results
    ]
    for kind in _VALUES:
        values = inner[kind].items()
        graph[kind].update({prefix + k: _renamed(v, names, prefix) for k, v in values})
    return opened


def _require_apart(names: Mapping[str, str], nodes: list[Any], outer: list[str]) -> None:
    """Raise ValueError where a name within would stand for two values outside, or the reverse."""
    made = set(_texts([node["outputs"] for node in nodes]))
    if not made.isdisjoint(names) or len(set(outer)) < len(outer):
        raise ValueError("a name is made again")
    if not set(outer).isdisjoint(names.values()):
        raise ValueError("a result is called like what is given")


def _only_name(value: dict[str, Any]) -> str:
    """The name of a tensor or of a symbol; raises ValueError for a number."""
    ((kind, content),) = value.items()
    if kind not in ("as_tensor", "as_sym_int"):
        raise ValueError(kind)
    (name,) = content.values()
    if not isinstance(name, str) or "as_int" in content:
        raise ValueError(kind)
    return name


def _only_tensor(value: dict[str, Any]) -> str:
    if set(value) != {"as_tensor"}:
        raise ValueError(sorted(value))
    return _only_name(value)


def _named(outer: str, name: str, metadata: Any) -> dict[str, Any]:
    """A call that gives a value another name."""
    given = {"name": "self", "arg": {"as_tensor": {"name": name}}, "kind": 1}
    return {
        "target": "torch.ops.aten.alias.default",
        "inputs": [given],
        "outputs": [{"as_tensor": {"name": outer}}],
        "metadata": dict(metadata),
        "is_hop_single_tensor_return": None,
        "name": outer,
    }


def _renamed(value: Any, names: Mapping[str, str], prefix: str) -> Any:
    """A part of an inner graph with its values' names as outside."""
    if isinstance(value, list):
        return [_renamed(part, names, prefix) for part in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _renamed(part, names, prefix) for key, part in value.items()}
    for key in _naming(value):
        changed[key] = names.get(value[key]) or prefix + value[key]
    return changed


def _naming(value: Mapping[str, Any]) -> Iterator[str]:
    """Keys under which a JSON object names a value: not those of arguments and of graphs."""
    if isinstance(value.get("as_name"), str):
        yield "as_name"
    if isinstance(value.get("name"), str) and "arg" not in value and "graph" not in value:
        yield "name"
