"""Graphs that are a family's network: served by the family's module, which is faster.

Exporters rename weights and fold batch norms, so names prove nothing. The network that a graph
might be is made by torchvision, with batch norms folded or not, captured for the same images, and
compared with the graph call by call (`converters.graph.matching`). Only a graph without any other
call is recognised; every other one stays a graph.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import torch

from converters import families
from converters.families.family import Family, GraphOutline
from converters.families.names import LAYOUTS, target_of
from converters.families.reference import empty_module
from converters.graph.graph import Graph, Ref
from converters.graph.matching import weights_of
from converters.graph.recorder import Captured
from converters.graph.tape import capture
from converters.model import Model, NetworkConfig, param_shapes
from converters.weights import single_precision

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
    for family, config in _candidates(graph, outputs[1]):
        # Of the reference the graph alone is kept: its weights take as much as the file's.
        reference = capture(_zero_module(family, config), [torch.zeros(shape)]).graph
        found = weights_of(reference, graph, scalars)
        if found is not None:
            tensors = {name: captured.params[other] for name, other in found.items()}
            return _model(family, config, tensors)
    return None


def _candidates(graph: Graph, classes: int) -> Iterator[tuple[Family, Any]]:
    """Configurations of as many convolutions and norms as the graph has, with its widths."""
    shapes = [
        graph.specs[node.args[1].name].shape
        for node in graph.nodes
        if node.op.startswith(_CONVOLUTIONS) and isinstance(node.args[1], Ref)
    ]
    norms = sum("batch_norm" in node.op for node in graph.nodes)
    for family, outline, standard in _outlined(classes):
        convolutions, all_norms = outline.counts(standard)
        folded = norms == all_norms - len(family.norm_pairs(standard))
        if convolutions != len(shapes) or not (folded or norms == all_norms):
            continue
        config = _with_widths(family, standard, shapes, classes)
        if config is not None:
            variants = outline.variants(replace(config, folded=folded))
            yield from ((family, variant) for variant in variants)


def _outlined(classes: int) -> Iterator[tuple[Family, GraphOutline, Any]]:
    """Every order of layers of the families, as (family, its outline, a standard configuration)."""
    for family in families.FAMILIES.values():
        if family.graph is not None and family.standard is not None:
            for architecture in family.graph.architectures:
                yield family, family.graph, family.standard(architecture, classes)


def _with_widths(
    family: Family, standard: NetworkConfig, shapes: list[tuple[int, ...]], classes: int
) -> Any:
    """The configuration of a network with these weights of convolutions, in torch's order."""
    layers = empty_module(standard).named_modules()
    names = [path for path, layer in layers if isinstance(layer, torch.nn.Conv2d)]
    described = {f"{path}.weight": shape for path, shape in zip(names, shapes, strict=True)}
    if any(len(shape) != 4 or 0 in shape for shape in shapes):
        return None
    config = family.recognise(described | {f"{standard.last_path}.weight": (classes, 1)})
    if config is None:
        return None
    try:
        param_shapes(config)
    except (ValueError, ZeroDivisionError, TypeError, OverflowError):  # widths of no such network
        return None
    return config


def _zero_module(family: Family, config: Any) -> torch.nn.Module:
    """torch's module of a configuration, folded as it says, with all weights 0."""
    module = empty_module(replace(config, folded=False)).to_empty(device="cpu")
    for value in module.state_dict().values():
        value.zero_()
    if config.folded:
        for conv, norm in family.norm_pairs(config):
            layer = module.get_submodule(conv)
            layer.bias = torch.nn.Parameter(torch.zeros(layer.out_channels))
            parent, _, name = norm.rpartition(".")
            setattr(module.get_submodule(parent), name, torch.nn.Identity())
    return module.eval().requires_grad_(False)


def _model(family: Family, config: Any, tensors: dict[str, Any]) -> Model:
    params = {}
    for name, value in single_precision(tensors, config.eps).items():
        found = target_of(family.table, name)
        path, layout = found or (name, "vector")  # the bias that a folded norm leaves
        params[path] = jax.device_put(value.transpose(LAYOUTS[layout]))
    if {path: value.shape for path, value in params.items()} != param_shapes(config):
        raise AssertionError("a network that matches has other parameters than its module")
    return Model(config, params, family.architecture(config))
