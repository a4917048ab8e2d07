"""Refuses torch operations whose result would be too large, before torch allocates it."""

import math
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.flop_counter import flop_registry

from converters.errors import TooLargeError
from converters.graph.light_mode import LightMode
from converters.graph.results import refuse_many_results
from converters.limits import GIB

# Below this nothing needs to be known beforehand.
_SMALL = 2**20
# What a network's weights allow its values to take: deep networks have both.
_BYTES_PER_WEIGHT_BYTE = 8
_BATCH_NORM = torch.ops.aten.native_batch_norm.default
_POOLS = ("max_pool", "avg_pool", "mkldnn_max_pool")
_PRODUCTS = {
    torch.ops.aten.mm.default: 0,
    torch.ops.aten.bmm.default: 0,
    torch.ops.aten.addmm.default: 1,
    torch.ops.aten.baddbmm.default: 1,
}
"""Products of matrices, and the place of the first factor among the arguments."""


@dataclass(frozen=True)
class WorkLimits:
    """Caps on running a network once, for one image, to see what it does.

    Attributes:
        value_elements: elements of one value.
        value_bytes: all values together, besides eight times the bytes of the weights. torch keeps
            them all while a network is captured; a ResNet50 takes 0.2 GiB, with 1024 pixels 2.8.
        multiply_adds: multiplications; the dearest torchvision network (ViT-H/14 at 518 pixels)
            takes 1.0e12.
        calls: torch operations; the deepest torchvision networks make 5,000.
    """

    value_elements: int = 2**27
    value_bytes: int = 2 * GIB
    multiply_adds: int = 2 * 10**12
    calls: int = 250_000


class SizeGuard(LightMode):
    """While active, each operation's shapes are worked out on the meta device first.

    Raises TooLargeError where one result, or all the work so far, exceeds `limits`; see
    `WorkLimits`. `weight_bytes` are those of the network's weights. A run of several `images` may
    make so many times the values of one, but no more of them at once: those that are dropped count
    as freed. Its calls and multiplications are as many as those of one image may be.
    """

    def __init__(self, limits: WorkLimits, weight_bytes: int = 0, images: int = 1):
        super().__init__()
        self._limits = limits
        self._images = images
        self._room = limits.value_bytes + _BYTES_PER_WEIGHT_BYTE * weight_bytes
        self._room_in_all = images * self._room
        self._multiply_adds = 0
        self._calls = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self._calls += 1
        if self._calls > self._limits.calls:
            raise TooLargeError(
                f"the network makes more torch calls than the {self._limits.calls} allowed"
            )
        refuse_many_results(func, args, kwargs)
        large = _bound(args, kwargs) > _SMALL or _is_pool(func)
        checked = large and self._check(func, args, kwargs)
        result = func(*args, **kwargs)
        if not checked:
            self._spend(func, result)
        if self._images > 1:
            self._await_freed(func, result)
        return result

    def foresee(self, func, args: Any, kwargs: Any, result: Any) -> None:
        """Count a call that is not made here: its values, of which shapes are known, and work."""
        self._spend(func, result)
        self._count(func, args, kwargs, result)

    def _check(self, func, args: Any, kwargs: Any) -> bool:
        """Whether the shapes of the results were known, and counted."""
        elements = _elements(func, args, kwargs)
        if elements is not None:
            self._check_elements(func, elements)
            self._count(func, args, kwargs, None)
            return False
        meta_args, meta_kwargs = tree_map(_to_meta, (args, kwargs))
        try:
            result = func(*meta_args, **meta_kwargs)
        except (NotImplementedError, RuntimeError):
            # Shapes that hang on values (nonzero, masks) are at most those of the inputs; what
            # torch refuses on the meta device it refuses, with the better message, for real.
            return False
        for leaf in tree_flatten(result)[0]:
            if isinstance(leaf, torch.Tensor):
                self._check_elements(func, leaf.numel())
        self.foresee(func, meta_args, meta_kwargs, result)
        return True

    def _check_elements(self, func, elements: int) -> None:
        if elements > self._limits.value_elements:
            raise TooLargeError(
                f"{func} would make {elements} elements, more than value_elements = "
                f"{self._limits.value_elements}"
            )

    def _spend(self, func, result: Any) -> None:
        made = sum(map(_bytes, _own(func, result)))
        self._room -= made
        self._room_in_all -= made
        if min(self._room, self._room_in_all) < 0:
            raise TooLargeError(
                f"the values of one pass take more than {self._limits.value_bytes / GIB:.3g} GiB "
                "besides the weights, the most that is allowed (WorkLimits.value_bytes); export "
                "the network for smaller pictures, or give --image-size where the file leaves "
                "their size open"
            )

    def _await_freed(self, func, result: Any) -> None:
        """Give the memory of a result back once nothing holds it, a view of it neither."""
        for leaf in _own(func, result):
            if leaf.device.type != "meta":
                weakref.finalize(leaf.untyped_storage(), self._freed, _bytes(leaf)).atexit = False

    def _freed(self, size: int) -> None:
        self._room += size

    def _count(self, func, args: Any, kwargs: Any, result: Any) -> None:
        formula = flop_registry.get(func.overloadpacket)
        if formula is not None:
            self._multiply_adds += formula(*args, **kwargs, out_val=result) // 2
        elif _is_pool(func):
            self._multiply_adds += _window(args) * _first(result).numel()
        else:
            return
        if self._multiply_adds > self._limits.multiply_adds:
            raise TooLargeError(
                f"one pass takes more multiplications than the {self._limits.multiply_adds} allowed"
            )


