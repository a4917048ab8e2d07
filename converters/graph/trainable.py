"""Which parameters of a graph are weights, as training may change them, and which are constants.

Every floating tensor of a file is a parameter: the kernels of layers, and the exponent of a squared
deviation, what is added to a variance, the bounds of a clip. Adam would move those too, and the
gradient of a power by its exponent is no number below 0. So a parameter is a weight by its use:
wherever it meets values that the image decides, it must be

- what a layer takes as its weight: a convolution, a product of matrices, a norm's scale and shift,
  a PReLU's slope, a recurrent layer, an embedding;
- or, with several elements, a summand (biases, positions), a factor (scales) or joined to them
  (class tokens); a mask, which holds numbers of 1e4 and more, is none of these.

Calls of weights alone lead on to where their results are used; from a single number only moves do.
Where a tensor has several uses, all of them must fit.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from converters.graph.constants import Constants
from converters.graph.graph import PARAM, Graph, Node, Ref
from converters.graph.intervals import MOVED
from converters.graph.recorder import Captured
from converters.graph.structure import base_name

_ANY = tuple(range(8))
_OF_LAYERS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), (1, 2)),
    **dict.fromkeys((f"conv{n}d" for n in (1, 2, 3)), (1, 2)),
    **dict.fromkeys((f"conv_transpose{n}d" for n in (1, 2, 3)), (1, 2)),
    **dict.fromkeys(("linear", "addmm", "mm", "matmul", "bmm", "baddbmm", "addbmm"), _ANY),
    **dict.fromkeys(("mv", "addmv", "dot", "einsum", "bilinear"), _ANY),
    **dict.fromkeys(("batch_norm", "native_batch_norm", "cudnn_batch_norm"), (1, 2)),
    **dict.fromkeys(("_native_batch_norm_legit", "instance_norm", "native_group_norm"), (1, 2)),
    "_native_batch_norm_legit_no_training": (1, 2),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "group_norm"), (2, 3)),
    **dict.fromkeys(("rms_norm", "_fused_rms_norm"), (2,)),
    **dict.fromkeys(("prelu", "_prelu_kernel"), (1,)),
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _ANY),
    "scaled_dot_product_attention": (0, 1, 2),
    "embedding": (0,),
}
"""Operator -> places of its weights among the arguments."""
_OF_SEVERAL: Mapping[str, tuple[int, ...]] = {
    "add": (0, 1), "mul": (0, 1), "cat": (0,), "stack": (0,),
}  # fmt: skip
"""The same for parameters of several elements that are no masks."""
_MASKED = 1e4
"""Sizes from here on are those of masks."""


def weights_of(graph: Graph, params: Mapping[str, Any]) -> frozenset[str]:
    """Torch names of the parameters that are weights.

    Args:
      graph: the network.
      params: torch name -> array of each of its parameters.
    """
    arrays = {name: np.asarray(params[name]) for name, _ in graph.params}
    single = {name for name, array in arrays.items() if array.size <= 1}
    fixed = single | {n for n, array in arrays.items() if not (np.abs(array) < _MASKED).all()}
    of_image = Constants(Captured(graph, params)).of_image
    held = {f"{PARAM}{name}": frozenset({name}) for name in arrays}
    weights: set[str] = set()
    others: set[str] = set()
    for node in graph.nodes:
        if of_image.isdisjoint(node.refs()):
            led = frozenset().union(*(held.get(name, ()) for name in node.refs()))
            led = led if base_name(node) in MOVED else led - single
            held.update({name: led for name in node.outputs if name is not None})
            continue
        for place, name in _operands(node):
            met = held.get(name, frozenset())
            fits = _fitting(node, place, met, fixed)
            weights |= fits
            others |= met - fits
    return frozenset(weights - others)


def _operands(node: Node) -> Iterator[tuple[int, str]]:
    """Place and name of every value among the arguments; -1 for those by keyword."""
    waiting = [*enumerate(node.args), *((-1, value) for _, value in node.kwargs)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, Ref):
            yield place, value.name
        elif isinstance(value, tuple):
            waiting += [(place, part) for part in value]


def _fitting(node: Node, place: int, met: frozenset[str], fixed: set[str]) -> frozenset[str]:
    """Those of the parameters that a call takes as weights at this place."""
    if place in _OF_LAYERS.get(base_name(node), ()):
        return met
    return met - fixed if place in _OF_SEVERAL.get(base_name(node), ()) else frozenset()
