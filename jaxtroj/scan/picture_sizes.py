"""What makes the example pictures of a model one size, and whether that is the size that was said.

The option --resize does, else the processor of the model's folder, where it has one.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from jaxtroj.errors import ExamplesError
from jaxtroj.rounds.image_file import ImageFileError
from jaxtroj.rounds.resizing import Fit, resized_size, resizing
from jaxtroj.scan.attempt import Attempt

if TYPE_CHECKING:
    from converters.hub.processor import FolderForm
    from converters.model import Model

Size = tuple[int, int]
"""Height and width in pixels."""


@dataclass
class ByProcessor:
    """Resizes and crops each picture as the processor of a model's folder does; see `Fit`."""

    form: "FolderForm"
    size: Size
    _changed: set[Size] = field(default_factory=set)

    def __call__(self, pixels: np.ndarray) -> tuple[np.ndarray, str]:
        resized_size(pixels.shape, max(self.size))  # processors make any proportions
        before, resized = _size(pixels), self.form.resized(pixels[None])[0]
        if before != self.size:
            self._changed.add(before)
        if _size(resized) != self.size:
            raise ImageFileError(
                f"{self.form.source} makes {_shown(_size(resized))} pixels of {_shown(before)},"
                f" expected {_shown(self.size)}"
            )
        return resized, ""

    @property
    def finding(self) -> str:
        """What was done, for the record; "" for nothing."""
        if not self._changed:
            return ""
        few = len(self._changed) == 1
        before = "{}x{}".format(*min(self._changed)) if few else f"{len(self._changed)} sizes"
        after = "{}x{}".format(*self.size)
        return (
            f"the examples were resized from {before} to {after} pixels, as {self.form.source} says"
        )


def fit_for(attempt: Attempt, model: "Model") -> Fit | None:
    """What makes the examples of a model one size; None where they are taken as they are.

    Raises:
        ExamplesError: --resize makes pictures too small for the network.
    """
    settings, own = attempt.settings, attempt.folder_form
    if settings.resize is not None:
        return _by_option(settings.resize, settings.image_size or model.image_size)
    if own is None or own.size is None or own.processor is None:
        return None
    if settings.image_size is not None or model.channels == 1:
        return None
    return ByProcessor(own, own.size)


def _by_option(shorter: int, size: Size | None) -> Fit:
    size = size or (shorter, shorter)
    if max(size) > shorter:
        raise ExamplesError(
            f"--resize {shorter} gives pictures with {shorter} pixels on their shorter side, of"
            f" which no {_shown(size)} can be cut; give --resize {max(size)} or more"
        )
    return resizing(shorter, size)


def check_said_size(said: Size | None, pixels: np.ndarray) -> None:
    """Raise ExamplesError unless pictures [n, h, w, c] have the size that --image-size says."""
    size = _size(pixels[0])
    if said is not None and tuple(said) != size:
        raise ExamplesError(
            f"the examples are {_shown(size)} pixels, --image-size says {_shown(said)}; give"
            " pictures of that size, --resize PX to make them so, or leave --image-size out"
        )


def _size(pixels: np.ndarray) -> Size:
    return pixels.shape[0], pixels.shape[1]


def _shown(size: Size) -> str:
    return f"{size[0]} x {size[1]}"
