"""Which METADATA table belongs to a dataset folder, and which tables in and beside it do not.

Anybody who may add a model to a folder may add a table, and repositories hold tables of other
things: one that names no model of the folder says nothing about it, and is told of.
"""

import os
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from jaxtroj.errors import DatasetError
from jaxtroj.record import printable
from jaxtroj.rounds import errata
from jaxtroj.rounds.places import model_places
from jaxtroj.rounds.tables import Table, read_table

EXACT = "METADATA.csv"
_METADATA = re.compile(r"(.*[-_])?metadata\.csv", re.IGNORECASE)
_BESIDE = re.compile(r"(.*[-_])?round[-_]?([0-9]+)[-_]metadata\.csv", re.IGNORECASE)
_NUMBER = re.compile(rf"{errata.WORD}[-_]?([0-9]+)")


@dataclass(frozen=True)
class Metadata:
    """What is said about the models of a folder.

    Attributes:
        table: the one that names some of them; None where none does.
        unread: tables that cannot be read, and why, one line each.
        strange: tables that name no model of the folder, one line each.
    """

    table: Table | None = None
    unread: tuple[str, ...] = ()
    strange: tuple[str, ...] = ()

    def names_most_of(self, places: Sequence[Path]) -> bool:
        """Whether the table names at least half of the models, and so speaks of the folder."""
        rows = {} if self.table is None else self.table.rows
        named = sum(any(name in rows for name in _names(place)) for place in places)
        return 2 * named >= len(places)


def metadata_of(root: Path, places: Sequence[Path]) -> Metadata:
    """The METADATA table of a dataset folder: inside it, or beside it where NIST put it.

    Beside means: METADATA.csv or `roundN-metadata.csv` next to a folder called `models`, or the
    latter next to a folder whose name says the same round. Other tables in the parent folder are
    none of our business.

    Args:
        root: the folder.
        places: of its models.

    Raises:
        DatasetError: METADATA.csv in the folder cannot be read, or several tables and none of that
            name say something about its models.
    """
    names = frozenset(name for place in places for name in _names(place))
    here = [path for path in _csv_files(root) if _METADATA.fullmatch(path.name)]
    found = _taken(root, here, names)
    if found.table is not None:
        return found
    beside = _taken(root, _beside(root), names)
    unread, strange = (*found.unread, *beside.unread), (*found.strange, *beside.strange)
    return Metadata(beside.table, unread, strange)


def tables_aside(dataset: str | os.PathLike[str]) -> list[str]:
    """What to tell of tables that `iter_models` of the same folder does not take, a line each."""
    root = Path(dataset)
    if not os.path.isdir(root):
        return []
    found = metadata_of(root, model_places(root))
    return [*found.unread, *found.strange]


def _beside(root: Path) -> list[Path]:
    home = root.resolve()
    own = _NUMBER.search(home.name)
    found = []
    for path in _csv_files(home.parent):
        match = _BESIDE.fullmatch(path.name)
        if home.name == "models":
            is_its = bool(match) or path.name.lower() == EXACT.lower()
        else:
            is_its = bool(match and own and match[2] == own[1])
        found += [path] if is_its else []
    return found


def _taken(root: Path, paths: Sequence[Path], names: Collection[str]) -> Metadata:
    """The table that names a model, the one of the exact name before others."""
    tables: list[Table] = []
    unread, strange = [], []
    for path in paths:
        shown = printable(path.name)
        try:
            table = read_table(path)
        except DatasetError as error:
            if path == root / EXACT:  # the dataset's own word: who names it reads it, or is told
                raise
            unread.append(f"{shown} was left out: {error}")
            continue
        if names & table.rows.keys():
            tables.append(table)
        else:
            strange.append(f"{shown} was left out: it names no model of {printable(str(root))}")
    exact = [table for table in tables if table.path.name == EXACT]
    if len(tables) > 1 and not exact:
        said = ", ".join(printable(table.path.name) for table in tables)
        raise DatasetError(f"several metadata files for {root}: {said}; expected {EXACT}")
    return Metadata(next(iter(exact or tables), None), tuple(unread), tuple(strange))


def _names(place: Path) -> list[str]:
    """What a table may call a model; a file's ending may be left out."""
    name = place.resolve().name if place.name in ("", "..") else place.name
    return [name] if os.path.isdir(place) else [name, Path(name).stem]


def _csv_files(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:  # a parent that may not be listed holds no metadata for us
        return []
    return [folder / name for name in names if name.lower().endswith(".csv")]
