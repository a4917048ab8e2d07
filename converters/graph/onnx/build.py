"""From the nodes of a graph to straight-line torch steps, for inputs of fixed shape.

The graph is run once, on examples, while it is built. Every value is one of three kinds: constant,
computed from weights alone, or computed from the inputs. What is constant (after one run the shapes
are, too) is folded away; values that decide shapes or branches must be known, so branches and loops
resolve while building. What would depend on the pixels of an image is refused instead of frozen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from onnx import GraphProto, NodeProto

from converters.errors import (
    ConversionError,
    ConverterError,
    TooLargeError,
    UnsupportedOperatorError,
    shown,
)
from converters.graph.onnx import extensions, foreign
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.operators import Call, Operation, call_of, find, schema_version
from converters.graph.onnx.types import array_of, numpy_from, tensor_from

CONSTANT, WEIGHT, DATA = range(3)
# What torch raises on arguments that make no sense; the graph is to blame, not this program.
_TORCH_FAULTS = (
    RuntimeError,
    ValueError,
    TypeError,
    IndexError,
    KeyError,
    AttributeError,
    AssertionError,
    ArithmeticError,
)


@dataclass(frozen=True)
class Value:
    """A value of the graph while it is built.

    Attributes:
        name: unique in the built module.
        data: tensor, list of tensors (a sequence) or None (an absent optional).
        kind: CONSTANT, WEIGHT or DATA.
    """

    name: str
    data: Any
    kind: int


@dataclass(frozen=True)
class Step:
    """One module call: the names it reads (None for an absent input) and the names it makes."""

    node: str
    module: torch.nn.Module
    inputs: tuple[str | None, ...]
    outputs: tuple[str | None, ...]


Scope = dict[str, Value]


@dataclass
class Builder:
    """Collects steps; one per model.

    Attributes:
        opsets: domain -> version that the model imports.
        strict: refuse shapes and branches that depend on the input; otherwise they are those of
            the examples, which is right for these examples only.
        limits: caps.
    """

    opsets: Mapping[str, int]
    strict: bool = True
    limits: OnnxLimits = OnnxLimits()
    steps: list[Step] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    nodes: int = 0
    depth: int = 0

    def fresh(self, name: str, data: Any, kind: int) -> Value:
        """A value under a name of its own."""
        unique, number = name, 1
        while unique in self.values:
            unique, number = f"{name}#{number}", number + 1
        value = Value(unique, data, kind)
        self.values[unique] = value
        return value

    def graph(self, graph: GraphProto, scope: Scope) -> list[Value | None]:
        """Build all nodes; the values of the graph's outputs."""
        for tensor in graph.initializer:
            if tensor.name not in scope:
                scope[tensor.name] = self.fresh(
                    tensor.name, tensor_from(array_of(tensor)), CONSTANT
                )
        for node in graph.node:
            self.node(node, scope)
        return [_lookup(output.name, scope) for output in graph.output]

    def subgraph(
        self, graph: GraphProto, scope: Scope, inputs: Sequence[Value] = ()
    ) -> list[Value | None]:
        """Build the body of a branch or loop once, names of the outer graph visible."""
        if self.depth >= self.limits.depth:
            raise TooLargeError(f"graphs are nested deeper than OnnxLimits.depth = {self.depth}")
        inner = dict(scope)
        inner |= {info.name: value for info, value in zip(graph.input, inputs, strict=False)}
        own = [tensor.name for tensor in graph.initializer]
        for name in own:
            inner.pop(name, None)
        self.depth += 1
        try:
            return self.graph(graph, inner)
        finally:
            self.depth -= 1

    def node(self, node: NodeProto, scope: Scope) -> None:
        """Build one node: fold it or append a step."""
        self.nodes += 1
        if self.nodes > self.limits.nodes:
            raise TooLargeError(f"more than OnnxLimits.nodes = {self.limits.nodes} nodes")
        place = f"{node.op_type} node {shown(node.name or (node.output[0] if node.output else ''))}"
        version = schema_version(node.domain, node.op_type, self._opset(node, place))
        inputs = [_lookup(name, scope) if name else None for name in node.input]
        call = call_of(node, version)
        try:
            special = extensions.SPECIAL.get((node.domain, node.op_type))
            if special is not None:
                outputs = special(self, call, inputs, scope)
            else:
                outputs = self._ordinary(node, call, inputs, place)
        except ConverterError as error:
            _add_place(error, place)
            raise
        except _TORCH_FAULTS as error:
            raise ConversionError(f"{place}: {shown(str(error))}") from error
        for name, value in zip(node.output, outputs, strict=False):
            if name:
                scope[name] = value

    def _opset(self, node: NodeProto, place: str) -> int:
        try:
            return self.opsets[node.domain]
        except KeyError:
            raise UnsupportedOperatorError(
                f"{place}: the file imports no opset of domain {shown(node.domain)}"
            ) from None

    def _ordinary(
        self, node: NodeProto, call: Call, inputs: list[Value | None], place: str
    ) -> list[Value]:
        entry = find(node.domain, node.op_type, call.version)
        if entry is None:
            module, positions = foreign.converted(node, call, inputs)
            return self.step(place, module, [inputs[k] for k in positions], node.output)
        bound: dict[int, Any] = {}
        for position in entry.static:
            if position < len(inputs) and inputs[position] is not None:
                bound[position] = self.known(inputs[position], call)
        dynamic = [value for k, value in enumerate(inputs) if k not in bound]
        return self.step(place, Operation(entry.function, call, bound), dynamic, node.output)

    def known(self, value: Value | None, call: Call) -> np.ndarray:
        """The array of a value that decides shapes or branches."""
        if value is None or not isinstance(value.data, torch.Tensor):
            raise call.refuse("an input that must be a tensor is absent or a sequence")
        if value.kind == DATA and self.strict:
            raise call.refuse(
                f"{shown(value.name)} decides a shape or a branch and depends on the image; "
                "networks whose structure changes with the input are not supported"
            )
        return numpy_from(value.data)

    def step(
        self,
        place: str,
        module: torch.nn.Module,
        inputs: Sequence[Value | None],
        names: Sequence[str],
    ) -> list[Value]:
        """Run a module on values; keep it as a step unless its result is constant."""
        kind = max((value.kind for value in inputs if value is not None), default=CONSTANT)
        with torch.no_grad():
            result = module(*[None if value is None else value.data for value in inputs])
        results = list(result) if isinstance(result, tuple) else [result]
        made = [
            self.fresh(name or f"{place} output", data, kind)
            for name, data in zip(names, results, strict=False)
        ]
        if kind != CONSTANT:
            read = tuple(None if value is None else value.name for value in inputs)
            self.steps.append(Step(place, module, read, tuple(value.name for value in made)))
        return made

    def apply(
        self, name: str, function: Callable[..., Any], inputs: Sequence[Value | None]
    ) -> Value:
        """One torch function of values as a step of its own."""
        module = Operation(lambda _, *tensors: function(*tensors), Call(name, 0, {}), {})
        return self.step(name, module, inputs, [name])[0]


def _lookup(name: str, scope: Scope) -> Value | None:
    try:
        return scope[name]
    except KeyError:
        raise ConversionError(
            f"value {shown(name)} is used and never made: a weight is missing or the nodes form "
            "a cycle"
        ) from None


def _add_place(error: ConverterError, place: str) -> None:
    """Say once in which node an error arose."""
    if isinstance(error, UnsupportedOperatorError) and error.node:
        return
    if isinstance(error, UnsupportedOperatorError):
        error.node = place
    if error.args and place not in str(error.args[0]):
        error.args = (f"{place}: {error.args[0]}", *error.args[1:])