def bounded(count: int, limits: WorkLimits | None = None) -> int:
    """A number of elements that something is about to be made of; TooLargeError above the cap."""
    most = (limits or WorkLimits()).value_elements
    if count > most:
        raise TooLargeError(f"it would make more elements than value_elements = {most}")
    return count


def _elements(func, args: Any, kwargs: Any) -> int | None:
    """Elements of the result of an operation by element, or of a product; None for others.

    torch works these out in Python on the meta device, and imports its compiler for that.
    """
    factors = args[_PRODUCTS[func] :][:2] if func in _PRODUCTS else ()
    if len(factors) == 2 and _fit(*factors):
        return math.prod(factors[0].shape[:-1]) * factors[1].shape[-1]
    if func is not _BATCH_NORM and torch.Tag.pointwise not in func.tags:
        return None
    leaves = tree_flatten((args, kwargs))[0]
    shapes = [leaf.shape for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if func is _BATCH_NORM:
        shapes = shapes[:1]
    try:
        return math.prod(torch.broadcast_shapes(*shapes))
    except RuntimeError:  # it refuses, with the better message, for real
        return None


def _own(func, result: Any) -> list[torch.Tensor]:
    """Tensors of a result that take memory: views lie on that of an argument."""
    if any(returned.alias_info is not None for returned in func._schema.returns):
        return []
    return [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _is_pool(func) -> bool:
    """Whether it goes over windows: many and large ones even where its values are few."""
    return func.overloadpacket.__name__.startswith(_POOLS)


def _window(args: Any) -> int:
    """Elements of a pool's window, whose size is the second argument."""
    size = args[1] if len(args) > 1 else ()
    return math.prod(size) if isinstance(size, (list, tuple)) else 1


def _first(result: Any) -> torch.Tensor:
    return tree_flatten(result)[0][0]


def _fit(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether torch multiplies two matrices, or as many of one as of the other."""
    if min(first.dim(), second.dim()) < 2 or first.shape[-1] != second.shape[-2]:
        return False
    return first.shape[:-2] == second.shape[:-2]


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
            # Whole numbers in a file may be too long for a float.
            total *= 1 + (2.0**64 if abs(leaf) > 2**64 else abs(leaf))
    return total
