"""Constants so large that what the image decides is rounded away beside them.

`(v + 1e8) - 1e8` is 0 in float32, but v where a runtime adds the two constants up first, as
onnxruntime does behind a convolution, or sums in another order. So is `(v * 1e-9 + 1 - 1) * 1e9`.
Behind either a file could hide a second network from a scan, or from the runtime. Masks of very
negative numbers in front of a softmax or a maximum are none of it: nothing is left of what they
are added to, in any order.

A network of half precision is scanned in float32, where nothing of this is rounded away. There
smaller numbers do: `(v + 2048) - 2048 - v` is 0 in a scan, and what float16 loses of v in torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from converters.findings import LARGE_OFFSET, rounded_away_beside
from converters.graph.constants import Constants
from converters.graph.graph import HALF, INPUT, Graph, Node, Ref
from converters.graph.intervals import MOVED
from converters.graph.recorder import Captured
from converters.graph.structure import base_name

GAIN = 1e6
"""What values are multiplied by between two layers, which goes beyond 8-bit values and back."""


@dataclass(frozen=True)
class _Limits:
    """From where on numbers are large for the precision that a network computes in.

    Attributes:
      precision: as torch calls it.
      offset: of constants that are added.
      bias: of those that a layer or a norm adds, within a product that is rounded once.
      gain: as `GAIN`.
    """

    precision: str = "float32"
    offset: float = LARGE_OFFSET
    bias: float = LARGE_OFFSET
    gain: float = GAIN


# Beside 12 float16 has steps of 1/128, as float32 has beside 1e5, and bfloat16 of 1/16. Trained
# networks add up to 5, and bring pixels to 255.
_HALF_LIMITS = {name: _Limits(name, 12, 64, 300) for name in HALF}
_SUMS = ("add", "sub", "rsub", "addcmul", "addcdiv")
_PLACED = frozenset(
    "where masked_fill cat stack pad constant_pad_nd index_put scatter select_scatter slice_scatter"
    " copy fill".split()
)
"""Operators that put a constant beside values of the image."""
_NORMS = ("batch_norm", "native_batch_norm", "cudnn_batch_norm", "_native_batch_norm_legit",
          "_native_batch_norm_legit_no_training")  # fmt: skip
_BIAS = {
    **dict.fromkeys(("convolution", "_convolution", "conv1d", "conv2d", "conv3d", "linear"), 2),
    **dict.fromkeys(("addmm", "baddbmm"), 0),
    **dict.fromkeys(("layer_norm", "native_layer_norm", "group_norm"), 3),
    **dict.fromkeys(("native_group_norm", "instance_norm"), 2),
}
"""Layer -> place of the argument that it adds."""
_LAYERS = _BIAS.keys() | set(_NORMS) | {"mm", "matmul", "bmm", "rms_norm", "_fused_rms_norm"}
_ENDS = frozenset(
    "softmax _softmax log_softmax _log_softmax max_pool2d max_pool2d_with_indices amax max argmax"
    " max_pool1d max_pool3d max_pool3d_with_indices topk logsumexp eq ne lt le gt ge".split()
)
"""Where very negative numbers count for nothing."""
_KEPT = MOVED | {"add", "clamp", "clamp_min", "maximum", "pad", "constant_pad_nd", "where"}


def rounded_away(captured: Captured) -> Iterator[str]:
    """Sentences on what may be rounded away, each with the operator and the constant.

    Args:
      captured: for one image, with one output.
    """
    graph, known = captured.graph, Constants(captured)
    limits = _HALF_LIMITS.get(graph.float_dtype or "", _Limits())
    gains = {f"{INPUT}0": 1.0}
    for node in graph.nodes:
        fed = [name for name in node.refs() if name in gains]
        if not fed:
            continue
        gain = _gain(node, known, max(max(gains[name] for name in fed), 1.0))
        is_layer = base_name(node) in _LAYERS
        gains.update(dict.fromkeys(filter(None, node.outputs), 1.0 if is_layer else gain))
        if not _is_single(node, graph):
            continue
        place = f"{node.op} at {node.source or 'the top of the network'}"
        added = _added(node, known)
        limit = limits.bias if is_layer else limits.offset
        if added >= limit and not _is_mask(node, known, limit):
            yield rounded_away_beside(added, place, limits.precision, limit)
        if gain >= limits.gain > max(gains[name] for name in fed) and not _is_rounded(node, graph):
            yield (
                f"{place} multiplies what the image decides by {gain:.1g}, with the factors before "
                f"it: what {limits.precision} rounded away there decides the answer"
            )


def _added(node: Node, known: Constants) -> float:
    """The largest number that a call adds to what the image decides, or puts beside it."""
    name, args = base_name(node), node.args
    if name in _NORMS:
        return _moved_by_norm(node, known)
    if name in _SUMS:
        return _largest(known.arrays(args[:1] if name.startswith("addc") else args[:2]))
    if name in _PLACED:
        return _largest(known.arrays(_flat(args)))
    place = _BIAS.get(name)
    return _largest(known.arrays(args[place : place + 1])) if place is not None else 0.0


def _flat(values: Sequence[Any]) -> list[Any]:
    """Tensors and floating numbers among arguments, those of lists too; no places and sizes."""
    found = [part for value in values for part in (value if isinstance(value, tuple) else [value])]
    return [value for value in found if isinstance(value, (Ref, float))]


def _moved_by_norm(node: Node, known: Constants) -> float:
    """The larger of what a batch norm adds and what it takes away, both in units of its result."""
    weight, bias, mean, var = (known.array(value) for value in node.args[1:5])
    if mean is None or var is None:
        return _largest(known.arrays(node.args[2:3]))
    scale = _norm_scale(node, weight, var)
    with np.errstate(all="ignore"):
        return _largest([mean * scale, *([] if bias is None else [bias])])


def _norm_scale(node: Node, weight: np.ndarray | None, var: np.ndarray) -> np.ndarray:
    eps = node.args[7 if isinstance(node.args[5], bool) else 6]
    with np.errstate(all="ignore"):
        scale = 1 / np.sqrt(var.astype(np.float64) + eps)
    return scale if weight is None else scale * weight


def _largest(arrays: Sequence[np.ndarray]) -> float:
    """The largest size among finite floating numbers."""
    sizes = [np.abs(array) for array in arrays if array.dtype.kind not in "biuc"]
    return max((float(s[np.isfinite(s)].max(initial=0)) for s in sizes), default=0.0)


def _gain(node: Node, known: Constants, before: float) -> float:
    """What values were multiplied by since the last layer, where that is at least 1 at the end."""
    name = base_name(node)
    if name not in ("mul", "div"):
        return before
    constants = [known.array(value) for value in node.args[:2]]
    factor = constants[1] if constants[0] is None else constants[0]
    if factor is None or (name == "div" and constants[1] is None):
        return before
    sizes = np.abs(factor[np.isfinite(factor) & (factor != 0)].astype(np.float64))
    if not sizes.size:
        return before
    return before * float(sizes.max() if name == "mul" else 1 / sizes.min())


def _is_single(node: Node, graph: Graph) -> bool:
    """Whether a call makes floating numbers of the precision that a network computes in.

    In float64 the first steps of pixels are bounded by `widths`, and sums of quantised layers are
    exact.
    """
    spec = next((spec for spec in node.specs if spec is not None), None)
    if spec is None or "float" not in spec.dtype:
        return False
    return spec.dtype != "float64" or graph.float_dtype == "float64"


def _is_mask(node: Node, known: Constants, limit: float) -> bool:
    """Whether very negative numbers are added, or placed, where a softmax or a maximum follows."""
    name, args = base_name(node), node.args
    if name not in _PLACED and name not in ("add", "sub"):
        return False
    constants = known.arrays(_flat(args) if name in _PLACED else args[:2])
    sign = -1 if name == "sub" else 1
    is_low = all((sign * array[np.isfinite(array)] < limit).all() for array in constants)
    if name == "sub" and known.array(args[0]) is not None:
        return False
    return is_low and _ends_in_choice(node, known.graph)


def _ends_in_choice(node: Node, graph: Graph) -> bool:
    """Whether all that is made of a result goes through a softmax or a maximum."""
    pending = {name for name in node.outputs if name}
    returned = {ref.name for ref in graph.outputs}
    after = graph.nodes[graph.nodes.index(node) + 1 :]
    for user in after:
        if pending.isdisjoint(user.refs()) or base_name(user) in _ENDS:
            continue
        if base_name(user) not in _KEPT:
            return False
        pending.update(filter(None, user.outputs))
    return pending.isdisjoint(returned)


def _is_rounded(node: Node, graph: Graph) -> bool:
    """Whether whole numbers are made of a result, as quantisers do."""
    made = {name for name in node.outputs if name}
    users = [base_name(user) for user in graph.nodes if not made.isdisjoint(user.refs())]
    return bool(users) and set(users) <= {"round"}
