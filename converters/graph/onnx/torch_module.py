"""`to_torch`: an ONNX model as a torch module for inputs of one fixed shape."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from onnx import ModelProto, ValueInfoProto

from converters.errors import ConversionError, TooLargeError, safe_repr
from converters.graph.guard import SizeGuard, WorkLimits
from converters.graph.onnx.batch_use import BatchUse
from converters.graph.onnx.build import Builder
from converters.graph.onnx.built import CONSTANT, DATA, WEIGHT, Scope, Step, Units, Value
from converters.graph.onnx.check import check_model
from converters.graph.onnx.described import Descriptions, refuse, takes_from_sequences
from converters.graph.onnx.functions import functions_of
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.opsets import opsets_of
from converters.graph.onnx.types import array_of, tensor_from, torch_type

_WORK = WorkLimits()
# Constants of more elements than this are weights that the file keeps outside its initialisers.
_CONSTANT_ELEMENTS = 64


class OnnxModule(torch.nn.Module):
    """A graph as steps in order; its parameters carry the names of the file's weights.

    Attributes:
        input_names, output_names: those of the graph.
        input_shapes, input_types: the shapes and element types it was built for.
        weight_bytes: of the weights in the file, as they lie there.
        weight_names: parameter name -> name in the file; torch does not allow every one of those.
        units: of what was dequantised, by its names in `steps`.
        steps: the calls in order.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        inputs: Mapping[str, torch.Tensor],
        outputs: Mapping[str, str],
        weight_bytes: int = 0,
    ):
        super().__init__()
        self.input_names = tuple(inputs)
        # A sequence has neither.
        self.input_shapes = tuple(tuple(getattr(data, "shape", ())) for data in inputs.values())
        self.input_types = tuple(getattr(data, "dtype", None) for data in inputs.values())
        self.output_names = tuple(outputs)
        self.weight_bytes = weight_bytes
        self.weight_names: dict[str, str] = {}
        self.units: dict[str, Units] = {}
        self.steps = tuple(steps)
        self._results = tuple(outputs.values())
        # Named after the nodes, because whoever walks the modules names them in errors.
        self.nodes = torch.nn.ModuleDict(
            {f"{k} {step.node}".replace(".", "/"): step.module for k, step in enumerate(steps)}
        )
        self._held: dict[str, tuple[torch.nn.Module, str]] = {}
        self._spent = _last_uses(steps, self._results)

    def hold_weight(self, name: str, tensor: torch.Tensor) -> None:
        """Make a tensor a parameter under its dotted name, or one like it where that is taken."""
        owner, leaf = self._place(name)
        parameter = torch.nn.Parameter(tensor, requires_grad=False)
        owner.register_parameter(leaf, parameter)
        self._held[name] = (owner, leaf)
        path = next(path for path, value in self.named_parameters() if value is parameter)
        self.weight_names[path] = name

    def hold_constant(self, name: str, data: Any) -> None:
        """Keep what is no weight (tensor, sequence or None) outside the state dict."""
        leaf = f"_constant_{len(self._held)}"
        if isinstance(data, torch.Tensor):
            self.register_buffer(leaf, data, persistent=False)
        else:
            setattr(self, leaf, data)
        self._held[name] = (self, leaf)

    def held(self, name: str | None) -> torch.Tensor | None:
        """A weight or constant by its name in `steps`; None of others, and of what is absent."""
        data = getattr(*self._held[name]) if name in self._held else None
        return data if isinstance(data, torch.Tensor) else None

    def _place(self, name: str) -> tuple[torch.nn.Module, str]:
        owner: torch.nn.Module = self
        *parents, leaf = name.split(".")
        for part in parents:
            child = owner._modules.get(part) if part else None
            if child is None:
                if not part or hasattr(owner, part):
                    return self, self._free(self, name.replace(".", "/"))
                child = torch.nn.Module()
                owner.add_module(part, child)
            owner = child
        return owner, self._free(owner, leaf)

    @staticmethod
    def _free(owner: torch.nn.Module, leaf: str) -> str:
        leaf = leaf or "_"
        while hasattr(owner, leaf):
            leaf += "_"
        return leaf

    def forward(self, *inputs):
        """The outputs in order, a single one by itself."""
        values = dict(zip(self.input_names, inputs, strict=True))
        values |= {name: getattr(owner, leaf) for name, (owner, leaf) in self._held.items()}
        modules = self.nodes.values()
        for step, module, spent in zip(self.steps, modules, self._spent, strict=True):
            read = [None if name is None else values[name] for name in step.inputs]
            made = module(*read)
            made = made if isinstance(made, tuple) else (made,)
            values |= {n: v for n, v in zip(step.outputs, made, strict=False) if n is not None}
            for name in spent:
                del values[name]
        results = tuple(values[name] for name in self._results)
        return results[0] if len(results) == 1 else results


