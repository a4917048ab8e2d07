"""`load_onnx`: an ONNX classifier as a Model over images."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from onnx import ModelProto, ValueInfoProto

from converters.errors import ConversionError, shown
from converters.graph.module import graph_model
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.read import OnnxFile, read_onnx
from converters.graph.onnx.torch_module import (
    OnnxModule,
    build,
    declared_shape,
    graph_inputs,
    input_shape,
    input_type,
)
from converters.graph.tape import capture
from converters.model import Model

# Side of the pictures where a file leaves it open: what most published classifiers take.
_USUAL_SIZE = 224
_UNPREPARED = (
    "the file does not say how pixels are prepared; values from 0 to 1 without normalisation were "
    "assumed"
)
_FIXED_BATCH = (
    "the network is made for batches of {} images and computes something else for one; export it "
    "with a batch of 1 or an open one"
)
_SQUASHING = {
    "Softmax": "probabilities",
    "Sigmoid": "probabilities",
    "LogSoftmax": "log-probabilities",
}


@dataclass(frozen=True)
class ImageInput:
    """The one input of a classifier.

    Attributes:
        name: in the file.
        shape: for one image.
        layout: order of its axes, "NCHW" or "NHWC".
        findings: what was guessed.
        batch: number of images that the file is made for; 1 where it leaves that open.
    """

    name: str
    shape: tuple[int, ...]
    layout: str
    findings: tuple[str, ...]
    batch: int = 1


def load_onnx(
    path: str | os.PathLike,
    output: str | None = None,
    *,
    layout: str | None = None,
    image_size: tuple[int, int] | None = None,
    bounds: tuple[float, float] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    limits: OnnxLimits | None = None,
) -> Model:
    """An ONNX file as a Model over images `[n, h, w, c]` in [0, 1].

    Args:
        path: the file; external data must lie in its folder.
        output: name of the output with the logits; the first one by default.
        layout: order of the input's axes, "NCHW" or "NHWC"; guessed from the channels by default.
        image_size: height and width where the file leaves them open; 224 by default.
        bounds: values that pixels 0 and 1 have for the network, (0, 1) by default.
        mean: per channel, subtracted from pixels within bounds.
        std: per channel, what pixels are divided by then.
        limits: caps on sizes.

    Raises:
        LoadError: the file cannot be read, is corrupt or too large.
        UnsupportedOperatorError: an operator is covered by no converter or no lowering.
        ConversionError: the graph is no classifier of one image.
    """
    limits = limits or OnnxLimits()
    file = read_onnx(path, limits)
    image = image_input(file.model, layout, image_size, limits)
    findings = image.findings + _output_findings(file.model, output)
    if bounds is None and mean is None and std is None:
        findings += (_UNPREPARED,)
    module = _built(file, image, output, limits)
    del file  # its weights are in the module now
    captured = capture(module, [torch.zeros(image.shape)])
    return graph_model(
        captured,
        layout=image.layout,
        bounds=bounds or (0.0, 1.0),
        mean=mean,
        std=std,
        architecture=f"onnx:{Path(path).stem}",
        findings=findings,
    )


def _built(file: OnnxFile, image: ImageInput, output: str | None, limits: OnnxLimits) -> OnnxModule:
    """The module for one image; for a file made for a batch, only where that changes nothing."""
    wanted = output or file.model.graph.output[0].name

    def made(shape: Sequence[int], batch: int) -> OnnxModule:
        return build(
            file.model,
            {image.name: torch.zeros(tuple(shape))},
            weights=file.weights,
            output=wanted,
            batch=batch,
            limits=limits,
        )

    if image.batch == 1:
        return made(image.shape, 1)
    whole = made((image.batch, *image.shape[1:]), 1)
    try:
        single = made(image.shape, image.batch)
    except ConversionError as error:
        raise ConversionError(_FIXED_BATCH.format(image.batch)) from error
    _check_same(whole, single, image)
    return single


def _check_same(whole: OnnxModule, single: OnnxModule, image: ImageInput) -> None:
    """Whether images one by one give what they give in their batch."""
    images = torch.rand((image.batch, *image.shape[1:]), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        together = whole(images)
        alone = torch.cat([single(images[k : k + 1]) for k in range(image.batch)])
    if together.shape != alone.shape or not torch.allclose(together, alone, 1e-3, 1e-4):
        raise ConversionError(_FIXED_BATCH.format(image.batch))


def image_input(
    model: ModelProto,
    layout: str | None,
    image_size: tuple[int, int] | None,
    limits: OnnxLimits,
) -> ImageInput:
    """Name, shape for one image and layout of a model's only input.

    Raises ConversionError where there is not exactly one, or it takes no pictures.
    """
    inputs = graph_inputs(model)
    if len(inputs) != 1:
        names = ", ".join(shown(info.name) for info in inputs[:10])
        raise ConversionError(
            f"the network takes {len(inputs)} inputs ({names}), expected one, the image; "
            "export it with the others fixed"
        )
    (info,) = inputs
    if not input_type(info).is_floating_point:
        raise ConversionError(
            f"input {shown(info.name)} takes {input_type(info)}, expected floating values; "
            "export the network without its conversion from bytes"
        )
    return _shaped(info, layout, image_size, limits)


def _shaped(
    info: ValueInfoProto,
    layout: str | None,
    image_size: tuple[int, int] | None,
    limits: OnnxLimits,
) -> ImageInput:
    declared = declared_shape(info)
    if len(declared) != 4:
        raise ConversionError(
            f"input {shown(info.name)} has {len(declared)} dimensions, expected 4, a batch of "
            "images"
        )
    findings: list[str] = []
    order = layout or _guessed_layout(declared, findings)
    sizes = dict(zip(order, declared, strict=True))
    sizes["N"] = 1
    if sizes["C"] is None:
        raise ConversionError(
            f"input {shown(info.name)} leaves the number of channels open; export it with them"
        )
    for letter, asked in zip("HW", image_size or (None, None), strict=True):
        sizes[letter] = sizes[letter] or asked or _USUAL_SIZE
        if declared[order.index(letter)] is None and not asked:
            findings.append(f"the file leaves the size of images open; {_USUAL_SIZE} was assumed")
    asked = {info.name: tuple(sizes[letter] or 1 for letter in order)}
    shape = input_shape(info, asked, limits)
    batch = declared[order.index("N")] or 1
    return ImageInput(info.name, shape, order, tuple(dict.fromkeys(findings)), batch)


def _guessed_layout(declared: Sequence[int | None], findings: list[str]) -> str:
    channels = (1, 3, 4)
    first, last = declared[1] in channels, declared[3] in channels
    if first == last:
        findings.append("the file does not tell the order of the axes; NCHW was assumed")
    return "NHWC" if last and not first else "NCHW"


def _output_findings(model: ModelProto, output: str | None) -> tuple[str, ...]:
    """What one should know of the output that is scanned."""
    names = [info.name for info in model.graph.output]
    findings = []
    if output is None and len(names) > 1:
        others = ", ".join(shown(name) for name in names[1:10])
        findings.append(f"output {shown(names[0])} was taken for the logits; others: {others}")
    wanted = output or names[0]
    makers = {name: node.op_type for node in model.graph.node for name in node.output}
    if makers.get(wanted) in _SQUASHING:
        kind = _SQUASHING[makers[wanted]]
        findings.append(
            f"output {shown(wanted)} holds {kind}, not logits; gradients are small where the "
            "network is sure"
        )
    return tuple(findings)
