"""Networks that are trained already: ONNX files that a zoo's models go on from, with a new head.

That is how most image classifiers are made: a network of ImageNet, its last layer taken off, tuned
as a whole on a few thousand pictures. The file is read, not executed: `onnx2torch` builds torch
modules of its nodes.
"""

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from jaxtroj.errors import GenerationError

if TYPE_CHECKING:
    import torch

TUNED = "tuned"
"""The way of training of such models."""
RATE_SHARE = 0.2
"""Of a zoo's rate from a base: larger steps lose what the network knows."""
_MEAN, _DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Pretrained:
    """A network to go on from.

    Attributes:
        name: of its architecture, for the tables.
        digest: SHA-256 of its file.
        body: the network, in torch; it takes `[n, 3, h, w]` as ImageNet's networks do, less the
            mean of ImageNet's pixels, in their deviations.
        head: name of its last linear layer.
    """

    name: str
    digest: str
    body: "torch.nn.Module"
    head: str

    def network(self, classes: int) -> "torch.nn.Module":
        """A copy with a fresh last layer, for RGB pictures in [0, 1]; by torch's generator."""
        from torch import nn

        body = copy.deepcopy(self.body)
        old = body.get_submodule(self.head)
        assert isinstance(old, nn.Linear), "as `read_pretrained` found it"
        body.set_submodule(self.head, nn.Linear(old.in_features, classes))
        return nn.Sequential(_standardising(), body)


NONE: Mapping[str, Pretrained] = MappingProxyType({})


def read_pretrained(name: str, path: Path) -> Pretrained:
    """Read an ONNX file.

    Raises:
        GenerationError: it is no ONNX file, or has nodes that onnx2torch does not know, or no
            linear layer to replace.
        OSError: the file cannot be read.
    """
    import onnx
    import onnx2torch
    from google.protobuf.message import DecodeError
    from torch import nn

    content = path.read_bytes()
    try:
        body = onnx2torch.convert(onnx.load_model_from_string(content))
    except (DecodeError, NotImplementedError, ValueError, RuntimeError) as error:
        raise GenerationError(f"{path}: cannot go on from this file: {error}") from error
    heads = [part for part, module in body.named_modules() if isinstance(module, nn.Linear)]
    if not heads:
        raise GenerationError(f"{path}: no linear layer (Gemm) whose place a new head could take")
    return Pretrained(name, hashlib.sha256(content).hexdigest(), body, heads[-1])


def _standardising() -> "torch.nn.Module":
    """The preparation of ImageNet's networks, as a convolution of single pixels that stays."""
    import torch

    layer = torch.nn.Conv2d(3, 3, 1)
    deviation = torch.tensor(_DEVIATION)
    layer.weight = torch.nn.Parameter(torch.diag(1 / deviation)[:, :, None, None])
    layer.bias = torch.nn.Parameter(-torch.tensor(_MEAN) / deviation)
    return layer.requires_grad_(False)
