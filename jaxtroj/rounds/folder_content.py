"""What lies in a folder of examples in which no picture was found, in words, and what to do."""

import os
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from jaxtroj.rounds.class_folders import folders_in, in_words

_OTHER_PICTURES = (".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".heic", ".avif")
_KINDS_SHOWN = 3
_MOST_LOOKED_INTO = 1000


def content_of(folder: Path) -> str:
    """What a folder holds, files apart from folders, then what to do, where that is known.

    >>> content_of(Path("/dev/null/nowhere"))
    'nothing that can be listed'
    """
    try:
        files, folders = _files_in(folder), folders_in(folder)
        known = [folder / name for name in folders[:_MOST_LOOKED_INTO]]
        within = [ending for one in known for ending in _files_in(one)]
        inner = [in_words([one.name]) for one in known if folders_in(one)]
    except OSError:
        return "nothing that can be listed"
    held = [_counted(files)] if files else []
    if folders:
        held.append(f"{len(folders)} folder{'s' * (len(folders) > 1)}{_within(within)}")
    remedy = _remedy(inner, [*files, *within])
    return (" and ".join(held) or "nothing") + (f": {remedy}" if remedy else "")


def tables_in(folder: Path) -> list[str]:
    """Names of the CSV files in a folder, in order; none of what is no folder."""
    try:
        names = [name for name in os.listdir(folder) if name.lower().endswith(".csv")]
    except OSError:
        return []
    return sorted(name for name in names if not name.startswith("."))


def _files_in(folder: Path) -> list[str]:
    """Endings of the files in a folder, hidden ones left out."""
    with os.scandir(folder) as entries:
        names = [e.name for e in entries if not e.name.startswith(".") and not e.is_dir()]
    return [os.path.splitext(name)[1].lower() for name in names]


def _counted(endings: Iterable[str]) -> str:
    """How many files of each kind.

    >>> _counted([".txt", ".webp", ".webp", ""])
    '2 .webp, 1 .txt, 1 without an ending'
    """
    kinds = Counter(endings).most_common(_KINDS_SHOWN)
    return ", ".join(f"{n} {kind or 'without an ending'}" for kind, n in kinds)


def _within(endings: list[str]) -> str:
    return f", in them {_counted(endings)}" if endings else ""


def _remedy(inner: list[str], endings: list[str]) -> str:
    """What to do, by the folders that hold folders and the endings of all files; "" if unknown."""
    if len(inner) > 1:
        return f"{in_words(inner)} hold class folders, name one of them"
    if inner:
        return f"{inner[0]} holds class folders, name it"
    if not set(_OTHER_PICTURES).isdisjoint(endings):
        return "convert them to PNG or JPEG"
    return "" if endings else "put clean pictures there"
