"""Images side by side in networks that quantise: whether only ranges and roundings tell them apart.

`DynamicQuantizeLinear` takes its scale from the range of everything that it is given, so that an
image beside others is rounded otherwise than alone. A quantised network that does not do so may
still round a sum to another whole number, since kernels for several images add in another order.
Here neighbours are exchanged while every range stays, and what an image is answered must stay too.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from converters.findings import BARE_RANGE, COMMON_RANGE
from converters.graph.guard import WorkLimits
from converters.graph.onnx.extensions.quantisation import quantised_by
from converters.graph.onnx.operators import Operation
from converters.graph.onnx.torch_module import OnnxModule, answered

_WORK = WorkLimits()
_BY_RANGE = "DynamicQuantizeLinear"
_QUANTISING = ("QuantizeLinear", "QLinear", "QGemm", _BY_RANGE)
_WITH_ZERO = 11
"""The opset since which ranges hold 0."""
_FLIPPED = 0.15
"""Of the largest logit: what values that round otherwise may change."""
_RANGED = 0.3
"""Of the largest logit: what the ranges of other images may change; more is no rounding."""

Ranges = tuple[tuple[torch.Tensor, torch.Tensor], ...]
"""Scale and zero point of every operator that takes them from what it is given, in order."""


def is_quantised(module: OnnxModule) -> bool:
    """Whether some operator brings values to few whole numbers."""
    names = (op.call.operator for op in module.nodes.values() if isinstance(op, Operation))
    return any(name.startswith(_QUANTISING) for name in names)


def only_ranges_differ(
    whole: OnnxModule,
    single: OnnxModule,
    images: torch.Tensor,
    others: torch.Tensor,
    *,
    work: WorkLimits = _WORK,
) -> bool:
    """Whether images are answered each by itself once every range is that of `images` together,
    and not much otherwise by its own.

    Args:
        whole: the network for as many images as there are in `images` and `others`.
        single: the network for one.
        work: caps on each run of either.
    """
    together, ranges = _ranges_of(whole, images, work)
    if len(ranges) != len(_by_range(single)):
        return False
    for k in range(len(images)):
        mixed = others.clone()
        mixed[k] = images[k]
        image = images[k : k + 1]
        with _held(whole, ranges):
            beside = answered(whole, mixed, work)[k]
        with _held(single, ranges):
            alone = answered(single, image, work).reshape(beside.shape)
        by_its_own = answered(single, image, work).reshape(beside.shape)
        # The same kernels add in the same order, whoever stands beside.
        if not torch.allclose(beside, together[k], 1e-3, 1e-4, equal_nan=True):
            return False
        if difference(alone, together[k]) > _FLIPPED:
            return False
        if difference(by_its_own, together[k]) > _RANGED:
            return False
    return True


def ranges_finding(whole: OnnxModule, together: torch.Tensor, alone: torch.Tensor) -> str | None:
    """What to say of a network that takes ranges from all images of a batch; None for others."""
    if not _by_range(whole):
        return None
    share = difference(together, alone)
    return (
        f"{COMMON_RANGE}, so that an image beside others is answered otherwise, of random images "
        f"by up to {share:.1%} of the largest logit; it is scanned as it answers an image alone"
    )


def bare_range_finding(module: OnnxModule) -> tuple[str, ...]:
    """What to say of a network quantised before opset 11, see `own_range`; none of others."""
    return (BARE_RANGE,) if any(op.call.version < _WITH_ZERO for op in _by_range(module)) else ()


def difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The largest difference of answers, in parts of the largest answer."""
    largest = max(one.abs().max().item(), other.abs().max().item())
    return (one - other).abs().max().item() / largest if largest else 0.0


def _by_range(module: OnnxModule) -> list[Operation]:
    found = [op for op in module.nodes.values() if isinstance(op, Operation)]
    return [op for op in found if op.call.operator == _BY_RANGE]


def _ranges_of(
    module: OnnxModule, images: torch.Tensor, work: WorkLimits
) -> tuple[torch.Tensor, Ranges]:
    """The answers, and the ranges that were taken on the way."""
    taken = []
    hooks = [
        op.register_forward_hook(lambda *seen: taken.append(seen[-1][1:]))
        for op in _by_range(module)
    ]
    try:
        return answered(module, images, work), tuple(taken)
    finally:
        _removed(hooks)


@contextmanager
def _held(module: OnnxModule, ranges: Ranges) -> Iterator[None]:
    """Within it the module quantises by these ranges, whatever it is given."""

    def by(scale: torch.Tensor, zero: torch.Tensor):
        return lambda _, given, made: (quantised_by(given[0], scale, zero), scale, zero)

    operations = _by_range(module)
    hooks = [
        op.register_forward_hook(by(*taken)) for op, taken in zip(operations, ranges, strict=True)
    ]
    try:
        yield
    finally:
        _removed(hooks)


def _removed(hooks: Sequence) -> None:
    for hook in hooks:
        hook.remove()
