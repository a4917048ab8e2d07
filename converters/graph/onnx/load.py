"""`load_onnx`: an ONNX classifier as a Model over images."""

import os
from collections.abc import Sequence
from dataclasses import replace

import torch
from onnx import ModelProto, ValueInfoProto

from converters.errors import ConversionError, safe_repr
from converters.graph.logits import NO_LOGITS
from converters.graph.module import attribute_of, graph_model, precision_finding
from converters.graph.offsets import rounded_away
from converters.graph.onnx.batch_use import BatchUse
from converters.graph.onnx.batches import for_one_image
from converters.graph.onnx.biases import check_biases
from converters.graph.onnx.joined import joined
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.ranges import bare_range_finding
from converters.graph.onnx.read import OnnxFile, read_onnx
from converters.graph.onnx.rewrite import stored_tensors
from converters.graph.onnx.torch_module import (
    OnnxModule,
    build,
    declared_shape,
    graph_inputs,
    input_shape,
    input_type,
)
from converters.graph.onnx.types import TORCH_TYPES
from converters.graph.outputs import output_number, taken_finding
from converters.graph.recognition import family_model
from converters.graph.recorder import Captured
from converters.graph.tape import capture
from converters.input_form import NOTHING_SAID, ImageInput, InputForm, image_input
from converters.model import Model
from converters.preparation import prepared

_SQUASHING = {
    "Softmax": "probabilities",
    "Sigmoid": "probabilities",
    "LogSoftmax": "log-probabilities",
    "QLinearSoftmax": "probabilities",
    "QLinearSigmoid": "probabilities",
}
_KEEPING = frozenset(
    {
        *("Identity", "Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze"),
        *("QuantizeLinear", "DequantizeLinear"),
    }
)
"""What keeps values as they are, but for a rounding."""

_SORTED = "the file's nodes are out of order and were sorted, as onnxruntime does"


def load_onnx(
    path: str | os.PathLike,
    form: InputForm = NOTHING_SAID,
    usual_size: tuple[int, int] | None = None,
    limits: OnnxLimits | None = None,
) -> Model:
    """An ONNX file as a Model over images `[n, h, w, c]` in [0, 1].

    A network of a family becomes that family's model, any other a graph.

    Args:
        path: the file; external data must lie in its folder.
        form: what it does not say.
        usual_size: height and width where neither it nor `form` says them; 224 by default.
        limits: caps on sizes.

    Raises:
        LoadError: the file cannot be read, is corrupt or too large.
        UnsupportedOperatorError: an operator is covered by no converter or no lowering.
        ConversionError: the graph is no classifier of one image.
    """
    captured, image, findings, _ = _captured(path, form, usual_size, limits or OnnxLimits())
    known = family_model(captured) if image.layout == "NCHW" else None
    if known is not None and not any(rounded_away(captured)):
        return prepared(replace(known, findings=findings), form.bounds, form.mean, form.std)
    return _as_graph(captured, image, findings, form)


def load_named(
    path: str | os.PathLike,
    form: InputForm = NOTHING_SAID,
    usual_size: tuple[int, int] | None = None,
    limits: OnnxLimits | None = None,
) -> tuple[Model, dict[str, str]]:
    """The same as a graph, and the name in the file of each of its parameters that has one there.

    The others are constants that the converter made.

    Raises as `load_onnx`.
    """
    captured, image, findings, names = _captured(path, form, usual_size, limits or OnnxLimits())
    params = (name for name, _ in captured.graph.params)
    flat = {attribute_of(name): names[name] for name in params if name in names}
    return _as_graph(captured, image, findings, form), flat


def _captured(
    path: str | os.PathLike,
    form: InputForm,
    usual_size: tuple[int, int] | None,
    limits: OnnxLimits,
) -> tuple[Captured, ImageInput, tuple[str, ...], dict[str, str]]:
    """The captured network, its input, findings, and names in the file of what lies there."""
    file = read_onnx(path, limits)
    image = _only_input(file.model, form, usual_size, limits)
    wanted = form.output or _likely_output(file.model)
    findings = (_SORTED,) if file.was_sorted else ()
    findings += image.findings + _output_findings(file.model, form.output, wanted) + form.unsaid
    stored = {name for name, _ in stored_tensors(file.model)}
    module, said = _built(file, image, wanted, limits)
    del file  # its weights are in the module now
    check_biases(module.steps, module.held, module.units)
    said += joined(module.steps, module.held)
    captured = capture(module, [torch.zeros(image.shape, dtype=module.input_types[0])])
    names = {own: name for own, name in module.weight_names.items() if name in stored}
    return captured, image, findings + said + precision_finding(captured), names


