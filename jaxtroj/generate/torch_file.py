"""Write a trained network as a genuine whole-module `model.pt` that torchvision loads.

The only place of the project that writes a pickle; nothing of the project ever executes one.
"""

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from flax import nnx

from jaxtroj.errors import GenerationError
from jaxtroj.generate import networks

if TYPE_CHECKING:
    import torch


def state_dict(module: nnx.Module, architecture: str, num_classes: int, steps: int) -> dict:
    """Arrays by torch name, torch layout, in torchvision's order.

    Args:
        module: the Flax network.
        architecture: torchvision's name.
        num_classes: width of the head.
        steps: training steps, written as `num_batches_tracked` of every batch norm.
    """
    from converters.families import names
    from converters.model import params_of

    template = networks.torchvision_module(architecture, num_classes).state_dict()
    shapes = {name: tuple(value.shape) for name, value in template.items()}
    tensors = names.to_torch(networks.name_table(architecture), shapes, params_of(module))
    counters = {n: np.array(steps, np.int64) for n in shapes if n.endswith("num_batches_tracked")}
    return {name: (tensors | counters)[name] for name in shapes}


def write_model(
    path: Path, tensors: dict, architecture: str, num_classes: int, legacy: bool = True
) -> None:
    """Save a torchvision module in evaluation mode, whole, atomically.

    Args:
        path: the file to write.
        tensors: from `state_dict`.
        architecture: torchvision's name.
        num_classes: width of the head.
        legacy: the stream format that Round 0's torch wrote, instead of a zip archive.

    Raises:
        GenerationError: the tensors do not fill the network.
    """
    import torch

    network = networks.torchvision_module(architecture, num_classes)
    arrays = {name: torch.from_numpy(np.array(value)) for name, value in tensors.items()}
    try:
        network.load_state_dict(arrays, strict=True, assign=True)
    except RuntimeError as error:
        raise GenerationError(f"{path}: the weights do not fill {architecture}: {error}") from error
    save_module(path, network.requires_grad_(True), legacy)


def save_module(path: Path, network: "torch.nn.Module", legacy: bool) -> None:
    """Save a module in evaluation mode, whole, atomically.

    Args:
        path: the file to write.
        network: left in evaluation mode.
        legacy: as in `write_model`.
    """
    import torch

    network.eval()
    # Beside the target, so that the replacement is one rename on one file system.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".model-", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            torch.save(network, file, _use_new_zipfile_serialization=not legacy)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
    path.chmod(0o644)
