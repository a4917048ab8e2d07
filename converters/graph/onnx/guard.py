"""Refuses torch operations whose result would be too large, before torch allocates it."""

import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.flop_counter import flop_registry

from converters.errors import TooLargeError
from converters.graph.onnx.limits import OnnxLimits

# Below this nothing needs to be known beforehand.
_SMALL = 2**20


class SizeGuard(TorchDispatchMode):
    """While active, each operation's shapes are worked out on the meta device first.

    Raises TooLargeError where a result has more than `limits.value_elements`, or the operations
    seen so far more than `limits.total_multiply_adds`.
    """

    def __init__(self, limits: OnnxLimits):
        super().__init__()
        self._limits = limits
        self._multiply_adds = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _bound(args, kwargs) > _SMALL:
            self._check(func, args, kwargs)
        return func(*args, **kwargs)

    def _check(self, func, args: Any, kwargs: Any) -> None:
        meta_args, meta_kwargs = tree_map(_to_meta, (args, kwargs))
        try:
            result = func(*meta_args, **meta_kwargs)
        except (NotImplementedError, RuntimeError):
            # Shapes that hang on values (nonzero, masks) are at most those of the inputs; what
            # torch refuses on the meta device it refuses, with the better message, for real.
            return
        for leaf in tree_flatten(result)[0]:
            if isinstance(leaf, torch.Tensor) and leaf.numel() > self._limits.value_elements:
                raise TooLargeError(
                    f"{func} would make {leaf.numel()} elements, more than "
                    f"OnnxLimits.value_elements = {self._limits.value_elements}"
                )
        self._count(func, meta_args, meta_kwargs, result)

    def _count(self, func, args: Any, kwargs: Any, result: Any) -> None:
        formula = flop_registry.get(func.overloadpacket)
        if formula is None:
            return
        self._multiply_adds += formula(*args, **kwargs, out_val=result) // 2
        if self._multiply_adds > self._limits.total_multiply_adds:
            raise TooLargeError(
                "one forward pass takes more multiplications than "
                f"OnnxLimits.total_multiply_adds = {self._limits.total_multiply_adds}"
            )


def _to_meta(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype, device="meta")
    return torch.device("meta") if isinstance(leaf, torch.device) else leaf


def _bound(args: Any, kwargs: Any) -> float:
    """More than any element count the operation can make: all sizes multiplied."""
    total = 1.0
    for leaf in tree_flatten((args, kwargs))[0]:
        if isinstance(leaf, torch.Tensor):
            total *= max(1, leaf.numel())
        elif isinstance(leaf, (int, float)) and not isinstance(leaf, bool) and math.isfinite(leaf):
            total *= 1 + abs(leaf)
    return total