def _as_graph(
    captured: Captured, image: ImageInput, findings: tuple[str, ...], form: InputForm
) -> Model:
    return graph_model(
        captured,
        layout=image.layout,
        bounds=form.bounds,
        mean=form.mean,
        std=form.std,
        findings=findings,
        by_operators=True,
    )


def _built(
    file: OnnxFile, image: ImageInput, wanted: str, limits: OnnxLimits
) -> tuple[OnnxModule, tuple[str, ...]]:
    """The module for one image, where a batch changes nothing, and findings."""
    (info,) = graph_inputs(file.model)

    def made(shape: Sequence[int], batch: int, use: BatchUse | None = None) -> OnnxModule:
        return build(
            file.model,
            {image.name: torch.zeros(tuple(shape), dtype=input_type(info))},
            weights=file.weights,
            output=wanted,
            batch=batch,
            use=use,
            # Of a file that fixes how many, one run is for all of them.
            images=1 if use is None else shape[0],
            limits=limits,
        )

    is_open = declared_shape(info)[image.layout.index("N")] is None
    module, said = for_one_image(made, image, is_open, limits)
    return module, said + bare_range_finding(module)


def _only_input(
    model: ModelProto, form: InputForm, usual_size: tuple[int, int] | None, limits: OnnxLimits
) -> ImageInput:
    """Name, shape for one image and layout of a model's only input.

    Raises ConversionError where there is not exactly one, or it takes no pictures.
    """
    inputs = graph_inputs(model)
    if len(inputs) != 1:
        names = ", ".join(safe_repr(info.name) for info in inputs[:10])
        raise ConversionError(
            f"the network takes {len(inputs)} inputs ({names}), expected one, the image; "
            "export it with the others fixed"
        )
    (info,) = inputs
    declared = declared_shape(info)
    image = image_input(info.name, declared, form.layout, form.image_size, usual_size)
    if not input_type(info).is_floating_point:
        raise ConversionError(
            f"input {safe_repr(info.name)} takes {input_type(info)}, expected floating values; "
            "export the network without its conversion from bytes"
        )
    input_shape(info, {info.name: image.shape}, limits)
    return image


def _likely_output(model: ModelProto) -> str:
    """Name of the output that `output_number` takes.

    Raises ConversionError where that does or an output is computed by no node: what takes the first
    output reads a weight, or the image, for the logits.
    """
    outputs = list(model.graph.output)
    names = [info.name for info in outputs]
    made = {name for node in model.graph.node for name in node.output}
    for name in names:
        if name not in made:
            raise ConversionError(
                f"output {safe_repr(name)} is computed by no node; expected outputs that follow"
                " from the image: name the one with the logits with --output"
            )
    return names[output_number(names, [*map(_holds_whole_numbers, outputs)], None)]


def _holds_whole_numbers(info: ValueInfoProto) -> bool:
    type_ = TORCH_TYPES.get(info.type.tensor_type.elem_type)
    return type_ is not None and not (type_.is_floating_point or type_.is_complex)


def _output_findings(model: ModelProto, said: str | None, wanted: str) -> tuple[str, ...]:
    """What one should know of the output that is scanned."""
    names = [info.name for info in model.graph.output]
    number = names.index(wanted) if wanted in names else 0
    findings = list(taken_finding(names, number, said))
    kind = _SQUASHING.get(_maker(model, wanted))
    if kind is not None:
        findings.append(f"output {safe_repr(wanted)} holds {kind}, {NO_LOGITS}")
    return tuple(findings)


def _maker(model: ModelProto, name: str) -> str:
    """The operator that an output's values come from, but for what keeps them; "" for none."""
    makers = {made: node for node in model.graph.node for made in node.output}
    for _ in model.graph.node:  # a cycle is refused later
        node = makers.get(name)
        if node is None or node.op_type not in _KEEPING or not node.input:
            return "" if node is None else node.op_type
        name = node.input[0]
    return ""
