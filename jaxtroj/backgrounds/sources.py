"""What `generate` starts from: labelled pictures, and a mask or a box for each."""

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from converters.files import read_plain
from jaxtroj.backgrounds.files import SUFFIXES
from jaxtroj.backgrounds.variations import Box
from jaxtroj.errors import DatasetError

COLUMNS = ("image", "xmin", "ymin", "xmax", "ymax")
_MAX_PICTURES = 200_000
_MAX_TABLE_BYTES = 64 * 2**20
_MAX_STEM = 100


@dataclass(frozen=True)
class Source:
    """One labelled picture: its file, place of its class, and name as `class/stem`."""

    path: Path
    label: int
    class_name: str

    @property
    def stem(self) -> str:
        """File name without its ending."""
        return self.path.stem

    @property
    def name(self) -> str:
        """`class/file`."""
        return f"{self.class_name}/{self.path.name}"


def list_sources(folder: Path) -> tuple[tuple[str, ...], list[Source]]:
    """Class names, and every picture in `folder/class/`, sorted.

    Raises:
        DatasetError: fewer than two classes, a class without pictures, or names that would clash.
    """
    try:
        classes = tuple(sorted(path.name for path in folder.iterdir() if path.is_dir()))
        sources = [
            Source(path, label, name)
            for label, name in enumerate(classes)
            for path in sorted((folder / name).iterdir())
            if path.name.lower().endswith(SUFFIXES)
        ]
    except OSError as error:
        raise DatasetError(f"{folder} cannot be read ({error.strerror or error})") from error
    empty = sorted(set(classes) - {source.class_name for source in sources})
    if len(classes) < 2 or empty or len(sources) > _MAX_PICTURES:
        raise DatasetError(
            f"{folder} holds {len(classes)} class folders and {len(sources)} pictures"
            f"{f'; none in {ascii(empty[0])}' if empty else ''}; expected two classes or more "
            f"with pictures in each, at most {_MAX_PICTURES}"
        )
    _check_names(sources)
    return classes, sources


def _check_names(sources: list[Source]) -> None:
    seen: dict[tuple[int, str], Source] = {}
    for source in sources:
        other = seen.setdefault((source.label, source.stem), source)
        if other is not source:
            raise DatasetError(f"{source.path} and {other.path.name} differ only in their ending")
        if len(source.stem.encode("utf-8", "surrogateescape")) > _MAX_STEM:
            raise DatasetError(f"{source.path}: expected a name of at most {_MAX_STEM} bytes")


def mask_paths(folder: Path, sources: list[Source]) -> dict[str, Path]:
    """Name of each source -> `folder/class/stem.npy`. Raises DatasetError if one is missing."""
    paths = {s.name: folder / s.class_name / f"{s.stem}.npy" for s in sources}
    missing = [path for path in paths.values() if not path.is_file()]
    if missing:
        raise DatasetError(f"{missing[0]} is missing; {len(missing)} of {len(paths)} masks are")
    return paths


def read_boxes(path: Path, sources: list[Source]) -> Mapping[str, Box]:
    """Name of each source -> its box, from a CSV of `COLUMNS`.

    Args:
        path: `image` is `class/file` inside the folder of pictures; right and bottom pixels are
            those beyond the object.
        sources: each needs exactly one line, and lines of other pictures are an error.
    Raises:
        DatasetError: see above; or it is no such table.
    """
    boxes: dict[str, Box] = {}
    for number, row in enumerate(_lines(path), start=2):
        try:
            left, top, right, bottom = (int(cell) for cell in row[1:])
        except ValueError as error:
            raise DatasetError(f"{path}, line {number}: expected {', '.join(COLUMNS)}") from error
        if not (0 <= left < right and 0 <= top < bottom) or row[0] in boxes:
            raise DatasetError(
                f"{path}, line {number}: an empty box, or a second one for a picture; expected "
                "xmin < xmax and ymin < ymax, one line for each picture"
            )
        boxes[row[0]] = (left, top, right, bottom)
    names = {source.name for source in sources}
    odd = sorted(set(boxes) ^ names)
    if odd:
        word = "has no box" if odd[0] in names else "is no picture of the folder"
        raise DatasetError(f"{path}: {ascii(odd[0])} {word}; {len(odd)} names do not match")
    return boxes


def _lines(path: Path) -> list[list[str]]:
    try:
        content = read_plain(path, _MAX_TABLE_BYTES + 1)
        if len(content) > _MAX_TABLE_BYTES:
            raise ValueError(f"larger than {_MAX_TABLE_BYTES} bytes")
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        rows = [row for row in csv.reader(text, strict=True) if row]
    except (OSError, ValueError, csv.Error) as error:
        raise DatasetError(f"{path} is no table of boxes: {error}") from error
    if not rows or tuple(rows[0]) != COLUMNS:
        raise DatasetError(f"{path}: expected the header {','.join(COLUMNS)}")
    return rows[1:]
