"""The networks that a round is made of, as Flax modules and as the torchvision modules they become.

`densenet_small` is a genuine torchvision DenseNet with few, narrow layers (0.6 MB): for tests, for
example models that ship with the package, and for trying things out on a laptop.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

ROUND0 = ("resnet50", "densenet121", "inception_v3")
SMALL = "densenet_small"
KNOWN = (*ROUND0, SMALL)
# Smaller pictures leave a layer without an input.
LEAST_PIXELS = {"resnet50": 33, "densenet121": 33, "inception_v3": 75, SMALL: 33}

_GROWTH, _BLOCKS, _STEM = 16, (3, 3, 3, 3), 32
_EXTRA = {"inception_v3": {"aux_logits": False, "transform_input": False, "init_weights": False}}


def build(architecture: str, num_classes: int, rngs: nnx.Rngs) -> nnx.Module:
    """A freshly initialised Flax module; `architecture` is one of `KNOWN`."""
    from converters import families

    if architecture == SMALL:
        return _small_config(num_classes).build(rngs)
    module = families.build(architecture, num_classes, rngs)[1]
    if architecture == "resnet50":
        _begin_as_identity(module)
    return module


def _begin_as_identity(module: nnx.Module) -> None:
    """Zero the last scale of every residual block, so that a deep network begins as a shallow one.

    Source: Goyal et al., Accurate, Large Minibatch SGD, https://arxiv.org/abs/1706.02677, 5.1;
    torchvision's `zero_init_residual`. It saves a third of the steps here.
    """
    for path, leaf in nnx.to_flat_state(nnx.state(module, nnx.Param)):
        if path[-2:] == ("bn3", "scale"):
            leaf[...] = leaf[...] * 0.0


def name_table(architecture: str):
    """The rules that take torch names of this architecture to Flax paths."""
    return _family(architecture).table


def filled(module: nnx.Module, architecture: str, tensors: Mapping[str, np.ndarray]) -> nnx.Module:
    """`module`, a network of `build`, with the weights of a torch state dict, in evaluation mode.

    Raises:
        MismatchError: the weights are not those of the architecture.
    """
    from converters.families import names

    family = _family(architecture)
    leaves = {".".join(map(str, path)): leaf for path, leaf in _leaves(module)}
    shapes = {path: tuple(leaf.shape) for path, leaf in leaves.items()}
    params = names.assign(family.table, family.ignored, tensors, shapes)
    for path, leaf in leaves.items():
        leaf[...] = jnp.asarray(params[path])
    module.eval()
    return module


def torchvision_module(architecture: str, num_classes: int) -> Any:
    """The torchvision module of the same shape, without memory for its weights."""
    import torch
    from torchvision import models

    with torch.device("meta"):
        if architecture == SMALL:
            return models.DenseNet(_GROWTH, _BLOCKS, _STEM, num_classes=num_classes)
        build_it = getattr(models, architecture)
        return build_it(weights=None, num_classes=num_classes, **_EXTRA.get(architecture, {}))


def _family(architecture: str):
    from converters import families

    small = architecture == SMALL
    return families.FAMILIES["densenet"] if small else families.standards()[architecture]


def _leaves(module: nnx.Module):
    return nnx.to_flat_state(nnx.state(module, (nnx.Param, nnx.BatchStat)))


def _small_config(num_classes: int):
    from converters.families import densenet

    transitions, width = [], _STEM
    for depth in _BLOCKS[:-1]:
        width = (width + depth * _GROWTH) // 2
        transitions.append(width)
    blocks = tuple(((4 * _GROWTH, _GROWTH),) * depth for depth in _BLOCKS)
    return densenet.DenseNetConfig(_STEM, blocks, tuple(transitions), num_classes)
