"""Graphs in checkpoints: written as JSON values, and checked when they are read."""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from converters.errors import ConverterError, CorruptFileError
from converters.graph.graph import (
    CONSTANT,
    INPUT,
    PARAM,
    Graph,
    TensorSpec,
    from_plain,
    numpy_dtype,
)
from converters.graph.module import GraphConfig
from converters.graph.registry import require
from converters.model import apply, param_shapes

_FIELDS = {"graph", "num_classes", "channels", "image_size", "layout"}
_MOST_NODES = 50_000
_MOST_ELEMENTS = 2**28
# What reading a graph of the wrong form raises.
_FORMS = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError),
    *(OverflowError, ZeroDivisionError, AssertionError),
)


def plain_of(config: GraphConfig) -> dict[str, Any]:
    """The configuration as values for JSON."""
    return {
        "graph": config.graph.to_plain(),
        "num_classes": config.num_classes,
        "channels": config.channels,
        "image_size": list(config.image_size),
        "layout": config.layout,
    }


def config_of(plain: dict[str, Any]) -> GraphConfig:
    """The configuration of `plain_of`, once it is known to be one that runs.

    Raises:
      CorruptFileError: it is none, or its calls do not fit together.
    """
    try:
        if set(plain) != _FIELDS:
            raise ValueError(f"expected exactly {', '.join(sorted(_FIELDS))}")
        graph = from_plain(plain["graph"])
        _check(graph)
        height, width = plain["image_size"]
        numbers = (plain["num_classes"], plain["channels"], height, width)
        if not all(type(n) is int and 1 <= n <= 2**24 for n in numbers):
            raise ValueError("its numbers are not whole numbers above 0")
        config = GraphConfig(require(graph), *numbers[:2], (height, width), str(plain["layout"]))
        _run_abstractly(config)
    except (*_FORMS, ConverterError) as error:
        said = f"{type(error).__name__}: {str(error)[:300]}"
        raise CorruptFileError(f"the checkpoint's graph is none that runs: {said!a}") from error
    return config


def _check(graph: Graph) -> None:
    """Sizes are bounded, and every value is made before it is used."""
    if len(graph.nodes) > _MOST_NODES or len(graph.outputs) != 1 or len(graph.inputs) != 1:
        raise ValueError("too many calls, or not one input and one output")
    known = {f"{INPUT}0", *(f"{PARAM}{name}" for name, _ in graph.params)}
    for number, constant in enumerate(graph.constants):
        constant.array()
        known.add(f"{CONSTANT}{number}")
    specs: list[TensorSpec | None] = [*graph.inputs, *(spec for _, spec in graph.params)]
    for node in graph.nodes:
        specs += node.specs
        if len(node.outputs) != len(node.specs) or not known.issuperset(node.refs()):
            raise ValueError(f"call {node.op[:60]} uses a value that nothing made")
        known.update(name for name in node.outputs if name is not None)
    if not known.issuperset(ref.name for ref in graph.outputs):
        raise ValueError("its output is a value that nothing made")
    for spec in specs:
        if spec is not None and not _is_shape(spec.shape):
            raise ValueError("a shape is negative or too large")
        if spec is not None:
            numpy_dtype(spec.dtype)


def _is_shape(shape: tuple[Any, ...]) -> bool:
    whole = all(type(n) is int and n >= 0 for n in shape)
    return whole and math.prod(shape) <= _MOST_ELEMENTS


def _run_abstractly(config: GraphConfig) -> None:
    image = jax.ShapeDtypeStruct((1, *config.image_size, config.channels), jnp.float32)
    params = {
        name: jax.ShapeDtypeStruct(shape, np.float32)
        for name, shape in param_shapes(config).items()
    }
    (logits,) = jax.tree.leaves(jax.eval_shape(partial(apply, config), params, image))
    if logits.shape != (1, config.num_classes):
        raise ValueError(f"it gives {logits.shape}, expected one row of {config.num_classes}")
