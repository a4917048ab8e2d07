"""A network as a list of ATen calls: frozen, hashable by content, a static argument of jit.

Values are named: `in:0` an input, `p:features.0.weight` a parameter by its torch name, `c:0` a
static constant, `%3` the result of a node. Nothing in here needs torch or jax.
"""

import base64
import hashlib
import json
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

INPUT, PARAM, CONSTANT, VALUE = "in:", "p:", "c:", "%"
# What numpy does not know by name comes from ml_dtypes.
_EXTENDED = ("bfloat16", "float8_e4m3fn", "float8_e5m2")
HALF = ("float16", "bfloat16")
_LAYERS = frozenset("convolution _convolution conv1d conv2d conv3d linear addmm mm".split())
_PRODUCTS = frozenset(("bmm", "matmul"))


@dataclass(frozen=True)
class Ref:
    """The use of a named value."""

    name: str


@dataclass(frozen=True)
class DType:
    """An element type as an argument, by numpy's name."""

    name: str


@dataclass(frozen=True)
class TensorSpec:
    """Shape and element type (numpy's name) of a value as torch computed it."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Constant:
    """A static tensor: indices, masks, single numbers. Never a weight; those are parameters."""

    spec: TensorSpec
    data: bytes

    def array(self) -> np.ndarray:
        """The values, read-only."""
        return np.frombuffer(self.data, numpy_dtype(self.spec.dtype)).reshape(self.spec.shape)


@dataclass(frozen=True)
class Node:
    """One ATen call with every argument of its schema spelt out.

    Attributes:
      op: operator and overload, such as "aten.add.Tensor".
      args: positional arguments: `Ref`, `DType`, numbers, texts, None, tuples of these.
      kwargs: keyword-only arguments in the schema's order.
      outputs: name of each result; None where nobody uses it.
      specs: shape and type of each result.
      source: torch submodule the call came from, for messages; not part of the identity.
    """

    op: str
    args: tuple[Any, ...]
    kwargs: tuple[tuple[str, Any], ...]
    outputs: tuple[str | None, ...]
    specs: tuple[TensorSpec | None, ...]
    source: str = field(default="", compare=False)

    def refs(self):
        """Names of the values that the call uses."""
        yield from _refs((self.args, self.kwargs))


@dataclass(frozen=True, eq=False)
class Graph:
    """A captured network. Equal by content, so two models of one architecture share programs.

    Attributes:
      inputs: shape and type of each graph input as captured.
      params: torch name and spec of each parameter, all of floating type.
      constants: static tensors, `c:0`, `c:1`, ...
      nodes: calls in order.
      outputs: what the network returns.
    """

    inputs: tuple[TensorSpec, ...]
    params: tuple[tuple[str, TensorSpec], ...]
    constants: tuple[Constant, ...]
    nodes: tuple[Node, ...]
    outputs: tuple[Ref, ...]

    @cached_property
    def digest(self) -> str:
        """sha256 of the content, in hexadecimal."""
        text = json.dumps(self.to_plain(with_sources=False), separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def __hash__(self) -> int:
        return int(self.digest[:15], 16)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Graph) and self.digest == other.digest

    def __repr__(self) -> str:
        return f"Graph({len(self.nodes)} calls, {len(self.params)} parameters, {self.digest[:12]})"

    @cached_property
    def float_dtype(self) -> str | None:
        """The floating type the network computes in: of most numbers in its parameters, else of its
        inputs; float32 where those are of half precision and a layer's results are not.
        """
        counts: dict[str, int] = {}
        for _, spec in self.params:
            counts[spec.dtype] = counts.get(spec.dtype, 0) + math.prod(spec.shape)
        found = max(
            (name for name in counts if "float" in name), key=counts.__getitem__, default=""
        )
        found = found or next((s.dtype for s in self.inputs if "float" in s.dtype), None)
        return "float32" if found in HALF and self._has_wide_layer else found

    @property
    def _has_wide_layer(self) -> bool:
        """Whether a layer with weights gives float32; attention does in networks of half, too."""
        varying = {f"{INPUT}{i}" for i in range(len(self.inputs))}
        for node in self.nodes:
            names, refs = node.op.split("."), set(node.refs())
            is_layer = not _LAYERS.isdisjoint(names)
            is_layer |= not _PRODUCTS.isdisjoint(names) and not refs <= varying
            if not varying.isdisjoint(refs):
                varying.update(name for name in node.outputs if name is not None)
                if is_layer and any(s is not None and s.dtype == "float32" for s in node.specs):
                    return True
        return False

    @cached_property
    def specs(self) -> dict[str, TensorSpec]:
        """Value name -> shape and type of everything that has a name."""
        found = {f"{INPUT}{i}": spec for i, spec in enumerate(self.inputs)}
        found |= {f"{PARAM}{name}": spec for name, spec in self.params}
        found |= {f"{CONSTANT}{i}": c.spec for i, c in enumerate(self.constants)}
        for node in self.nodes:
            pairs = zip(node.outputs, node.specs, strict=True)
            found |= {name: spec for name, spec in pairs if name is not None and spec is not None}
        return found

    def operators(self) -> tuple[str, ...]:
        """Names of the operators in use, sorted."""
        return tuple(sorted({node.op for node in self.nodes}))

    def select(self, *outputs: int) -> "Graph":
        """The graph that computes only these of its outputs."""
        chosen = tuple(self.outputs[i] for i in outputs)
        return pruned(Graph(self.inputs, self.params, self.constants, self.nodes, chosen))

    def to_plain(self, with_sources: bool = True) -> dict[str, Any]:
        """As values for JSON; `from_plain` is the inverse."""
        return {
            "inputs": [_known_to_plain(spec) for spec in self.inputs],
            "params": [[name, *_known_to_plain(spec)] for name, spec in self.params],
            "constants": [
                [*_known_to_plain(c.spec), base64.b64encode(c.data).decode()]
                for c in self.constants
            ],
            "nodes": [_node_to_plain(node, with_sources) for node in self.nodes],
            "outputs": [ref.name for ref in self.outputs],
        }


def numpy_dtype(name: str) -> np.dtype:
    """The numpy type of that name, bfloat16 and float8 included."""
    if name in _EXTENDED:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)


def _refs(value: Any):
    if isinstance(value, Ref):
        yield value.name
    elif isinstance(value, tuple):
        for part in value:
            yield from _refs(part)


def pruned(graph: Graph) -> Graph:
    """The graph without calls, parameters and constants that no output needs; values renumbered."""
    needed = {ref.name for ref in graph.outputs}
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if any(name in needed for name in node.outputs if name is not None):
            kept.append(node)
            needed.update(node.refs())
    names: dict[str, str] = {}
    constants = []
    for i, constant in enumerate(graph.constants):
        if f"{CONSTANT}{i}" in needed:
            names[f"{CONSTANT}{i}"] = f"{CONSTANT}{len(constants)}"
            constants.append(constant)
    nodes, count = [], 0
    for node in reversed(kept):
        outputs: list[str | None] = []
        for name in node.outputs:
            if name is None or name not in needed:
                outputs.append(None)
                continue
            names[name] = f"{VALUE}{count}"
            outputs.append(names[name])
            count += 1
        args, kwargs = _renamed(node.args, names), _renamed(node.kwargs, names)
        nodes.append(Node(node.op, args, kwargs, tuple(outputs), node.specs, node.source))
    params = tuple((name, spec) for name, spec in graph.params if f"{PARAM}{name}" in needed)
    returned = tuple(_renamed(ref, names) for ref in graph.outputs)
    return Graph(graph.inputs, params, tuple(constants), tuple(nodes), returned)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, Ref):
        return Ref(names.get(value.name, value.name))
    if isinstance(value, tuple):
        return tuple(_renamed(part, names) for part in value)
    return value


def _spec_to_plain(spec: TensorSpec | None) -> list | None:
    return None if spec is None else _known_to_plain(spec)


def _spec(plain: list | None) -> TensorSpec | None:
    return None if plain is None else TensorSpec(tuple(plain[0]), plain[1])


def _known_to_plain(spec: TensorSpec) -> list:
    return [list(spec.shape), spec.dtype]


def _node_to_plain(node: Node, with_sources: bool) -> list:
    plain = [
        node.op,
        [_to_plain(a) for a in node.args],
        [[name, _to_plain(a)] for name, a in node.kwargs],
        list(node.outputs),
        [_spec_to_plain(spec) for spec in node.specs],
    ]
    return [*plain, node.source] if with_sources else plain


def _to_plain(value: Any) -> Any:
    if isinstance(value, Ref):
        return {"ref": value.name}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, tuple):
        return [_to_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    return value


def _from_plain(plain: Any) -> Any:
    if isinstance(plain, list):
        return tuple(_from_plain(part) for part in plain)
    if isinstance(plain, dict):
        ((kind, value),) = plain.items()
        return {"ref": Ref, "dtype": DType, "float": float}[kind](value)
    return plain


def from_plain(plain: dict[str, Any]) -> Graph:
    """The graph of `Graph.to_plain`."""
    return Graph(
        inputs=tuple(TensorSpec(tuple(shape), dtype) for shape, dtype in plain["inputs"]),
        params=tuple((name, TensorSpec(tuple(s), dtype)) for name, s, dtype in plain["params"]),
        constants=tuple(
            Constant(TensorSpec(tuple(s), dtype), base64.b64decode(data))
            for s, dtype, data in plain["constants"]
        ),
        nodes=tuple(
            Node(
                op,
                _from_plain(args),
                tuple((name, _from_plain(value)) for name, value in kwargs),
                tuple(outputs),
                tuple(_spec(spec) for spec in specs),
                source,
            )
            for op, args, kwargs, outputs, specs, source in plain["nodes"]
        ),
        outputs=tuple(Ref(name) for name in plain["outputs"]),
    )
