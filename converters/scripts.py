"""Whether the code of a TorchScript archive is what torch writes for the network it names."""

import io
import warnings
from typing import Any

from converters.containers.torch_zip import read_zip
from converters.errors import MismatchError
from converters.limits import Limits
from converters.weights import Weights


def check_script(weights: Weights, network: Any, size: tuple[int, int] = (224, 224)) -> None:
    """Compare the archive's code, which torch runs, with that of the rebuilt network.

    Args:
      weights: what was read; nothing is compared unless they are of a TorchScript archive.
      network: torch module in evaluation mode, on the CPU.
      size: height and width of an image it takes, for tracing.

    Raises:
      MismatchError: the code is neither that of torch.jit.script nor that of torch.jit.trace.
    """
    root = weights.modules.get("")
    digest = None if root is None else root.attributes.get("script")
    if digest is not None and not any(digest == _digest(network, size, t) for t in (False, True)):
        raise MismatchError(
            "the code of the TorchScript archive is not what this torch writes for torchvision's "
            "network of that name, so it may compute something else; save the network's state "
            "dict, or export it with torch.onnx.export"
        )


def _digest(network: Any, size: tuple[int, int], traced: bool) -> str | None:
    """Digest of the code that torch writes; None where it cannot write any."""
    import torch

    out = io.BytesIO()
    channels = next(p.shape[1] for p in network.parameters() if p.ndim == 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = torch.zeros(1, channels, *size)
            made = (
                torch.jit.trace(network, image, check_trace=False)
                if traced
                else torch.jit.script(network)
            )
            torch.jit.save(made, out)
        except (RuntimeError, TypeError, ValueError):  # what torch cannot script or trace
            return None
    return read_zip(out.getvalue(), Limits()).root.state["script"]
