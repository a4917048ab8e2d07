"""A captured graph as a `converters.model.Model` over images, and as an NNX module."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from converters.errors import ConversionError
from converters.findings import PRECISION
from converters.graph import registry
from converters.graph.extremes import refuse_extreme_factors
from converters.graph.graph import HALF, INPUT, Graph
from converters.graph.inspection import inspect
from converters.graph.last_layer import joined_rows, linear_tail, nearest_weight, rows_of
from converters.graph.recorder import Captured
from converters.graph.replay import Replace, run
from converters.graph.structure import architecture_of, described
from converters.graph.widths import refuse_wide
from converters.model import ImageConfig, Model, apply
from converters.preparation import prepared

_SPREAD = nnx.initializers.variance_scaling(2.0, "fan_in", "normal", in_axis=1, out_axis=0)


@dataclass(frozen=True)
class GraphConfig(ImageConfig):
    """A graph as a network over images; hashable, so it is a static argument of jit.

    Attributes:
      graph: captured for one image, with one output.
      num_classes: number of logits.
      channels: of the images.
      image_size: height and width of the images; a graph takes no other.
      layout: order of the graph's input, "NCHW", "NHWC", "CHW", ...; without C the channel is
        dropped. What the graph's input shape makes of it (flat vectors) is a reshape.
    """

    graph: Graph
    num_classes: int
    channels: int
    image_size: tuple[int, int]
    layout: str = "NCHW"

    mixes_types = True

    def build(self, rngs: Any) -> "GraphModule":
        """A module of this shape with random weights."""
        return GraphModule(self, rngs)

    def last_layer(self, params: Mapping[str, Any]) -> np.ndarray | None:
        """Rows of the weight nearest to the logits; see `converters.graph.last_layer`."""
        factors = linear_tail(self.graph)
        if len(factors) > 1:
            weights = tuple(params[attribute_of(factor.name)] for factor in factors)
            return joined_rows(factors, weights)
        name = nearest_weight(self.graph, self.num_classes)
        return None if name is None else rows_of(params[attribute_of(name)], self.num_classes)


class GraphModule(nnx.Module):
    """A graph's network over NHWC images; each parameter is an attribute of its torch name, see
    `attribute_of`."""

    def __init__(self, config: GraphConfig, rngs: nnx.Rngs):
        self.config = config
        for name, spec in config.graph.params:
            setattr(self, attribute_of(name), nnx.Param(_initial(name, spec.shape, rngs)))

    def __call__(self, images: jax.Array) -> jax.Array:
        """Logits `[n, classes]` of images `[n, h, w, c]`, prepared as the graph takes them."""
        config = self.config
        expected = (*config.image_size, config.channels)
        if images.shape[1:] != expected:
            raise ConversionError(
                f"got images of shape {tuple(images.shape[1:])}, this network was captured for "
                f"{expected}; resize the images, or export the network for their size"
            )
        params = {name: getattr(self, attribute_of(name))[...] for name, _ in config.graph.params}
        # The graph knows one image; the batch is an axis that XLA merges into its kernels.
        return jax.vmap(partial(run_one, config, params))(images)


def attribute_of(name: str) -> str:
    """The attribute, and flat path, of a parameter: its torch name unless modules have that one.

    >>> attribute_of("features.0.weight"), attribute_of("eval"), attribute_of("_x")
    ('features.0.weight', 'param.eval', 'param._x')
    """
    taken = name == "config" or name.startswith("_") or hasattr(GraphModule, name)
    return f"param.{name}" if taken else name


def run_one(
    config: GraphConfig, params: Mapping[str, jax.Array], image: jax.Array, *how: Replace
) -> jax.Array:
    """Logits `[classes]` of one prepared image `[h, w, c]`; `how` as `replay.run` takes it."""
    shape = config.graph.inputs[0].shape
    ordered = _ordered(config.layout, image).reshape(shape)
    (logits,) = run(config.graph, params, (ordered,), *how)
    return logits.reshape(config.num_classes)


def _ordered(layout: str, image: jax.Array) -> jax.Array:
    """An image `[h, w, c]` in the order of `layout`."""
    order = [letter for letter in layout if letter != "N"]
    axes = ["HWC".index(letter) for letter in order]
    if "C" not in order:
        axes.append(2)
    return jnp.transpose(image, axes)


def _initial(name: str, shape: tuple[int, ...], rngs: nnx.Rngs) -> jax.Array:
    if len(shape) > 1:
        return _SPREAD(rngs.params(), shape, jnp.float32)
    ones = name.rpartition(".")[2] in ("weight", "running_var")
    return jnp.ones(shape) if ones else jnp.zeros(shape)


def graph_model(
    captured: Captured,
    *,
    layout: str = "NCHW",
    image_shape: tuple[int, int, int] | None = None,
    output: int = 0,
    bounds: tuple[float, float] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    architecture: str | None = None,
    findings: tuple[str, ...] = (),
    by_operators: bool = False,
) -> Model:
    """The model of a captured network over images.

    Args:
      captured: for one input of batch 1.
      layout: order of the graph's input, see `GraphConfig`.
      image_shape: height, width and channels; needed where the graph's input is flat.
      output: number of the output that holds the logits.
      bounds: values that pixels 0 and 1 have for the network; (0, 1) by default.
      mean: per channel, subtracted from pixels within bounds.
      std: per channel, what pixels are divided by then.
      architecture: name for records; one by structure by default.
      findings: what was noticed on the way.
      by_operators: see `refuse_wide`.

    Raises:
      UnsupportedOperatorError: an operator, or a form of one, cannot be lowered.
      ConversionError: the graph is no classifier of one image.
    """
    graph = _one_input(captured.graph, output)
    image_shape = image_shape or _image_shape(graph.inputs[0].shape, layout)
    height, width, channels = image_shape
    config = GraphConfig(graph, _classes(graph), channels, (height, width), layout)
    if not any(f"{INPUT}0" in node.refs() for node in graph.nodes):
        raise ConversionError(
            "the output is the same for every image, expected logits of it; name another output "
            "with --output where the network has several"
        )
    names = {attribute_of(name): name for name, _ in graph.params}
    if len(names) < len(graph.params):
        raise ConversionError("two weights have the same name once special names are escaped")
    refuse_wide(graph, captured.params, by_operators)
    refuse_extreme_factors(graph, captured.params)
    params = {a: jax.device_put(_single(captured.params[name])) for a, name in names.items()}
    image = jax.ShapeDtypeStruct((1, *image_shape), jnp.float32)
    jax.eval_shape(partial(apply, config), params, image)
    chosen = Captured(graph, captured.params)
    name = architecture or architecture_of(graph)
    findings = (*findings, described(name, graph), *inspect(chosen))
    return prepared(Model(config, params, name, findings), bounds, mean, std)


def precision_finding(captured: Captured) -> tuple[str, ...]:
    """That a network computes in another precision than it is scanned in, or some calls of it in
    half precision, whose last bits depend on the order of sums; none where not so."""
    graph = captured.graph
    name = graph.float_dtype
    calls = {s.dtype for node in graph.nodes for s in node.specs if s is not None}
    within = sorted(calls & set(HALF) - {name})
    held = {str(np.asarray(value).dtype) for value in captured.params.values()}
    other = sorted(({name, *(held - {"float64"})} & {*HALF, "float64"}) - set(within))
    wide = f"{PRECISION} {' and '.join(other)}; it is scanned in float32, which may answer"
    half = f"{PRECISION} {' and '.join(within)} in places, as it is scanned; it may answer"
    said = [*([wide] if other else []), *([half] if within else [])]
    return tuple(f"{words} otherwise where two logits are close" for words in said)


def _single(value: np.ndarray) -> np.ndarray:
    """Half and double precision as float32, the type that models are scanned in."""
    return np.asarray(value, np.float32)


def _one_input(graph: Graph, output: int) -> Graph:
    if not 0 <= output < len(graph.outputs):
        raise ConversionError(f"output {output} of {len(graph.outputs)} does not exist")
    chosen = registry.require(graph.select(output))
    if len(chosen.inputs) != 1:
        raise ConversionError(
            f"the network takes {len(chosen.inputs)} inputs, expected one, the image; "
            "export it with the others fixed"
        )
    return chosen


def _classes(graph: Graph) -> int:
    spec = graph.specs[graph.outputs[0].name]
    wide = [n for n in spec.shape if n != 1]
    if len(wide) > 1:
        raise ConversionError(
            f"the output has shape {spec.shape}, expected one row of logits: this is no classifier "
            "of one image (a detector gives many rows), or another of its outputs holds the "
            "logits; name that with --output where it has several"
        )
    return math.prod(spec.shape)


def _image_shape(shape: tuple[int, ...], layout: str) -> tuple[int, int, int]:
    """Height, width and channels of a graph's input."""
    if not {"H", "W"} <= set(layout) <= set("NCHW") or len(set(layout)) != len(layout):
        raise ConversionError(f"layout {layout!r} is no order of the letters N, C, H and W")
    if len(shape) != len(layout):
        raise ConversionError(
            f"the network's input has shape {shape}, which is not {layout}; "
            "say its layout, or for flat inputs the shape of the images"
        )
    sizes = dict(zip(layout, shape, strict=True))
    if sizes.get("N", 1) != 1:
        raise ConversionError(f"captured for a batch of {sizes['N']} images, expected 1")
    return sizes["H"], sizes["W"], sizes.get("C", 1)
