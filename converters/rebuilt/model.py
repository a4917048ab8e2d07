"""`rebuilt_model`: a rebuilt torch network captured as a graph over images."""

import torch

from converters.errors import ConversionError
from converters.graph.guard import SizeGuard, WorkLimits
from converters.graph.module import graph_model
from converters.graph.tape import capture
from converters.input_form import USUAL_SIZE, InputForm, assumed_size, check_size
from converters.model import Model
from converters.rebuilt.network import rebuild
from converters.weights import Weights


def rebuilt_model(
    weights: Weights,
    findings: tuple[str, ...],
    form: InputForm,
    usual_size: tuple[int, int] | None,
) -> Model:
    """The model of a network outside the Flax families, of those in `rebuilt.table`.

    Args:
      weights: what the file holds.
      findings: what was noticed while reading it.
      form: what it does not say.
      usual_size: height and width where neither the network nor `form` says them; 224 by default.

    Raises:
      SharedNamesError: public codes with these names differ, and `form` names none of them.
      ConversionError: the weights make no such network, or it does not take such images.
      TooLargeError: one forward pass would take more than `WorkLimits` lets a network take.
    """
    rebuilt = rebuild(weights, form.public_code)
    findings = (*findings, *rebuilt.findings, *weights.findings)
    check_size(rebuilt.image_size or (None, None), form.image_size)
    size = rebuilt.image_size or form.image_size
    if size is None:
        size = usual_size or USUAL_SIZE
        findings += (assumed_size(size),)
    held = sum(tensor.nbytes for tensor in weights.tensors.values())
    with SizeGuard(WorkLimits(), held):
        captured = capture(rebuilt.module, [torch.zeros(1, _channels(rebuilt.module, size), *size)])
    return graph_model(
        captured,
        bounds=form.bounds,
        mean=form.mean,
        std=form.std,
        architecture=rebuilt.family.name,
        findings=(*findings, *form.unsaid),
    )


def _channels(module: torch.nn.Module, size: tuple[int, int]) -> int:
    """Channels of the images: what the first convolution takes, or the first matrix by their size.

    Raises:
      ConversionError: the network has neither, or the matrix takes no such images.
    """
    convolutions = (torch.nn.Conv2d, torch.nn.ConvTranspose2d)
    kinds = (*convolutions, torch.nn.Linear)
    first = next((m for m in module.modules() if isinstance(m, kinds)), None)
    if isinstance(first, convolutions):
        return first.in_channels
    if first is None:
        raise ConversionError("the network has no convolution and no matrix, expected a classifier")
    channels, rest = divmod(first.in_features, size[0] * size[1])
    if rest or not channels:
        raise ConversionError(
            f"the first matrix takes {first.in_features} values, expected a multiple of those of "
            f"{size[0]} x {size[1]} pixels; say the size: --image-size"
        )
    return channels
