"""Numbers of the images in a batch, as the exporter makes them to pick every element in its order.

torch's exporter writes `as_strided` as a `Gather` from the flat value, whose places it computes:
the number of the image by the elements of an image, plus the place in it. Where that counts all
places in order it changes nothing, whatever the number of images. Any other use of such numbers
could tell an image by its place in the batch.
"""

from collections.abc import Sequence

import numpy as np
import torch

from converters.graph.onnx.built import DATA, Value
from converters.graph.onnx.operators import Call
from converters.graph.onnx.types import numpy_from

_INNER = ("Unsqueeze", "Identity", "Mul", "Add")


class Rows:
    """Follows numbers 0, 1, ... of images through a build for several."""

    def __init__(self, images: int) -> None:
        self._names: set[str] = set()
        self._images = images

    def starts(
        self, call: Call, inputs: Sequence[Value | None], limits: tuple[object, object]
    ) -> bool:
        """Whether a node numbers the images from 0.

        Args:
            call: the node.
            inputs: of the build for several images.
            limits: the second input, for one image and for several; None where both are the same.
        """
        if call.operator != "Range" or call.domain or None in limits:
            return False
        start, _, step = (_number(value) for value in inputs)
        return (start, step, *limits) == (0, 1, 1, self._images)

    def reads(self, inputs: Sequence[Value | None]) -> bool:
        """Whether a node is given such numbers."""
        return any(value is not None and value.name in self._names for value in inputs)

    def keeps(self, call: Call, inputs: Sequence[Value | None], fixed: Sequence[bool]) -> bool:
        """Whether what a node makes stays such a number by a constant, plus constants.

        `fixed` says which inputs are the same for every number of images.
        """
        others = [
            same
            for value, same in zip(inputs, fixed, strict=True)
            if value is None or value.name not in self._names
        ]
        return (
            call.operator in _INNER
            and not call.domain
            and all(others)
            and (len(others) == len(inputs) - 1)
        )

    def remember(self, made: Sequence[Value | None]) -> None:
        """These are such numbers too."""
        self._names |= {value.name for value in made if value is not None}

    def picks_all(self, call: Call, inputs: Sequence[Value | None], alone: Value | None) -> bool:
        """Whether a node takes every element of a flat value in its order.

        The places are linear in the number of the image, so that several images show all, where
        `alone`, the value for one image, is as long as the part of each of them.
        """
        if call.operator != "Gather" or call.domain or call["axis"] != 0 or len(inputs) != 2:
            return False
        data, places = inputs
        if data is None or places is None or data.name in self._names or places.kind == DATA:
            return False
        counted = numpy_from(places.data).reshape(-1)
        shape = tuple(data.data.shape)
        if alone is None or tuple(n * self._images for n in alone.data.shape) != shape:
            return False
        return len(shape) == 1 and np.array_equal(counted, np.arange(shape[0]))


def _number(value: Value | None) -> float | None:
    if value is None or value.kind == DATA or not isinstance(value.data, torch.Tensor):
        return None
    return float(value.data) if value.data.numel() == 1 else None