def _last_uses(steps: Sequence[Step], results: Sequence[str]) -> list[tuple[str, ...]]:
    """For each step the values that nobody reads after it, so that they can be freed."""
    seen = set(results)
    spent: list[tuple[str, ...]] = []
    for step in reversed(steps):
        touched = {name for name in (*step.inputs, *step.outputs) if name is not None}
        spent.append(tuple(touched - seen))
        seen |= touched
    return spent[::-1]


def to_torch(
    model: ModelProto,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    weights: Mapping[str, np.ndarray] | None = None,
    output: str | None = None,
    limits: OnnxLimits | None = None,
) -> OnnxModule:
    """An ONNX model as a torch module, specialised to fixed input shapes.

    Args:
        model: the parsed file; checked here as if a stranger made it.
        input_shapes: input name -> shape, needed where the file leaves dimensions open.
        weights: initialisers that lie outside the file, as `read_onnx` returns them.
        output: name of the one output wanted; all of them by default.
        limits: caps on sizes.

    Raises:
        CorruptFileError: the graph is invalid.
        UnsupportedOperatorError: no converter covers an operator.
        ConversionError: the graph cannot be run, or an input's shape is not known.
    """
    limits = limits or OnnxLimits()
    shapes = input_shapes or {}
    examples = {
        info.name: torch.zeros(input_shape(info, shapes, limits), dtype=input_type(info))
        for info in graph_inputs(model)
    }
    return build(model, examples, weights=weights, output=output, limits=limits)


def build(
    model: ModelProto,
    examples: Mapping[str, torch.Tensor],
    *,
    weights: Mapping[str, np.ndarray] | None = None,
    output: str | None = None,
    strict: bool = True,
    batch: int = 1,
    use: BatchUse | None = None,
    images: int = 1,
    limits: OnnxLimits,
) -> OnnxModule:
    """The module specialised to the shapes of `examples`; see `to_torch`, `Builder`, `BatchUse`.

    `images` is as `SizeGuard` takes it.
    """
    check_model(model, limits, outside=frozenset(weights or ()))
    # Built for one image of a batch, the shapes of the file are others.
    tell = use.misdescribed if use is not None else refuse if batch == 1 else None
    builder = Builder(
        opsets_of(model.opset_import),
        strict,
        limits,
        functions=functions_of(model),
        batch=batch,
        watch=None if use is None else use.look,
        described=Descriptions(tell, takes_from_sequences(model)),
    )
    scope: Scope = {name: builder.fresh(name, data, DATA) for name, data in examples.items()}
    for tensor in model.graph.initializer:
        if tensor.name not in scope:
            array = (weights or {}).get(tensor.name)
            value = tensor_from(array_of(tensor) if array is None else array)
            kind = WEIGHT if value.is_floating_point() else CONSTANT
            scope[tensor.name] = builder.fresh(tensor.name, value, kind)
    held = sum(array.nbytes for array in (weights or {}).values())
    with SizeGuard(limits.work, held, images):
        results = builder.graph(model.graph, scope)
    if use is not None:
        use.built(builder.values)
    return _assembled(builder, examples, _wanted(model, results, output), held)


