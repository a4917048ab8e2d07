"""The example pictures of an image classifier, as it takes them, and what they say of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converters.errors import safe_repr
from jaxtroj.errors import ExamplesError
from jaxtroj.rounds.example_names import UNKNOWN_LABEL
from jaxtroj.rounds.examples import Pictures, load_pictures
from jaxtroj.rounds.image_config import middle_of
from jaxtroj.rounds.picture_archive import archives_in
from jaxtroj.rounds.places import some_of
from jaxtroj.rounds.turns import MANY_CLASSES
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.picture_sizes import ByProcessor, check_said_size, fit_for
from jaxtroj.scan.records import one_sentence

if TYPE_CHECKING:
    from converters.model import Model

_MOST_NAMED = 8  # classes that a sentence names
NAMED = (
    "detect takes --examples PATH, scan a column examples of a CSV manifest, Python images and"
    " labels"
)
"""How each caller names pictures that lie elsewhere; a scan does not know who that is."""
_BY_NAMES = (
    "the class folders are numbered as the network's own config numbers their names, which is not"
    " the order of the alphabet"
)
_MOST_ARCHIVES, _LONGEST_NAME = 3, 40  # of archives that a sentence names


def pictures_of(attempt: Attempt, model: "Model") -> Pictures:
    """The examples of a model, of its channels and of one size; what was changed is a finding.

    Raises:
        ExamplesError: there are none, or they are not what they should be.
    """
    entry, settings = attempt.entry, attempt.settings
    if entry.examples_path is None:
        raise ExamplesError(_no_pictures(entry.model_path))
    channels, fit = 1 if model.channels == 1 else 3, fit_for(attempt, model)
    each = settings.examples_per_class
    pictures = load_pictures(entry.examples_path, each, channels, fit, is_bounded=True)
    before, pictures = pictures, pictures.for_classes(model.num_classes, attempt.class_names)
    if pictures.is_named and (pictures.labels != before.labels).any():
        attempt.findings += (_BY_NAMES,)
    if isinstance(fit, ByProcessor) and fit.finding:
        attempt.findings += (fit.finding,)
    height, width = pictures.pixels.shape[1:3]
    by_nist = entry.by_nist and not is_size_said(attempt, model)
    taken = middle_of(entry.image_config, entry.round, (height, width), by_nist)
    notes = (taken.note, *_odd_classes(attempt, model, pictures.labels))
    found = pictures.cut(taken.side, notes)
    check_said_size(settings.image_size, found.pixels)
    return found


def is_size_said(attempt: Attempt, model: "Model") -> bool:
    """Whether the network or an option says how large the pictures are that it takes."""
    settings = attempt.settings
    return (model.image_size, settings.image_size, settings.resize) != (None, None, None)


def _no_pictures(model: Path) -> str:
    """That no folder of pictures lies beside a model, and which archives do; names of strangers."""
    said = (
        f"no example pictures beside {model}; expected a folder example_data there, or pictures"
        f" that are named: {NAMED}"
    )
    names = archives_in(model if model.is_dir() else model.parent)
    if not names:
        return said
    shown = [safe_repr(name[:_LONGEST_NAME]) for name in names]
    archives = one_sentence(some_of(shown, _MOST_ARCHIVES))
    return f"{said}; archives lie there that can be named so: {archives}"


def absent_classes(labels: np.ndarray, classes: int) -> str:
    """The classes that no example is of, in words; "" for none, and where no example is labelled.

    >>> absent_classes(np.array([0, 1, 1]), 3)
    '1 of 3 classes have no example (2): no trigger from them was searched'
    """
    absent, known = np.setdiff1d(np.arange(classes), labels), labels != UNKNOWN_LABEL
    if not 0 < len(absent) < classes:
        return ""
    more = " and more" if len(absent) > _MOST_NAMED else ""
    named = f" ({', '.join(map(str, absent[:_MOST_NAMED]))}{more})"
    count = f"{len(absent)} of {classes} classes have no"
    named = named if classes <= MANY_CLASSES else ""
    if known.all():
        return f"{count} example{named}: no trigger from them was searched"
    return f"{count} labelled example{named}: hardly a trigger from them was searched"


def _odd_classes(attempt: Attempt, model: "Model", labels: np.ndarray) -> Iterator[str]:
    """What the examples and config.json say otherwise than the network about its classes."""
    entry, classes = attempt.entry, model.num_classes
    said = entry.image_config.classes if entry.image_config else None
    if said not in (None, classes):
        yield f"config.json says {said} classes, the network has {classes}"
    yield absent_classes(labels, classes)
