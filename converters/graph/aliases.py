"""Writes into tensors, as the tape functionalises them.

A graph has values, not memory. When a call writes into a tensor, every other tensor on the same
memory changes too: each is given a new value, made of its old elements and those written.
"""

from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch

from converters.errors import ConversionError
from converters.graph.graph import Ref, TensorSpec
from converters.graph.recorder import Recorder, spec_of
from converters.graph.registry import unsupported


class Aliases:
    """Which tensors lie on which memory, and what a write to one means for the others."""

    def __init__(self, recorder: Recorder):
        self._recorder = recorder
        self._own: dict[int, str] = {}
        self._protected: list[torch.Tensor] = []
        self._storages: dict[int, WeakValueDictionary[int, torch.Tensor]] = {}

    def note(self, tensor: torch.Tensor) -> None:
        """Remember a tensor while it lives: memory that is used again has forgotten the old."""
        key = tensor.untyped_storage()._cdata
        self._storages.setdefault(key, WeakValueDictionary())[id(tensor)] = tensor

    def protect(self, tensor: torch.Tensor, name: str) -> None:
        """Note a tensor of the module's own, which must not be written to, and keep it."""
        self.note(tensor)
        self._protected.append(tensor)
        self._own[id(tensor)] = name

    def strided(self, tensor: torch.Tensor, view: torch.Tensor, source: str) -> None:
        """Give a view by strides its value: elements of `tensor`, picked by where they lie.

        Raises:
          UnsupportedOperatorError: it reaches beyond the tensor.
        """
        place = np.full(_elements(tensor), -1, np.int64)
        place[_positions(tensor)] = np.arange(tensor.numel())
        take = place[_positions(view)]
        if (take < 0).any():
            reason = "it reads memory around the tensor, which a graph does not have"
            raise unsupported("aten.as_strided.default", source, reason)
        depends = self._recorder.depends(tensor)
        value = self._value(tensor)
        if tensor.shape != view.shape or (take != np.arange(take.size)).any():
            value = self._picked(value, tensor.numel(), take, view, depends, source)
        self._recorder.bind_result(view, value.name, depends)

    def before_write(self, written: torch.Tensor) -> list[tuple[torch.Tensor, Ref, np.ndarray]]:
        """Other tensors that a write changes: each with its old value and where it comes from.

        The array holds, per element, its position among the old elements, or their number plus
        the position among those written.

        Raises:
          ConversionError: the memory holds a weight, or is seen as two types.
        """
        changed, others = [], self._others(written)
        if not others:
            self._refuse_weights([written])
            return changed
        place = np.full(_elements(written), -1, np.int64)
        place[_positions(written)] = np.arange(written.numel())
        for other in others:
            if other.dtype != written.dtype:
                raise ConversionError(
                    "the module writes into memory that it also reads as another type; "
                    "this cannot be followed"
                )
            source = place[_positions(other)]
            if (source >= 0).any():
                own = np.arange(other.numel())
                take = np.where(source >= 0, other.numel() + source, own)
                changed.append((other, self._value(other), take))
        self._refuse_weights([written, *(other for other, _, _ in changed)])
        return changed

    def after_write(
        self,
        written: torch.Tensor,
        before: list[tuple[torch.Tensor, Ref, np.ndarray]],
        depends: frozenset[int],
        source: str,
    ) -> None:
        """Give the tensors of `before_write` their new values."""
        new = self._value(written)
        for other, old, take in before:
            inputs = depends | self._recorder.depends(other)
            total = other.numel() + written.numel()
            flat = tuple(
                self._reshaped(value, (tensor.numel(),), tensor, inputs, source)
                for value, tensor in ((old, other), (new, written))
            )
            both = self._add("aten.cat.default", (flat, 0), (total,), other, inputs, source)
            value = self._picked(both, total, take, other, inputs, source)
            self._recorder.bind_result(other, value.name, inputs)

    def _picked(self, value: Ref, count: int, take: np.ndarray, like, inputs, source: str) -> Ref:
        """Elements `take` of a value, flattened to `count`, in the shape of `like`."""
        flat = self._reshaped(value, (count,), like, inputs, source)
        index = self._recorder.bake_array(take)
        args = (flat, (index,))
        picked = self._add("aten.index.Tensor", args, take.shape, like, inputs, source)
        return self._reshaped(picked, tuple(like.shape), like, inputs, source)

    def _reshaped(self, value: Ref, shape: tuple, like, inputs, source: str) -> Ref:
        return self._add("aten.view.default", (value, shape), shape, like, inputs, source)

    def _add(self, op: str, args: tuple, shape: tuple, like: Any, inputs, source: str) -> Ref:
        spec = TensorSpec(shape, spec_of(like).dtype)
        return Ref(self._recorder.add_node(op, args, (), [spec], inputs, source)[0])

    def _value(self, tensor: torch.Tensor) -> Ref:
        name = self._recorder.name_of(tensor)
        return self._recorder.bake(tensor) if name is None else Ref(name)

    def _others(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        found = self._storages.get(tensor.untyped_storage()._cdata, {})
        others = [other for other in found.values() if other is not tensor]
        for other in others:
            other._fix_weakref()  # pyright: ignore # as torch.utils.weak.TensorWeakRef does
        return others

    def _refuse_weights(self, tensors: list[torch.Tensor]) -> None:
        names = [self._own[id(tensor)] for tensor in tensors if id(tensor) in self._own]
        if names:
            raise ConversionError(
                f"the module changes its own tensor {names[0]} while it runs; "
                "only networks without state between inputs can be converted"
            )


def _elements(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def _positions(tensor: torch.Tensor) -> np.ndarray:
    """Where in its memory each element of a tensor lies, flat."""
    positions = np.full(tuple(tensor.shape), int(tensor.storage_offset()), np.int64)
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        shape = [1] * tensor.ndim
        shape[axis] = size
        positions = positions + (np.arange(size) * stride).reshape(shape)
    return positions.reshape(-1)