def answered(module: OnnxModule, images: torch.Tensor, work: WorkLimits = _WORK) -> torch.Tensor:
    """What a network of one output gives for images; the run has all of `work` to itself.

    Raises TooLargeError where it takes more.
    """
    with torch.no_grad(), SizeGuard(work, module.weight_bytes, len(images)):
        return module(images)


def _wanted(model: ModelProto, results: Sequence[Value | None], output: str | None):
    names = [info.name for info in model.graph.output]
    if output is not None and output not in names:
        listed = ", ".join(safe_repr(name) for name in names[:20])
        raise ConversionError(f"there is no output {safe_repr(output)}; the outputs are {listed}")
    pairs = zip(names, results, strict=True)
    return {n: v for n, v in pairs if v is not None and output in (None, n)}


def _assembled(
    builder: Builder,
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, Value],
    weight_bytes: int,
) -> OnnxModule:
    results = {name: value.name for name, value in outputs.items()}
    steps = _needed(builder.steps, set(results.values()))
    module = OnnxModule(steps, inputs, results, weight_bytes)
    module.units = dict(builder.units)
    made = {name for step in steps for name in step.outputs} | set(inputs)
    read = {name for step in steps for name in step.inputs if name is not None}
    for name in builder.values:
        if name in (read | set(results.values())) - made:
            _hold(module, builder.values[name])
    return module.eval()


def _hold(module: OnnxModule, value: Value) -> None:
    data = value.data
    large = isinstance(data, torch.Tensor) and data.numel() > _CONSTANT_ELEMENTS
    if value.kind == WEIGHT or (large and data.is_floating_point()):
        module.hold_weight(value.name, data)
    else:
        module.hold_constant(value.name, data)


def _needed(steps: Sequence[Step], wanted: set[str]) -> list[Step]:
    """The steps that the outputs depend on."""
    kept = []
    for step in reversed(steps):
        if wanted.intersection(step.outputs):
            kept.append(step)
            wanted |= {name for name in step.inputs if name is not None}
    return kept[::-1]


def graph_inputs(model: ModelProto) -> list[ValueInfoProto]:
    """The inputs that are no weights (files before IR 4 list both)."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [info for info in model.graph.input if info.name not in weights]


def input_type(info: ValueInfoProto) -> torch.dtype:
    """The element type; raises ConversionError for sequences and optionals."""
    if not info.type.HasField("tensor_type"):
        raise ConversionError(f"input {safe_repr(info.name)} is no tensor")
    return torch_type(info.type.tensor_type.elem_type)


def input_shape(
    info: ValueInfoProto, shapes: Mapping[str, Sequence[int]], limits: OnnxLimits
) -> tuple[int, ...]:
    """The shape asked for, or the one that the file fixes.

    Raises ConversionError where neither says it, TooLargeError where it is absurd.
    """
    asked = shapes.get(info.name)
    wanted = declared_shape(info) if asked is None else tuple(asked)
    shape = tuple(size for size in wanted if size is not None)
    if len(shape) != len(wanted):
        raise ConversionError(
            f"input {safe_repr(info.name)} leaves its shape open; say which shape to build for"
        )
    if any(size < 0 for size in shape) or math.prod(shape) > limits.work.value_elements:
        raise TooLargeError(
            f"input {safe_repr(info.name)} has more elements than value_elements = "
            f"{limits.work.value_elements}"
        )
    return shape


def declared_shape(info: ValueInfoProto) -> tuple[int | None, ...]:
    """The sizes in the file, None for those it leaves open; ConversionError if it has no shape."""
    if not info.type.tensor_type.HasField("shape"):
        raise ConversionError(f"input {safe_repr(info.name)} has no shape, not even its dimensions")
    dims = info.type.tensor_type.shape.dim
    # Exporters also write 0 and -1 for "any"; no network takes an empty picture.
    return tuple(d.dim_value if d.dim_value > 0 else None for d in dims)
