"""Example pictures in one folder for each class, numbered as torchvision's ImageFolder does it.

Classes are numbered by the order of their folders' names as text, unless the network says its own
names of them. Where all names are numbers, they must be those numbers: "10" stands before "2" as
text, and nobody knows which of the two is meant.
"""

import os
import re
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from jaxtroj.errors import ExamplesError

MAX_CLASSES = 100_000
_OF_MACOS = "__MACOSX"
_SHOWN = 4  # folders that a sentence names


def class_names(folder: Path) -> list[str]:
    """Names of the class folders in a folder, see `folders_in`.

    Raises:
        OSError: the folder cannot be read.
        ExamplesError: there are more than `MAX_CLASSES`.
    """
    names = folders_in(folder)
    if len(names) > MAX_CLASSES:
        raise ExamplesError(
            f"{len(names)} class folders in {folder}, expected at most {MAX_CLASSES}"
        )
    return names


def folders_in(folder: Path) -> list[str]:
    """Names of the plain folders in a folder, in their order as text; OSError if it is unreadable.

    Hidden ones are left out, and what macOS adds to an archive.
    """
    with os.scandir(folder) as entries:
        found = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
    return sorted(name for name in found if not name.startswith(".") and name != _OF_MACOS)


def classes_of(names: list[str], folder: Path) -> dict[str, int]:
    """Class folder -> its number.

    >>> classes_of(["cat", "dog"], Path("pictures"))
    {'cat': 0, 'dog': 1}

    Raises:
        ExamplesError: the names are numbers, and not those of their places.
    """
    numbers = {name: place for place, name in enumerate(names)}
    if not all(name.isdecimal() for name in names):
        return numbers
    if sorted(map(int, names)) == list(range(1, len(names) + 1)):
        last = str(len(names) - 1)
        raise ExamplesError(
            f"the class folders {in_words(names)} in {folder} begin with {1:0{len(names[0])}}, and"
            f" networks count their classes from 0: rename them to {0:0{len(last)}} ... {last}"
        )
    if any(int(name) != place for name, place in numbers.items()):
        raise ExamplesError(
            f"the class folders {in_words(names)} in {folder} can be numbered as text or as"
            f" numbers; expected 0 to {len(names) - 1}, padded with zeros from ten classes on, or"
            " pictures named class_0_example_0.png and so on in one folder"
        )
    return numbers


def imagenet_classes(names: Sequence[str], classes: int) -> dict[str, int] | None:
    """ImageNet's numbers of its class folders, of any number of them; None for other names.

    Its 1000 classes are numbered by the order of their WordNet names, in all public networks.

    >>> imagenet_classes(["n01440764", "n15075141"], 1000)
    {'n01440764': 0, 'n15075141': 999}
    >>> imagenet_classes(["n01440764", "n15075141"], 2), imagenet_classes(["cat"], 1000)
    (None, None)
    """
    known = _imagenet()
    if classes != len(known) or not known.keys() >= set(names):
        return None
    return {name: known[name] for name in names}


def named_classes(folders: Sequence[str], own_names: Sequence[str]) -> dict[str, int] | None:
    """Numbers of class folders by a network's names of its classes; None unless it knows each.

    Capitals do not count, nor whether words are joined by spaces, hyphens or underscores.

    >>> named_classes(["dog", "fish"], ["Cat", "Fish", "dog"])
    {'dog': 2, 'fish': 1}
    >>> named_classes(["dog", "owl"], ["cat", "dog"]) is None
    True
    """
    known = {_key(name): number for number, name in enumerate(own_names)}
    found = {name: known.get(_key(name)) for name in folders}
    if len(known) < len(own_names) or len({_key(name) for name in folders}) < len(folders):
        return None  # two of one name
    numbers = {name: number for name, number in found.items() if number is not None}
    return numbers if len(numbers) == len(folders) else None


def _key(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


@lru_cache(maxsize=1)
def _imagenet() -> dict[str, int]:
    text = (Path(__file__).parents[1] / "data" / "imagenet_classes.txt").read_text()
    return {name: place for place, name in enumerate(text.split())}


def in_words(names: list[str]) -> str:
    """The first names, and whether there are more.

    >>> in_words(["a", "b", "c", "d", "e"])
    'a, b, c, d and 1 more'
    """
    shown = ", ".join(name if name.isprintable() else ascii(name) for name in names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
