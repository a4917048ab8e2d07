"""A synthetic population whose truth is known, and a calibrator fitted on it."""

from dataclasses import replace

import numpy as np
import pytest

from jaxtroj.calibration import Calibrator, Labelled, Origin, Scheme
from jaxtroj.calibration.labelled import UNKNOWN
from jaxtroj.calibration.pooled_files import pooled_of
from jaxtroj.calibration.stage import StageModel
from jaxtroj.calibration.tails import KNOTS, Searched, fit_tail

ARCHITECTURES = ("densenet121", "inceptionv3", "resnet50")
STAGES = {"weights": ("noise",), "probes": ("flip", "speck"), "inversion": ("mask", "gap")}
DIRECTIONS = {"flip": 1, "mask": -1}
SCHEME = Scheme(STAGES, DIRECTIONS)


def population(models, seed, strength=1.5):
    """Rows, labels, architectures: flip is larger and mask smaller in poisoned models."""
    random = np.random.default_rng(seed)
    rows, labels, names = [], [], []
    for index in range(models):
        poisoned = index % 2 == 0
        place = random.integers(3)
        shift = float(place) - 1.0  # evidence levels differ by architecture
        rows.append(
            {
                "noise": float(random.normal()),
                "flip": float(random.normal() + strength * poisoned + shift),
                "speck": float(random.normal()),
                "mask": float(np.exp(random.normal() - strength * poisoned)),
                "gap": float(random.normal()),
            }
        )
        labels.append(poisoned)
        names.append(ARCHITECTURES[place])
    return rows, labels, names


def a_tail(search, weight=1.0):
    """Of one field, against nine clean models; its shape is a straight line."""
    known = Searched(f"{search}_score", "", "stage", search, 1)
    tail = fit_tail(known, np.arange(-4.0, 5.0), np.zeros(9, dtype=bool))
    return replace(tail, rises=tuple((weight * np.diff(KNOTS)).tolist()))


def with_straight_lines(document, version, weight=0.0):
    """A pooled calibrator's JSON as a file of version 3 to 5: one weight for each field."""
    for tail in document["pooled"]["tails"]:
        del tail["rises"]
        tail["weight"] = weight
    return document | {"schema": version}


def tails_of(calibrator):
    """Of the model that its stages ask, without the shapes of fields."""
    return [replace(tail, rises=()) for tail in pooled_of(calibrator.stages).tails]


def fit(data, scheme=SCHEME, origin=UNKNOWN):
    """A calibrator of rows, labels and architectures."""
    return Calibrator.fit(Labelled(*data), scheme, origin)


def regressions(calibrator: Calibrator) -> dict[str, StageModel]:
    """The stages of a calibrator that is not pooled."""
    found = {n: j for n, j in calibrator.stages.items() if isinstance(j, StageModel)}
    assert list(found) == list(calibrator.stages)
    return found


@pytest.fixture(scope="module")
def fitted():
    return fit(population(60, 0), origin=Origin(3, "synthetic"))


@pytest.fixture(scope="module")
def fresh():
    return population(600, 99)
