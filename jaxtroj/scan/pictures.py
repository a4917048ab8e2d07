"""The example pictures of an image classifier, as it takes them, and what they say of it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from jaxtroj.errors import ExamplesError
from jaxtroj.rounds.examples import Pictures, load_pictures
from jaxtroj.rounds.image_config import middle_of
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.picture_sizes import ByProcessor, check_said_size, fit_for

if TYPE_CHECKING:
    from converters.model import Model

_MOST_NAMED = 8  # classes that a sentence names


def pictures_of(attempt: Attempt, model: "Model") -> Pictures:
    """The examples of a model, of its channels and of one size; what was changed is a finding.

    Raises:
        ExamplesError: there are none, or they are not what they should be.
    """
    entry, settings = attempt.entry, attempt.settings
    if entry.examples_path is None:
        raise ExamplesError(
            f"no example pictures beside {entry.model_path}; expected a folder"
            " example_data, or name one with --examples"
        )
    channels, fit = 1 if model.channels == 1 else 3, fit_for(attempt, model)
    pictures = load_pictures(entry.examples_path, settings.examples_per_class, channels, fit)
    if isinstance(fit, ByProcessor) and fit.finding:
        attempt.findings += (fit.finding,)
    height, width = pictures.pixels.shape[1:3]
    taken = middle_of(entry.image_config, entry.round, (height, width))
    notes = (taken.note, *_missing_classes(attempt, model, pictures.labels))
    found = pictures.cut(taken.side, notes)
    check_said_size(settings.image_size, found.pixels)
    return found


def _missing_classes(attempt: Attempt, model: "Model", labels: np.ndarray) -> Iterator[str]:
    """What the examples and config.json say otherwise than the network about its classes.

    Only of TrojAI's rounds: they ship examples of every class.
    """
    entry, classes = attempt.entry, model.num_classes
    said = entry.image_config.classes if entry.image_config else None
    if said not in (None, classes):
        yield f"config.json says {said} classes, the network has {classes}"
    absent = np.setdiff1d(np.arange(classes), labels)
    if entry.round is not None and 0 < len(absent) < classes:
        named = ", ".join(map(str, absent[:_MOST_NAMED]))
        more = " and more" if len(absent) > _MOST_NAMED else ""
        yield (
            f"{len(absent)} of {classes} classes have no example ({named}{more}): no trigger"
            " from them was searched"
        )
