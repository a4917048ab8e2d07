"""Model files of a dataset folder that a scan of it does not look at: nobody may take them as done.

Hidden files, files deeper than a model's folder, what lies beside `models/`, pipes, links that
lead in a circle, and links by any name that lead nowhere where folders of models lie. The search is
bounded in depth and in entries, goes through no folder twice, and follows no link to the folder
that it lies in or to one around that, which is no part of the dataset.
"""

import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from converters.files import what_is
from jaxtroj.record import printable
from jaxtroj.rounds.example_names import natural_key
from jaxtroj.rounds.places import (
    NO_MODELS,
    has_model_name,
    leads_back,
    model_places,
    own_parts,
    some_of,
)

MOST_LEVELS = 5
MOST_ENTRIES = 50_000
_REMEDY = "name their folder, or a manifest"


@dataclass(frozen=True)
class LeftOut:
    """What a scan of a folder does not look at.

    Attributes:
        root: the folder.
        names: of model files, and of folders that cannot be read, relative to the root.
        hidden: the same in places whose name begins with a dot, which is how people hide files.
        is_cut: whether there was more in the folder than was searched.
        deep: folders below the levels that are searched, in places that are not hidden.
        is_partial: whether a model in a place that is not hidden was left out, or may have been.
    """

    root: Path
    names: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    is_cut: bool = False
    deep: tuple[str, ...] = ()
    is_partial: bool = False

    def lines(self) -> list[str]:
        """What to tell of it, one line each; none where nothing was left out."""
        lines = []
        for names, kind in ((self.names, "model file"), (self.hidden, "hidden model file")):
            if names:
                kinds, were = (kind, "was") if len(names) == 1 else (f"{kind}s", "were")
                where = f"in {printable(str(self.root))} {were} not looked at"
                lines.append(f"{len(names)} {kinds} {where}: {some_of(names)}; {_REMEDY}")
        if self.deep:
            count = f"{len(self.deep)} folder{'' if len(self.deep) == 1 else 's'}"
            where = f"more than {MOST_LEVELS} levels down in {printable(str(self.root))}"
            said = f"{count} {where} not searched for models: {some_of(self.deep)}"
            lines.append(f"{said}; {_REMEDY}")
        if self.is_cut:
            lines.append(
                f"{printable(str(self.root))} holds more than {MOST_ENTRIES} files; the rest was"
                f" not searched for models in other places; {_REMEDY}"
            )
        return lines


def left_out(dataset: str | os.PathLike[str]) -> LeftOut:
    """What `iter_models` of the same folder does not name; nothing of a manifest.

    Raises DatasetError for a folder that cannot be read.
    """
    root = Path(dataset)
    if not os.path.isdir(root):
        return LeftOut(root)
    places = frozenset(model_places(root))
    own = frozenset[Path]().union(*map(own_parts, places))
    search = _Search(root, places, own, MOST_ENTRIES)
    search.run()
    found = sorted(search.found, key=lambda place: natural_key(str(place.path)))
    names: tuple[list[str], list[str]] = ([], [])
    for place in found:
        names[search.is_hidden(place.path)].append(place.text(root))
    deep = tuple(_Found(path).text(root) for path in sorted(search.deep))
    is_partial = bool(names[False] or deep or search.is_own_cut)
    is_cut = search.left == 0
    return LeftOut(root, tuple(names[False]), tuple(names[True]), is_cut, deep, is_partial)


@dataclass(frozen=True)
class _Found:
    path: Path
    why: str = ""

    def text(self, root: Path) -> str:
        name = printable(str(self.path.relative_to(root)))
        return f"{name} ({self.why})" if self.why else name


@dataclass
class _Search:
    """A walk from the root: its own folders first, then hidden ones and those behind links."""

    root: Path
    places: frozenset[Path]
    own: frozenset[Path]
    left: int
    found: list[_Found] = field(default_factory=list)
    seen: set[tuple[int, int]] = field(default_factory=set)
    deep: list[Path] = field(default_factory=list)
    is_own_cut: bool = False

    def run(self) -> None:
        folders, later = deque([self.root]), deque[Path]()
        while self.left and (folders or later):
            folder = (folders or later).popleft()
            for entry in self._entries(folder):
                path = Path(entry.path)
                if not _is_folder(entry):
                    self._meet(path)
                elif self._is_to_search(path):
                    is_ours = not (entry.is_symlink() or self.is_hidden(path))
                    (folders if is_ours else later).append(path)
            if not self.left:
                self.is_own_cut = not all(map(self.is_hidden, (folder, *folders, *later)))

    def is_hidden(self, path: Path) -> bool:
        """Whether a name on the way from the root to the path begins with a dot."""
        return any(part.startswith(".") for part in path.relative_to(self.root).parts)

    def _entries(self, folder: Path) -> Iterator[os.DirEntry[str]]:
        try:
            if not self._is_new(folder):
                return
            with os.scandir(folder) as entries:
                for entry in islice(entries, self.left):
                    self.left -= 1
                    yield entry
        except OSError as error:
            self.found.append(_Found(folder, f"cannot be read: {error.strerror or error}"))

    def _is_new(self, folder: Path) -> bool:
        status = os.stat(folder)
        key = (status.st_dev, status.st_ino)
        is_new = key not in self.seen
        self.seen.add(key)
        return is_new

    def _is_to_search(self, folder: Path) -> bool:
        depth = len(folder.relative_to(self.root).parts)
        is_other = folder.name in NO_MODELS or folder in self.own or leads_back(folder)
        if depth >= MOST_LEVELS and not is_other and not self.is_hidden(folder):
            self.deep.append(folder)
        return depth < MOST_LEVELS and not is_other

    def _meet(self, path: Path) -> None:
        """Note what may be a model and is neither a place nor in the folder of one.

        Of several files in a model's folder the model's record tells.
        """
        is_named = path in self.places or (path.parent in self.places and path.name[0] != ".")
        may_be_one = has_model_name(path) or self._may_be_a_folder(path)
        if may_be_one and not is_named and path not in self.own:
            kind = what_is(path)
            self.found.append(_Found(path, "" if kind == "a file" else kind))

    def _may_be_a_folder(self, path: Path) -> bool:
        """Whether a link that leads nowhere lies where folders of models do."""
        is_among_them = path.parent in (self.root, self.root / "models")
        is_other = path.name in NO_MODELS or path.name.startswith(".")
        return is_among_them and not is_other and path.is_symlink() and not os.path.exists(path)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in a circle
        return False
