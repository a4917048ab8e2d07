"""Writes a zoo's networks as ONNX files, by torch's exporter."""

import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from converters.files import write_atomic

if TYPE_CHECKING:
    import torch

_OPSET = 17


def write_onnx(
    path: Path, network: "torch.nn.Module", shape: tuple[int, int, int], is_fused: bool
) -> None:
    """Write a network for pictures `[n, c, h, w]`; `shape` is `(h, w, c)`, the batch stays open.

    Args:
        path: of the file.
        network: left in evaluation mode.
        shape: of a picture.
        is_fused: whether batch norms are folded into the convolutions, which is the exporter's
            default; else they stay nodes of their own.
    """
    import torch

    height, width, channels = shape
    mode = torch.onnx.TrainingMode
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        # The exporter advises its successor, which needs another package.
        warnings.simplefilter("ignore")
        whole = Path(folder) / "network.onnx"
        torch.onnx.export(
            network.eval(),
            (torch.zeros(2, channels, height, width),),
            whole,
            dynamo=False,
            opset_version=_OPSET,
            input_names=["images"],
            output_names=["logits"],
            dynamic_axes={"images": {0: "n"}, "logits": {0: "n"}},
            training=mode.EVAL if is_fused else mode.PRESERVE,
            do_constant_folding=is_fused,
        )
        write_atomic(path, whole.read_bytes())
