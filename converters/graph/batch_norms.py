"""Batch norms of a graph: given the statistics of the batch, or asked what they see of each image.

A graph knows one image and a batch is an axis of `vmap`, so means over the batch are taken along
that axis by its name.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from converters.graph.graph import CONSTANT, PARAM, Graph, Node, Ref
from converters.graph.layout import logical, physical
from converters.graph.module import GraphConfig, attribute_of, run_one
from converters.norm_moments import NormMoments, moments_of

_AXIS = "batch"
# (x, weight, bias, mean, variance, ...); where the sixth argument is a bool, it says "training".
_NORMS = frozenset(
    {
        "aten.batch_norm.default",
        "aten.cudnn_batch_norm.default",
        "aten.native_batch_norm.default",
        "aten._native_batch_norm_legit.default",
        "aten._native_batch_norm_legit_no_training.default",
    }
)


class NormStatistics(NamedTuple):
    """Means and variances `[channels]` of what one norm sees: of a batch, and in training."""

    mean: jax.Array
    var: jax.Array
    running_mean: jax.Array
    running_var: jax.Array


def has_norm(graph: Graph) -> bool:
    """Whether a graph has a batch norm with running statistics."""
    return any(_is_norm(node) for node in graph.nodes)


def statistics_of(graph: Graph) -> tuple[tuple[str, str], ...]:
    """Flat paths of mean and variance of each norm, in the order of `graph_by_batch`.

    Empty where a norm's lie outside the parameters.
    """
    found = [tuple(arg.name for arg in node.args[3:5]) for node in graph.nodes if _is_norm(node)]
    if not all(name.startswith(PARAM) for pair in found for name in pair):
        return ()
    return tuple(
        (attribute_of(mean.removeprefix(PARAM)), attribute_of(var.removeprefix(PARAM)))
        for mean, var in found
    )


def graph_by_batch(
    config: GraphConfig, params: Mapping[str, jax.Array], images: jax.Array
) -> tuple[jax.Array, tuple[NormStatistics, ...]]:
    """Logits `[n, classes]` of prepared images `[n, h, w, c]`, and the statistics of each norm."""
    own = {name: params[attribute_of(name)] for name, _ in config.graph.params}

    def one(image: jax.Array):
        found: list[NormStatistics] = []

        def replaced(node: Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
            if not _is_norm(node):
                return args
            x, weight, bias, mean, var, *rest = args
            found.append(NormStatistics(*_of_batch(x), mean, var))
            return x, weight, bias, found[-1].mean, found[-1].var, *rest

        return run_one(config, own, image, replaced), tuple(found)

    return jax.vmap(one, axis_name=_AXIS, out_axes=(0, None))(images)


def graph_moments(
    config: GraphConfig, params: Mapping[str, jax.Array], images: jax.Array
) -> tuple[jax.Array, tuple[NormMoments, ...]]:
    """Logits `[n, classes]` of prepared images `[n, h, w, c]`, and the moments of each norm."""
    own = {name: params[attribute_of(name)] for name, _ in config.graph.params}

    def one(image: jax.Array):
        found: list[NormMoments] = []

        def watched(node: Node, args: tuple[Any, ...]) -> tuple[Any, ...]:
            if _is_norm(node):
                x, mean, var = args[0], args[3], args[4]
                values = physical(x) if x.ndim > 2 else logical(x)
                each = moments_of(values, jnp.asarray(mean), jnp.asarray(var), values.ndim - 1)
                found.append(each)
            return args

        return run_one(config, own, image, watched), tuple(found)

    return jax.vmap(one)(images)


def _is_norm(node: Node) -> bool:
    """Whether a call is a batch norm whose statistics no input decides."""
    if node.op not in _NORMS or node.args[5] is True:
        return False
    return all(
        isinstance(arg, Ref) and arg.name.startswith((PARAM, CONSTANT)) for arg in node.args[3:5]
    )


def _of_batch(x: Any) -> tuple[jax.Array, jax.Array]:
    values = physical(x) if x.ndim > 2 else logical(x)
    axes = tuple(range(values.ndim - 1))
    mean = jax.lax.pmean(values.mean(axes), _AXIS)
    return mean, jax.lax.pmean(jnp.square(values - mean).mean(axes), _AXIS)
