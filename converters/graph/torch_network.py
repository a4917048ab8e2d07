"""Torch modules in memory: captured for images of one shape, and as models."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from converters.errors import ConversionError
from converters.graph.classifier import classifier
from converters.graph.guard import SizeGuard, WorkLimits
from converters.graph.recorder import Captured
from converters.graph.tape import capture
from converters.input_form import NOTHING_SAID, InputForm
from converters.model import Model

_ON_CPU = torch.device("cpu")


def torch_model(
    module: torch.nn.Module,
    image_shape: tuple[int, int, int],
    form: InputForm = NOTHING_SAID,
    findings: tuple[str, ...] = (),
) -> Model:
    """The model of a torch classifier.

    Args:
      module, image_shape: as `captured_module` takes them; it returns logits `[n, classes]`, or
        several tensors; `converters.graph.outputs` says which of them is taken.
      form: what stands in front of it.
      findings: what was noticed before.

    Raises:
      ConversionError: it cannot be run on such images, or is no classifier of one image.
      TooLargeError: one forward pass would take more than `WorkLimits` lets a network take.
    """
    return classifier(captured_module(module, image_shape), form, findings)


def captured_module(module: torch.nn.Module, image_shape: tuple[int, int, int]) -> Captured:
    """What a torch module does with an image; it runs once, and is left as it was.

    Args:
      module: takes images `[n, c, h, w]`. Wrappers of `torch.compile` and `DataParallel` are
        removed.
      image_shape: height, width and channels of the images.

    Raises:
      ConversionError: it cannot be run on such images.
      TooLargeError: one forward pass would take more than `WorkLimits` lets a network take.
    """
    height, width, channels = image_shape
    module = _unwrapped(module)
    tensors = [*module.parameters(), *module.buffers()]
    _check_devices(tensors)
    floating = next((t.dtype for t in tensors if t.is_floating_point()), torch.float32)
    image = torch.zeros((1, channels, height, width), dtype=floating)
    held = sum(t.numel() * t.element_size() for t in tensors)
    with _inference(module), SizeGuard(WorkLimits(), held):
        return capture(module, [image])


def _unwrapped(module: Any) -> torch.nn.Module:
    """The user's own module, without what torch put around it."""
    while True:
        inner = getattr(module, "_orig_mod", None)
        if isinstance(module, torch.nn.DataParallel | torch.nn.parallel.DistributedDataParallel):
            inner = module.module
        if not isinstance(inner, torch.nn.Module):
            return module
        module = inner


def _check_devices(tensors: list[torch.Tensor]) -> None:
    elsewhere = sorted({str(t.device) for t in tensors} - {str(_ON_CPU)})
    if elsewhere:
        raise ConversionError(
            f"the network's weights are on {', '.join(elsewhere)}, expected cpu; give"
            " network.cpu(), or copy.deepcopy(network).cpu() to leave it where it is"
        )


@contextmanager
def _inference(module: torch.nn.Module) -> Iterator[None]:
    """The module in evaluation mode; every part gets its own mode back."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training
