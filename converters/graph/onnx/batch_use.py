"""Whether a network reads how many images it is given, for files that leave that number open.

A network is built for one image and for several. A value that differs between both, in content or
in size, tells the number of images. Every exported network makes shapes of it, by moves and by
arithmetic that stays linear: these pass, and of such numbers one image and several show all. Any
other use is named, for what is equal for one image and for several may differ for still more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from converters.graph.counting import (
    Line,
    is_decided,
    is_exact_quotient,
    is_linear_product,
    suspicions,
)
from converters.graph.onnx.batch_rows import Rows
from converters.graph.onnx.built import DATA, Value
from converters.graph.onnx.described import refuse
from converters.graph.onnx.operators import Call
from converters.graph.onnx.types import numpy_from
from converters.graph.onnx.values import axes_of, ints

# Inputs that are moved as they are, and those that become the shape of the result; None for all.
_MOVED: dict[str, tuple[int, ...] | None] = {
    **dict.fromkeys(("Identity", "Concat", "Shape", "Size", "Constant", "Add", "Sub", "Neg")),
    **dict.fromkeys(("Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose"), (0,)),
    **dict.fromkeys(("Slice", "Gather", "Split", "Expand"), (0,)),
    "Where": (1, 2),
}
_SHAPES = {
    **dict.fromkeys(("Reshape", "Expand", "Tile", "Upsample"), (1,)),
    "ConstantOfShape": (0,),
    "Resize": (1, 2, 3),
}
_REDUCTIONS = "Reduce"
_ENDLESS = 2**31 - 1
# First axis along which these mix values.
_WINDOWS = {"Conv": 1, "ConvTranspose": 1, "MaxPool": 2, "AveragePool": 2, "LpPool": 2}


@dataclass(frozen=True)
class _Told:
    """What a value says of the number of images.

    Attributes:
        spread: axes that are longer for several images.
        alone, among: its elements, float64, for one image and for several; None where they are the
            same, or the value comes from the images themselves.
    """

    spread: tuple[int, ...] = ()
    alone: np.ndarray | None = None
    among: np.ndarray | None = None

    @property
    def counts(self) -> bool:
        """Whether elements differ."""
        return self.alone is not None


class BatchUse:
    """Looks on while a network is built for `images` images, after it was built for one.

    Attributes:
        images: more than one.
        found: what reads their number otherwise than to make shapes, a sentence each.
    """

    def __init__(self, images: int):
        self.images = images
        self.found: list[str] = []
        self._alone: Mapping[str, Value] | None = None
        self._told: dict[str, _Told] = {}
        self._lost = False
        self._counts = False
        self._misdescribed: list[str] = []
        self._rows = Rows(images)

    @property
    def findings(self) -> tuple[str, ...]:
        """The first of `found`, each named a possible backdoor.

        Shapes that are false for several images only stand in files whose batch was opened by hand.
        onnxruntime folds by them what is made of the number of images; where nothing is made of
        it, they decide nothing.
        """
        return suspicions([*self.found, *(self._misdescribed if self._counts else ())])

    def misdescribed(self, text: str) -> None:
        """Refuse another shape than the file says for one image; remember it for several."""
        if self._alone is None:
            refuse(text)
        self._misdescribed.append(f"for {self.images} images {text}")

    def built(self, values: Mapping[str, Value]) -> None:
        """Remember the values of the first build, the one for one image."""
        if self._alone is None:
            self._alone = {name: _without_pixels(value) for name, value in values.items()}

    def look(
        self, call: Call, inputs: Sequence[Value | None], place: str
    ) -> Callable[[Sequence[Value | None]], None] | None:
        """See what a node of the second build is given; what it makes goes to what this returns."""
        if self._alone is None or self._lost:
            return None
        known = [value for value in inputs if value is not None]
        self._lost = any(value.name not in self._alone for value in known)
        if self._lost:
            self.found.append(f"{place} is reached for some numbers of images only")
            return None
        told = [_Told() if value is None else self._of(value) for value in inputs]
        counts = [one.counts for one in told]
        self._counts |= any(counts)
        if counts == [False, True, False] and self._rows.starts(call, inputs, _numbers(told[1])):
            return self._rows.remember
        if self._rows.reads(inputs):
            return self._look_at_rows(call, inputs, told, place)
        if any(counts) and not self._is_linear(call, inputs, told):
            self.found.append(f"{place} computes with the number of images")
        elif _mixes(call, inputs, told):
            self.found.append(f"{place} works along the images")
        return None

    def _look_at_rows(
        self, call: Call, inputs: Sequence[Value | None], told: Sequence[_Told], place: str
    ) -> Callable[[Sequence[Value | None]], None] | None:
        """See what a node makes of the numbers of images, see `Rows`."""
        fixed = [not one.counts and not one.spread for one in told]
        constant = [v is None or v.kind != DATA for v in inputs]
        if self._rows.keeps(call, inputs, [a and b for a, b in zip(fixed, constant, strict=True)]):
            return self._rows.remember
        first = inputs[0]
        alone = None if self._alone is None or first is None else self._alone[first.name]
        if not self._rows.picks_all(call, inputs, alone):
            self.found.append(f"{place} computes with the numbers of images in their batch")
        return None

    def _of(self, value: Value) -> _Told:
        if value.name not in self._told:
            assert self._alone is not None
            self._told[value.name] = _told(self._alone[value.name], value)
        return self._told[value.name]

    def _is_linear(self, call: Call, inputs: Sequence[Value | None], told: Sequence[_Told]) -> bool:
        """Whether what counts images is moved, or stays linear in their number."""
        name = call.operator
        places = [place for place, one in enumerate(told) if one.counts]
        if set(places) <= set(_SHAPES.get(name, ())):
            return True
        if any(value is not None and value.kind == DATA for value in inputs):
            return False
        if name in _MOVED:
            moved = _MOVED[name]
            return moved is None or set(places) <= {*moved, *_SHAPES.get(name, ())}
        pairs = [_pair(one, value) for one, value in zip(told, inputs, strict=True)]
        if any(pair is None for pair in pairs) or call.domain:
            return False
        lines = [Line(*pair, self.images) for pair in pairs if pair is not None]
        rule = _RULES.get(name)
        return rule is not None and call["to"] != _BOOL and rule(*lines)


def _numbers(told: _Told) -> tuple[object, object]:
    """The one number of a value, for one image and for several."""
    assert told.alone is not None and told.among is not None
    return (told.alone.item(), told.among.item()) if told.alone.size == 1 else (None, None)


def _varies_once(line: Line) -> bool:
    """Of a product over elements: whether one of them at most varies."""
    return int(line.varies.sum()) <= 1


_BOOL = 9
_RULES: dict[str, Callable[..., bool]] = {
    "Mul": is_linear_product,
    "Div": is_exact_quotient,
    "ReduceProd": _varies_once,
    # Roundings that change nothing.
    **dict.fromkeys(("Cast", "Floor", "Ceil"), Line.is_whole),
    **dict.fromkeys(("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"), is_decided),
}


def _without_pixels(value: Value) -> Value:
    """The value, of what comes from images only its size."""
    if value.kind != DATA or not isinstance(value.data, torch.Tensor):
        return value
    return replace(value, data=torch.empty(value.data.shape, device="meta"))


def _told(alone: Value, among: Value) -> _Told:
    one, several = alone.data, among.data
    if not isinstance(one, torch.Tensor) or not isinstance(several, torch.Tensor):
        return _Told()
    if one.shape != several.shape:
        sizes = zip(one.shape, several.shape, strict=False)
        return _Told(tuple(axis for axis, (m, n) in enumerate(sizes) if m != n))
    if among.kind == DATA or one is several or one.is_complex():
        return _Told()
    arrays = [numpy_from(data) for data in (one, several)]
    if np.array_equal(*arrays, equal_nan=arrays[0].dtype.kind == "f"):
        return _Told()
    return _Told((), *(array.astype(np.float64) for array in arrays))


def _pair(told: _Told, value: Value | None) -> tuple[np.ndarray, np.ndarray] | None:
    """The numbers of a value for one image and for several."""
    if told.alone is not None and told.among is not None:
        return told.alone, told.among
    if told.spread or value is None or not isinstance(value.data, torch.Tensor):
        return None
    array = numpy_from(value.data).astype(np.float64)
    return array, array


def _mixes(call: Call, inputs: Sequence[Value | None], told: Sequence[_Told]) -> bool:
    """Whether an operator picks, joins or mixes values along the images."""
    spread = {axis for one in told for axis in one.spread}
    if not spread or call.domain:
        return False
    name = call.operator
    if name == "Size":
        return len(told[0].spread) > 1
    if name in _WINDOWS:
        return max(told[0].spread, default=0) >= _WINDOWS[name]
    if name in ("NonZero", "Unique", "Compress"):
        return True
    if name == "Concat" and any(value is not None and value.kind == DATA for value in inputs):
        return False
    rank = max(v.data.dim() for v in inputs if v is not None and isinstance(v.data, torch.Tensor))
    own = spread if name == "Concat" else set(told[0].spread)
    return bool(own.intersection(_axes(call, inputs, rank)))


def _axes(call: Call, inputs: Sequence[Value | None], rank: int) -> list[int]:
    """Axes along which an operator works; none where it works on each element or is not known."""
    name = call.operator
    if name == "Slice":
        return _sliced(call, inputs, rank)
    if name == "Pad":
        return _padded(call, inputs, rank)
    if name == "CumSum":
        return axes_of(_given(inputs, 1) or [0], rank)
    if name.startswith(_REDUCTIONS):
        return axes_of(call["axes"] or _given(inputs, 1) or range(rank), rank)
    if name in _ALONG and call["axis"] is not None:
        return axes_of([call["axis"]], rank)
    return []


_ALONG = {
    *("Concat", "Gather", "GatherElements", "Scatter", "ScatterElements", "Split", "TopK"),
    *("ArgMax", "ArgMin", "Hardmax", "Softmax", "LogSoftmax", "LpNormalization"),
}


def _given(inputs: Sequence[Value | None], place: int) -> list[int] | None:
    value = inputs[place] if place < len(inputs) else None
    return None if value is None else ints(value.data)


def _sliced(call: Call, inputs: Sequence[Value | None], rank: int) -> list[int]:
    """Axes of which a slice may leave some out."""
    starts, ends = call["starts"] or _given(inputs, 1), call["ends"] or _given(inputs, 2)
    starts, ends = starts or [], ends or []
    axes = call["axes"] or _given(inputs, 3) or range(len(starts))
    steps = _given(inputs, 4) or [1] * len(starts)
    parts = zip(axes_of(axes, rank), starts, ends, steps, strict=True)
    return [axis for axis, start, end, step in parts if start or end < _ENDLESS or step != 1]


def _padded(call: Call, inputs: Sequence[Value | None], rank: int) -> list[int]:
    """Axes that are padded or cut."""
    pads = call["pads"] or call["paddings"] or _given(inputs, 1) or []
    axes = axes_of(_given(inputs, 3) or range(rank), rank)
    ends = zip(axes, pads[: len(axes)], pads[len(axes) :], strict=True)
    return [axis for axis, *both in ends if any(both)]
