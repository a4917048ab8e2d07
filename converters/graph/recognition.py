"""Graphs that are a family's network: served by the family's module, which is faster.

Exporters rename weights and fold batch norms, so names prove nothing. The network that a graph
might be is made by torchvision, with batch norms folded or not, captured for the same images, and
compared with the graph call by call (`converters.graph.matching`). Only a graph without any other
call is recognised; every other one stays a graph.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import torch

from converters import families
from converters.families.densenet import DenseNetConfig
from converters.families.inception import InceptionConfig
from converters.families.names import LAYOUTS, target_of
from converters.families.reference import empty_module
from converters.graph.graph import Graph, Ref
from converters.graph.matching import weights_of
from converters.graph.recorder import Captured
from converters.graph.tape import capture
from converters.model import Model, param_shapes
from converters.weight_values import single_precision

# One network of each order of layers; widths and groups are those of the graph.
_ORDERS = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152",
           *families.densenet.DEPTHS, "inception_v3")  # fmt: skip
_CONVOLUTIONS = ("aten.convolution.", "aten._convolution.", "aten.conv2d.")


def family_model(captured: Captured) -> Model | None:
    """The family's model that computes what a captured graph computes; None if there is none.

    Args:
      captured: for one image, NCHW.

    Raises:
      ConversionError: it is a family's network, with weights that are not finite.
    """
    graph = captured.graph
    shape = graph.inputs[0].shape if len(graph.inputs) == len(graph.outputs) == 1 else ()
    outputs = graph.specs[graph.outputs[0].name].shape
    if len(shape) != 4 or len(outputs) != 2:
        return None
    scalars = {name: float(v) for name, v in captured.params.items() if np.ndim(v) == 0}
    for config in _candidates(graph, outputs[1]):
        reference = capture(_zero_module(config), [torch.zeros(shape)])
        found = weights_of(reference.graph, graph, scalars)
        if found is not None:
            return _model(config, {name: captured.params[other] for name, other in found.items()})
    return None


def _candidates(graph: Graph, classes: int) -> Iterator[Any]:
    """Configurations of as many convolutions and norms as the graph has, with its widths."""
    shapes = [
        graph.specs[node.args[1].name].shape
        for node in graph.nodes
        if node.op.startswith(_CONVOLUTIONS) and isinstance(node.args[1], Ref)
    ]
    norms = sum("batch_norm" in node.op for node in graph.nodes)
    for name in _ORDERS:
        family = families.ARCHITECTURES[name]
        standard = family.standard(name, classes)
        convolutions, all_norms = _counts(standard)
        folded = norms == all_norms - len(family.norm_pairs(standard))
        if convolutions != len(shapes) or not (folded or norms == all_norms):
            continue
        config = _with_widths(family, standard, shapes, classes)
        if config is None:
            continue
        yield replace(config, folded=folded)
        if isinstance(config, InceptionConfig):
            yield replace(config, folded=folded, transform_input=True)


def _counts(config: Any) -> tuple[int, int]:
    """Convolutions and batch norms of a network."""
    if isinstance(config, DenseNetConfig):
        inner = 2 * sum(map(len, config.blocks)) + len(config.transitions)
        return 1 + inner, 2 + inner
    if isinstance(config, InceptionConfig):
        return len(config.widths), len(config.widths)
    blocks = [block for stage in config.stages for block in stage]
    count = 1 + sum(len(block.widths) + block.downsample for block in blocks)
    return count, count


def _with_widths(family: Any, standard: Any, shapes: list[tuple[int, ...]], classes: int) -> Any:
    """The configuration of a network with these weights of convolutions, in torch's order."""
    layers = empty_module(standard).named_modules()
    names = [path for path, layer in layers if isinstance(layer, torch.nn.Conv2d)]
    described = {f"{path}.weight": shape for path, shape in zip(names, shapes, strict=True)}
    if any(len(shape) != 4 or 0 in shape for shape in shapes):
        return None
    heads = {f"{head}.weight": (classes, 1) for head in ("fc", "classifier")}
    config = family.recognise(described | heads)
    try:
        param_shapes(config)
    except (ValueError, ZeroDivisionError, TypeError, OverflowError):  # widths of no such network
        return None
    return config


def _zero_module(config: Any) -> torch.nn.Module:
    """torchvision's module of a configuration, folded as it says, with all weights 0."""
    module = empty_module(replace(config, folded=False)).to_empty(device="cpu")
    for value in module.state_dict().values():
        value.zero_()
    if config.folded:
        for conv, norm in families.family_of(config).norm_pairs(config):
            layer = module.get_submodule(conv)
            layer.bias = torch.nn.Parameter(torch.zeros(layer.out_channels))
            parent, _, name = norm.rpartition(".")
            setattr(module.get_submodule(parent), name, torch.nn.Identity())
    return module.eval().requires_grad_(False)


def _model(config: Any, tensors: dict[str, Any]) -> Model:
    table = families.family_of(config).TABLE
    params = {}
    for name, value in single_precision(tensors, config.eps).items():
        found = target_of(table, name)
        path, layout = found or (name, "vector")  # the bias that a folded norm leaves
        params[path] = jnp.asarray(value.transpose(LAYOUTS[layout]))
    if {path: value.shape for path, value in params.items()} != param_shapes(config):
        raise AssertionError("a network that matches has other parameters than its module")
    return Model(config, params, families.architecture_of(config))
