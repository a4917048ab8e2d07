"""From the nodes of a graph to straight-line torch steps, for inputs of fixed shape.

The graph is run once, on examples, while it is built. Every value is one of three kinds: constant,
computed from weights alone, or computed from the inputs. What is constant (after one run the shapes
are, too) is folded away; values that decide shapes or branches must be known, so branches and loops
resolve while building. What would depend on the pixels of an image is refused instead of frozen.
"""

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from onnx import FunctionProto, GraphProto, NodeProto

from converters.errors import TooLargeError, UnsupportedOperatorError, safe_repr
from converters.graph.onnx import extensions, foreign
from converters.graph.onnx.attributes import check_types, domain_of
from converters.graph.onnx.built import (
    CONSTANT,
    DATA,
    Scope,
    Step,
    Units,
    Value,
    is_moved,
    lookup,
    units_of,
)
from converters.graph.onnx.check import check_signature, check_tensor
from converters.graph.onnx.described import Descriptions, infos_of
from converters.graph.onnx.extensions.quantisation import quantise_by_own_range
from converters.graph.onnx.functions import FunctionTable, body_of
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.liveness import spent_after
from converters.graph.onnx.operators import Call, Operation, call_of, find, schema_version
from converters.graph.onnx.opsets import agreed_opset, opsets_of
from converters.graph.onnx.own_range import BEFORE_OWN_OPERATOR, OwnRange, own_ranges
from converters.graph.onnx.places import built_at, check_names, checked_at, place_of
from converters.graph.onnx.types import array_of, numpy_from, tensor_from

Made = Callable[[Sequence[Value | None]], None]
Watch = Callable[[Call, Sequence[Value | None], str], Made | None]


