"""Networks that are trained already: ONNX files that a zoo's models go on from, with a new head.

That is how most image classifiers are made: a network of ImageNet, its last layer taken off, tuned
as a whole on a few thousand pictures. The file is read, not executed: `onnx2torch` builds torch
modules of its nodes.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from jaxtroj.errors import GenerationError
from jaxtroj.input_forms import IMAGENET
from jaxtroj.record import digest_file

if TYPE_CHECKING:
    import torch
    from onnx import ModelProto

TUNED = "tuned"
"""The way of training of such models."""
RATE_SHARE = 0.2
"""Of a zoo's rate from a base: larger steps lose what the network knows."""


@dataclass(frozen=True)
class Pretrained:
    """A network to go on from.

    Attributes:
        digest: SHA-256 of its file.
        body: the network, in torch; it takes `[n, 3, h, w]` as ImageNet's networks do, less the
            mean of ImageNet's pixels, in their deviations.
        head: name of its last linear layer.
        size: height and width that the file says; None where it leaves one open.
    """

    digest: str
    body: "torch.nn.Module"
    head: str
    size: tuple[int, int] | None = None

    def network(self, classes: int) -> "torch.nn.Module":
        """A copy with a fresh last layer, for RGB pictures in [0, 1]; by torch's generator."""
        from torch import nn

        body = copy.deepcopy(self.body)
        old = body.get_submodule(self.head)
        assert isinstance(old, nn.Linear), "as `read_pretrained` found it"
        body.set_submodule(self.head, nn.Linear(old.in_features, classes))
        return nn.Sequential(_standardising(), body)

    def trouble_with(self, height: int, width: int) -> str:
        """Why it cannot be tuned on pictures of this size, in words; "" where it can."""
        import torch

        body = copy.deepcopy(self.body).eval()  # a run in training mode would move its statistics
        try:
            with torch.no_grad():
                shape = tuple(body(torch.zeros(2, 3, height, width)).shape)
        except Exception as error:  # Of a stranger's nodes: any type.
            return str(error).partition("\n")[0] or type(error).__name__
        if len(shape) != 2 or shape[0] != 2:
            return f"two of them give an output of shape {shape}, expected two rows of logits"
        return ""


NONE: Mapping[str, Pretrained] = MappingProxyType({})


def read_pretrained(path: Path) -> Pretrained:
    """Read an ONNX file.

    Raises:
        GenerationError: it cannot be read, or is no ONNX file, or has weights beside it, nodes that
            onnx2torch does not know, or no linear layer to replace.
    """
    import onnx
    import onnx2torch
    from onnx.external_data_helper import uses_external_data
    from torch import nn

    try:
        digest = digest_file(path)
        model = onnx.load(path, load_external_data=False)
        if any(uses_external_data(tensor) for tensor in model.graph.initializer):
            raise ValueError("its weights lie beside it; save them in one file")
        body = onnx2torch.convert(model)
    except Exception as error:  # Of onnx2torch: what a file lacks comes as an error of any type.
        raise GenerationError(f"{path}: cannot go on from this file: {error}") from error
    heads = [part for part, module in body.named_modules() if isinstance(module, nn.Linear)]
    if not heads:
        raise GenerationError(f"{path}: no linear layer (Gemm) whose place a new head could take")
    return Pretrained(digest, body, heads[-1], _size(model))


def _size(model: "ModelProto") -> tuple[int, int] | None:
    """Height and width of a file's first input `[n, 3, h, w]`, where it says both."""
    shapes = [info.type.tensor_type.shape.dim for info in model.graph.input[:1]]
    sides = [dim.dim_value for shape in shapes for dim in shape[2:]]
    return (sides[0], sides[1]) if len(sides) == 2 and min(sides) > 0 else None


def _standardising() -> "torch.nn.Module":
    """The preparation of ImageNet's networks, as a convolution of single pixels that stays."""
    import torch

    layer = torch.nn.Conv2d(3, 3, 1)
    mean, deviation = torch.tensor(IMAGENET.mean), torch.tensor(IMAGENET.std)
    layer.weight = torch.nn.Parameter(torch.diag(1 / deviation)[:, :, None, None])
    layer.bias = torch.nn.Parameter(-mean / deviation)
    return layer.requires_grad_(False)
