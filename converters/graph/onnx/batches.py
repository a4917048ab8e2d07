"""One image at a time for networks that a file describes for batches, where that changes nothing.

A file may name the size of its batch, or leave it open and compute with it. What a network answers
for one image must be what it answers for that image among others; otherwise it is two networks.
Ranges that a quantised network takes from all images at once, and values that it rounds otherwise,
are no difference (`ranges`). Three images are tried; what reads the number of images, and so could
switch at more, is told by `batch_use`.
"""

from collections.abc import Sequence
from typing import Protocol

import torch

from converters.errors import ConversionError, TooLargeError, UnsupportedOperatorError, safe_repr
from converters.findings import NOT_TOGETHER, ONE_ONLY
from converters.graph.counting import TOGETHER
from converters.graph.onnx.batch_use import BatchUse
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.ranges import is_quantised, only_ranges_differ, ranges_finding
from converters.graph.onnx.torch_module import OnnxModule, answered
from converters.input_form import ImageInput

_FIXED_BATCH = (
    "the network is made for batches of {} images and computes something else for one; export it "
    "with a batch of 1 or an open one"
)
_OPEN_BATCH = (
    "the file leaves the number of images open, and the network answers otherwise for an image "
    "beside another than for the image alone: which of both is used is not certain; export it so "
    "that images do not depend on each other"
)


class Build(Protocol):
    """Makes the module for a shape of the input."""

    def __call__(self, shape: Sequence[int], batch: int, use: BatchUse | None = None) -> OnnxModule:
        """`batch` is what stands for the batch in shapes of the file; `use` looks on."""
        ...


def for_one_image(
    build: Build, image: ImageInput, is_open: bool, limits: OnnxLimits
) -> tuple[OnnxModule, tuple[str, ...]]:
    """The module for one image, and what a reader should know.

    Args:
        build: makes the module for a shape.
        image: the input.
        is_open: whether the file leaves the number of images open.
        limits: caps.

    Raises:
        ConversionError: images of a batch are answered otherwise than alone.
        UnsupportedOperatorError: for a batch the network takes operators that are not known.
        TooLargeError: the file is made for too many images.
    """
    if image.batch > limits.batch:
        raise TooLargeError(
            f"the network is made for batches of {safe_repr(image.batch)} images, more than "
            f"OnnxLimits.batch = {limits.batch}; export it with a batch of 1 or an open one"
        )
    if image.batch > 1:
        return _of_batch(build, image, limits), ()
    if not is_open:
        return build(image.shape, 1), ()
    use = BatchUse(TOGETHER)
    single = build(image.shape, 1, use)
    said = _beside_others(build, single, image, use, limits)
    return single, (*use.findings, *said)


def _of_batch(build: Build, image: ImageInput, limits: OnnxLimits) -> OnnxModule:
    whole = build((image.batch, *image.shape[1:]), 1)
    try:
        single = build(image.shape, image.batch)
    except ConversionError as error:
        raise ConversionError(_FIXED_BATCH.format(image.batch)) from error
    together, alone = _answers(whole, single, image.batch, image, limits)
    if together.shape != alone.shape or not _alike(together, alone):
        raise ConversionError(_FIXED_BATCH.format(image.batch))
    return single


def _beside_others(
    build: Build, single: OnnxModule, image: ImageInput, use: BatchUse, limits: OnnxLimits
) -> tuple[str, ...]:
    """Compare images in one batch with each alone; the finding where they cannot be."""
    try:
        whole = build((use.images, *image.shape[1:]), 1, use)
        together, alone = _answers(whole, single, use.images, image, limits)
    except UnsupportedOperatorError:
        raise
    except TooLargeError as error:
        return (f"{NOT_TOGETHER}: {error}",)
    except (ConversionError, RuntimeError):
        return (ONE_ONLY,)
    if together.numel() != alone.numel():
        return (ONE_ONLY,)
    if _alike(together.flatten(), alone.flatten()):
        return ()
    if not _only_ranges(whole, single, image, use.images, limits):
        raise ConversionError(_OPEN_BATCH)
    said = ranges_finding(whole, together.flatten(), alone.flatten())
    return () if said is None else (said,)


def _only_ranges(
    whole: OnnxModule, single: OnnxModule, image: ImageInput, count: int, limits: OnnxLimits
) -> bool:
    """Whether a network quantises, and images differ alone and together by no more than that."""
    if not is_quantised(whole):
        return False
    images, others = _images(whole, image, 2 * count).split(count)
    return only_ranges_differ(whole, single, images, others, work=limits.work)


def _answers(
    whole: OnnxModule, single: OnnxModule, count: int, image: ImageInput, limits: OnnxLimits
) -> tuple[torch.Tensor, torch.Tensor]:
    """What the networks give for images together, and one by one."""
    images = _images(whole, image, count)
    # A network of one output may drop the axis of one image.
    alone = [torch.atleast_1d(answered(single, image, limits.work)) for image in images.split(1)]
    return answered(whole, images, limits.work), torch.cat(alone)


def _images(whole: OnnxModule, image: ImageInput, count: int) -> torch.Tensor:
    """Random images, always the same."""
    images = torch.rand((count, *image.shape[1:]), generator=torch.Generator().manual_seed(0))
    return images.to(whole.input_types[0])


def _alike(together: torch.Tensor, alone: torch.Tensor) -> bool:
    return torch.allclose(together.float(), alone.float(), 1e-3, 1e-4, equal_nan=True)