@dataclass
class Builder:
    """Collects steps; one per model.

    Attributes:
        opsets: domain -> version that the model imports; inside a function, what that imports.
        strict: refuse shapes and branches that depend on the input; otherwise they are those of
            the examples, which is right for these examples only.
        limits: caps.
        functions: those that the file defines itself.
        batch: what stands for the batch in shapes of the file, where it is built for one example.
        watch: told of every call before it is built: the call, its inputs, the node in words. What
            it gives back is told of the outputs then.
        described: compares values with what the file says of them.
        units: of what was dequantised, by its unique names.
        steps: what was built so far.
        values: every value by its unique name.
    """

    opsets: Mapping[str, int]
    strict: bool = True
    limits: OnnxLimits = OnnxLimits()
    functions: FunctionTable = field(default_factory=dict)
    batch: int = 1
    watch: Watch | None = None
    described: Descriptions = Descriptions()
    units: dict[str, Units] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    values: dict[str, Value] = field(default_factory=dict)
    nodes: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        self.model_opsets = self.opsets

    def fresh(self, name: str, data: Any, kind: int) -> Value:
        """A value under a name of its own."""
        unique = name
        while unique in self.values:
            unique = f"{unique}#{len(self.values)}"
        value = Value(unique, data, kind)
        self.values[unique] = value
        return value

    def graph(self, graph: GraphProto, scope: Scope) -> list[Value | None]:
        """Build all nodes; the values of the graph's outputs."""
        own = self._ranges(graph, scope)
        ranges = {node.output[0]: found for found in own for node in found.nodes}
        begun: set[str] = set()
        for node, spent in zip(graph.node, spent_after(graph), strict=True):
            found = ranges.get(node.output[0]) if node.output else None
            if found is None:
                self.node(node, scope)
            elif found.values not in begun:
                begun.add(found.values)
                self._by_own_range(found, scope)
            for name in spent:
                self._release(name, scope)
        self.described.check(infos_of(graph, self.depth > 0), scope)
        return [lookup(output.name, scope) for output in graph.output]

    @staticmethod
    def _ranges(graph: GraphProto, scope: Scope) -> list[OwnRange]:
        """Nodes that are built as one, see `own_range`."""

        def constant(name: str) -> float | None:
            value = scope.get(name)
            data = None if value is None or value.kind == DATA else value.data
            return data.item() if isinstance(data, torch.Tensor) and data.numel() == 1 else None

        return list(own_ranges(graph, constant))

    def _by_own_range(self, found: OwnRange, scope: Scope) -> None:
        """One `DynamicQuantizeLinear` where the file has several nodes."""
        place = f"QuantizeLinear node {safe_repr(found.nodes[-1].name or found.made[0])}"
        call = Call("DynamicQuantizeLinear", BEFORE_OWN_OPERATOR, {}, outputs=3)
        values = [lookup(found.values, scope)]
        made = self.step(place, Operation(quantise_by_own_range, call, {}), values, found.made)
        scope.update(zip(found.made, made, strict=True))

    def _release(self, name: str, scope: Scope) -> None:
        """Keep of what comes from the inputs shape and type only, once no node reads it."""
        value = scope.get(name)
        if value is None or value.kind != DATA or not isinstance(value.data, torch.Tensor):
            return
        data = value.data
        lean = replace(value, data=torch.empty(data.shape, dtype=data.dtype, device="meta"))
        scope[name] = self.values[value.name] = lean

    def subgraph(
        self, graph: GraphProto, scope: Scope, inputs: Sequence[Value | None] = ()
    ) -> list[Value | None]:
        """Build the body of a branch or loop once, names of the outer graph visible."""
        own: dict[str, Value | None] = {
            info.name: value for info, value in zip(graph.input, inputs, strict=False)
        }
        for tensor in graph.initializer:
            check_tensor(tensor, self.limits)
            own[tensor.name] = self.fresh(tensor.name, tensor_from(array_of(tensor)), CONSTANT)
        self.described.check(graph.input, own)
        with self._deeper():
            return self.graph(graph, ChainMap(own, scope))

    def unbuilt(self, graph: GraphProto) -> None:
        """Check the operators of a graph that never runs, which onnxruntime checks at loading.

        Raises ConverterError where one has other inputs, outputs or attributes than its schema.
        """
        for node in graph.node:
            domain = domain_of(node.domain)
            if (domain, node.op_type, node.overload) in self.functions:
                continue
            with checked_at(f"{safe_repr(node.op_type)} node {safe_repr(node.name)}"):
                check_names(node)
                opset = self._opset(node)
                check_signature(node, domain, opset)
                check_types(node, domain, schema_version(domain, node.op_type, opset))
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    self.unbuilt(attribute.g)

    @contextmanager
    def _deeper(self):
        if self.depth >= self.limits.depth:
            raise TooLargeError(
                f"graphs are nested deeper than OnnxLimits.depth = {self.limits.depth}"
            )
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1

    def node(self, node: NodeProto, scope: Scope) -> None:
        """Build one node: fold it or append a step."""
        self.nodes += 1
        if self.nodes > self.limits.nodes:
            raise TooLargeError(f"more than OnnxLimits.nodes = {self.limits.nodes} nodes")
        check_names(node)
        place = place_of(node)
        inputs = [lookup(name, scope) if name else None for name in node.input]
        with built_at(place):
            outputs = self._outputs(node, inputs, scope, place)
        for name, value in zip(node.output, outputs, strict=False):
            if name:
                scope[name] = value

    def _outputs(
        self, node: NodeProto, inputs: list[Value | None], scope: Scope, place: str
    ) -> Sequence[Value | None]:
        domain, opset = domain_of(node.domain), self._opset(node)
        function = self.functions.get((domain, node.op_type, node.overload))
        if function is not None:
            return self._function(function, node, inputs)
        if node.overload:
            raise UnsupportedOperatorError(
                f"it calls overload {safe_repr(node.overload)} of an operator; only functions of "
                "the file have overloads"
            )
        check_signature(node, domain, opset)
        call = call_of(node, schema_version(domain, node.op_type, opset))
        made = self.watch(call, inputs, place) if self.watch is not None else None
        special = extensions.SPECIAL.get((domain, node.op_type, call.version))
        if special is not None:
            outputs = special(self, call, inputs, scope)
        else:
            outputs = self._ordinary(node, call, inputs, place)
        if made is not None:
            made(outputs)
        return outputs

    def _function(
        self, function: FunctionProto, node: NodeProto, inputs: list[Value | None]
    ) -> list[Value | None]:
        """The body of a function of the file, in the operator versions that it imports.

        onnxruntime runs it in those of the model, so each operator must be the same in both.
        """
        missing = [None] * (len(function.input) - len(inputs))
        scope = dict(zip(function.input, [*inputs, *missing], strict=True))
        outer, self.opsets = self.opsets, opsets_of(function.opset_import)
        try:
            with self._deeper():
                for inner in body_of(function, node):
                    self.node(inner, scope)
                self.described.check(function.value_info, scope)
        finally:
            self.opsets = outer
        return [lookup(name, scope) for name in function.output]

    def _opset(self, node: NodeProto) -> int:
        return agreed_opset(node, self.opsets, self.model_opsets)

    def _ordinary(
        self, node: NodeProto, call: Call, inputs: list[Value | None], place: str
    ) -> list[Value]:
        entry = find(call.domain, node.op_type, call.version)
        if entry is None:
            module, positions = foreign.converted(node, call, inputs)
            return self.step(place, module, [inputs[k] for k in positions], node.output)
        if entry.check is not None:
            entry.check(call, *(v.data if v and v.kind != DATA else None for v in inputs))
        bound: dict[int, Any] = {}
        for position in entry.static:
            if position < len(inputs) and inputs[position] is not None:
                bound[position] = self.known(inputs[position], call)
        if node.op_type == "Reshape" and self.batch > 1 and bound and bound[1][:1] == self.batch:
            bound[1] = np.concatenate([[1], bound[1][1:]])
        dynamic = [value for k, value in enumerate(inputs) if k not in bound]
        module = Operation(entry.function, call, bound)
        if node.op_type == "DequantizeLinear" and not any(v and v.kind == DATA for v in dynamic):
            # Quantised weights become floating ones, once, under the name of the quantised ones.
            constants = [None if v is None else replace(v, kind=CONSTANT) for v in dynamic]
            (made,) = self.step(place, module, constants, [f"{node.input[0]}"])
            self.units[made.name] = units_of(constants)
            return [made]
        made = self.step(place, module, dynamic, node.output)
        if node.op_type == "DequantizeLinear":
            self.units[made[0].name] = units_of(dynamic)
        self._carry(dynamic, made)
        return made

    def _carry(self, inputs: Sequence[Value | None], made: Sequence[Value]) -> None:
        """Constants that are moved keep their units."""
        for value in inputs:
            if value is not None and value.name in self.units and len(made) == 1:
                if is_moved(value.data, made[0]):
                    self.units[made[0].name] = self.units[value.name]

    def known(self, value: Value | None, call: Call) -> np.ndarray:
        """The array of a value that decides shapes or branches."""
        if value is None or not isinstance(value.data, (torch.Tensor, np.ndarray)):
            raise call.refuse("an input that must be a tensor is absent or a sequence")
        if value.kind == DATA and self.strict:
            raise call.refuse(
                f"{safe_repr(value.name)} decides a shape or a branch and depends on the image: a "
                "possible architectural backdoor; networks whose structure changes with the input "
                "are not supported"
            )
        return value.data if isinstance(value.data, np.ndarray) else numpy_from(value.data)

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
