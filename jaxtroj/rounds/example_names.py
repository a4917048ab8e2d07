"""Names of example files: their order, the classes that they say, and which of a folder count."""

import os
import re
from pathlib import Path

from jaxtroj.errors import ExamplesError
from jaxtroj.rounds.class_folders import class_names, classes_of, in_words
from jaxtroj.rounds.folder_content import content_of
from jaxtroj.rounds.image_file import SUFFIXES, is_named_as_picture

MAX_FILES = 100_000
UNKNOWN_LABEL = -1
_ENDING = f"(?:{'|'.join(map(re.escape, SUFFIXES))})"
_CLASS_NAME = re.compile(rf"class_(\d{{1,6}})_example_\d+{_ENDING}", re.IGNORECASE)
_POISONED_NAME = re.compile(rf"class_\d+_trigger_.*{_ENDING}", re.IGNORECASE)


def natural_key(name: str) -> tuple:
    """Sort key under which numbers inside names count as numbers.

    >>> sorted(["class_0_example_10.png", "class_0_example_9.png"], key=natural_key)[0]
    'class_0_example_9.png'
    """
    parts = re.split(r"([0-9]{1,18})", name)
    return tuple(
        (1, int(part), "") if i % 2 else (0, 0, part) for i, part in enumerate(parts)
    ), name


def label_of(name: str) -> int:
    """Class number in a TrojAI example name, -1 for any other name.

    >>> label_of("class_3_example_12.PNG"), label_of("class_4_example_0.jpg"), label_of("sign.png")
    (3, 4, -1)
    """
    match = _CLASS_NAME.fullmatch(name)
    return int(match.group(1)) if match else UNKNOWN_LABEL


def is_named_poisoned(name: str) -> bool:
    """Whether a picture is named as a poisoned example, which is no clean one.

    >>> is_named_poisoned("0/class_0_trigger_1_example_0.png"), is_named_poisoned("sign.png")
    (True, False)
    """
    return _POISONED_NAME.fullmatch(os.path.basename(name)) is not None


def labels_in(folder: Path) -> dict[str, int]:
    """Names ending as those of pictures, in natural order, and the class of each.

    Those of the folder; without any those of its class folders, as "cat/1.png".

    Raises:
        ExamplesError: none, too many, or the folder cannot be read.
    """
    try:
        found = {name: label_of(name) for name in os.listdir(folder) if is_named_as_picture(name)}
        found = found or _in_class_folders(folder)
    except OSError as error:
        raise ExamplesError(
            f"cannot read the examples folder {folder} ({error.strerror or error}); expected a "
            "folder of pictures, class_{c}_example_{n}.png or .jpg"
        ) from error
    if not found:
        raise ExamplesError(
            f"no picture in the examples folder {folder}, which holds {content_of(folder)};"
            " expected .png, .jpg or .jpeg files named class_0_example_0.png and so on, or a folder"
            " of such files for each class"
        )
    if len(found) > MAX_FILES:
        raise ExamplesError(
            f"{len(found)} pictures in {folder}, expected at most {MAX_FILES}; a few of each class"
            " are enough"
        )
    return {name: found[name] for name in sorted(found, key=natural_key)}


def _in_class_folders(folder: Path) -> dict[str, int]:
    """Pictures of the class folders, if there are any; see `class_folders`."""
    names = class_names(folder)
    pictures = {n: list(filter(is_named_as_picture, os.listdir(folder / n))) for n in names}
    if not any(pictures.values()):
        return {}
    if empty := [name for name, own in pictures.items() if not own]:
        raise ExamplesError(
            f"no picture (.png, .jpg or .jpeg) in the class folders {in_words(empty)} of {folder};"
            " expected some in each, because the order of the folders numbers the classes: put some"
            " there, or remove what is no class of the network"
        )
    numbers = classes_of(names, folder)
    return {f"{name}/{own}": numbers[name] for name, every in pictures.items() for own in every}
