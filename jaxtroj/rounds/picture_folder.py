"""A folder of example pictures: their names and classes, sizes by their headers, pixels."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from jaxtroj.rounds.example_names import UNKNOWN_LABEL, is_named_poisoned, labels_in
from jaxtroj.rounds.image_file import ImageFileError, read_grey, read_header, read_rgb
from jaxtroj.rounds.turns import MANY_CLASSES, in_turn

Size = tuple[int, int]
"""Height and width in pixels."""
PER_CLASS, MOST = 20, 2_000
"""Of a folder of very many classes so many pictures of each are taken at most, and in all."""


class PictureSource(Protocol):
    """Where example pictures lie.

    Attributes:
        place: the folder or file.
        labels: the class of each picture by its name, in the order in which they are taken.
    """

    @property
    def place(self) -> Path: ...

    @property
    def labels(self) -> Mapping[str, int]: ...

    def sizes(self) -> tuple[dict[str, Size], list[str]]:
        """Sizes of the pictures that can be taken as far as headers tell, and a sentence for each
        reason why others cannot, or for what else is to be said."""
        ...

    def read(self, name: str, channels: int) -> tuple[np.ndarray, str | None]:
        """uint8 [h, w, channels], RGB or grey, and what had to be converted.

        Raises ImageFileError.
        """
        ...


@dataclass(frozen=True)
class PictureFolder:
    """The pictures of a folder; see `PictureSource`. A note says which of them are left out."""

    place: Path
    labels: Mapping[str, int]
    note: str = ""

    def sizes(self) -> tuple[dict[str, Size], list[str]]:
        """See `PictureSource`."""
        reasons: dict[str, list[str]] = defaultdict(list)
        sizes: dict[str, Size] = {}
        for name in self.labels:
            if is_named_poisoned(name):
                reasons["named as a poisoned example"].append(name)
                continue
            try:
                header = read_header(self.place / name)
            except ImageFileError as error:
                reasons[str(error)].append(name)
            else:
                sizes[name] = (header.height, header.width)
        return sizes, [self.note] * bool(self.note) + sentences(reasons, "left out")

    def read(self, name: str, channels: int) -> tuple[np.ndarray, str | None]:
        """See `PictureSource`."""
        return (read_grey if channels == 1 else read_rgb)(self.place / name)


def open_folder(folder: Path, is_bounded: bool = False) -> PictureFolder:
    """The pictures of a folder; raises ExamplesError as `labels_in`.

    Args:
        folder: of pictures, or of class folders.
        is_bounded: whether of very many classes only some pictures are taken, see `some_of_many`.
    """
    found = PictureFolder(folder, labels_in(folder))
    return some_of_many(found) if is_bounded else found


def some_of_many(folder: PictureFolder) -> PictureFolder:
    """Of a folder of more than `MANY_CLASSES` classes the first pictures of each, in turn.

    A search looks at a few hundred, and all of ImageNet's would fill the memory.
    """
    labels = np.array(list(folder.labels.values()))
    classes = len(np.unique(labels[labels != UNKNOWN_LABEL]))
    limit = min(MOST, PER_CLASS * classes)
    if classes <= MANY_CLASSES or len(labels) <= limit:
        return folder
    names, taken = list(folder.labels), np.sort(in_turn(labels, limit))
    note = (
        f"{limit} of the {len(names)} pictures were taken, of its {classes} classes in turn"
        " (--examples-per-class)"
    )
    return replace(folder, labels={names[i]: int(labels[i]) for i in taken}, note=note)


def sentences(reasons: Mapping[str, Sequence[str]], outcome: str) -> list[str]:
    """One sentence for each reason, naming the first picture it concerns.

    >>> sentences({"empty file": ["a.png", "b.png"]}, "left out")
    ['2 pictures left out (a.png ...): empty file']
    """
    found = []
    for reason, names in reasons.items():
        first = names[0] if names[0].isprintable() else ascii(names[0])
        many = len(names) > 1
        found.append(
            f"{len(names)} picture{'s' if many else ''} {outcome} "
            f"({first}{' ...' if many else ''}): {reason}"
        )
    return found
