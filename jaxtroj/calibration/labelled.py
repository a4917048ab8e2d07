"""What a calibrator is fitted on: labelled models, and what is known of their fields beforehand."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from jaxtroj.calibration.folds import row_key
from jaxtroj.calibration.linear import Few
from jaxtroj.errors import CalibrationError
from jaxtroj.evidence.stage import SUPPORT, Measured

LARGEST_VALUE = 1e100
OPTIONAL = ("kinds", "datasets", "families", "sides", "classes", "pairs")
Row = Mapping[str, float | None]
"""Evidence of one model by field name; absent, None and NaN are missing."""


@dataclass(frozen=True)
class Labelled:
    """Models whose truth is known, column by column; the optional columns are empty or complete.

    Raises CalibrationError where columns differ in length or labels are no booleans.
    """

    rows: Sequence[Row]
    poisoned: Sequence[bool]
    architectures: Sequence[str | None]
    """Names such as "resnet50", or None."""
    kinds: Sequence[str] = ()
    """Kind of trigger of each poisoned model; "" for a clean one."""
    datasets: Sequence[str] = ()
    """The pictures that each was trained on."""
    families: Sequence[str] = ()
    """Architectures that are left out together, where their names tell finer."""
    sides: Sequence[int] = ()
    """Longest side of its pictures, pixels."""
    classes: Sequence[int] = ()
    """Number of its classes."""
    pairs: Sequence[str] = ()
    """What twins share that differ in the trojan alone; "" for a model without a twin."""

    def __post_init__(self) -> None:
        if not len(self.rows) == len(self.poisoned) == len(self.architectures):
            raise CalibrationError(
                f"got {len(self.rows)} rows of evidence, {len(self.poisoned)} labels and "
                f"{len(self.architectures)} architectures; expected as many of each"
            )
        for name in OPTIONAL:
            if len(getattr(self, name)) not in (0, len(self.rows)):
                raise CalibrationError(
                    f"got {len(self.rows)} rows of evidence and {len(getattr(self, name))} {name};"
                    " expected as many, or none"
                )
        if not all(label in (0, 1) for label in self.poisoned):
            raise CalibrationError("labels must be booleans: True for poisoned, False for clean")

    @property
    def truth(self) -> np.ndarray:
        """Labels, booleans [n]."""
        return np.array([bool(label) for label in self.poisoned], dtype=bool)

    def take(self, chosen: Sequence[int]) -> "Labelled":
        """The models at the given positions."""
        columns = {
            name: tuple(column[i] for i in chosen) if len(column) else ()
            for name, column in vars(self).items()
        }
        return Labelled(**columns)


@dataclass(frozen=True)
class Scheme:
    """Which fields each stage adds, in order, and what is known of them beforehand.

    Raises CalibrationError for a stage without fields, a field of two stages, or odd directions.
    """

    stages: Mapping[str, Sequence[str]]
    """Stage -> names of its fields, in the order of gathering."""
    directions: Mapping[str, int] = field(default_factory=dict)
    """+1 for a field that is larger in poisoned models, -1 smaller; others free."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Fields in words, for reasons."""
    few: Few | None = None
    """How few models are fitted; None fits them as many are."""
    searches: Mapping[str, str] = field(default_factory=dict)
    """Field -> the search that it is a result of; others belong to that of their stage."""
    is_pooled: bool = False
    """Whether to fit a pooled model (`pooled`) instead of one regression for each stage."""
    sides: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Stage -> least and most pixels of the longest side of pictures that it is made for by itself;
    others are made for all."""
    trusts_examples: bool = False
    """Whether examples are known to be drawn as the training pictures were, as in the folders of
    TrojAI's rounds. Then only a trigger tells them apart, and `SUPPORT` is a search like others."""

    def __post_init__(self) -> None:
        names = [name for fields in self.stages.values() for name in fields]
        if not self.stages or not all(self.stages.values()) or len(set(names)) != len(names):
            raise CalibrationError(
                "every stage needs at least one field, and each field belongs to one stage; got "
                f"{ {stage: list(fields) for stage, fields in self.stages.items()} }"
            )
        odd = {name: sign for name, sign in self.directions.items() if sign not in (-1, 0, 1)}
        if odd:
            raise CalibrationError(f"directions must be -1, 0 or 1, got {odd}")

    def names(self, stage: str) -> tuple[str, ...]:
        """Fields of a stage and all before it."""
        found: list[str] = []
        for name, fields in self.stages.items():
            found += fields
            if name == stage:
                return tuple(found)
        raise CalibrationError(f"unknown stage {stage!r}, expected one of {', '.join(self.stages)}")

    def label(self, name: str) -> str:
        """A field in words."""
        return self.labels.get(name, name.replace("_", " "))

    def search(self, name: str) -> str:
        """The search that a field is a result of."""
        found = self.searches.get(name)
        if found and not (self.trusts_examples and found == SUPPORT):
            return found
        return next(stage for stage, fields in self.stages.items() if name in fields)

    def direction(self, name: str) -> int:
        """+1, -1, or 0 for a field that may be either."""
        return int(self.directions.get(name, 0))


@dataclass(frozen=True)
class Origin:
    """What a fit is told of where its models come from; kept as provenance."""

    seed: int = 0
    """Chooses the folds, with the content of the rows."""
    population: str = ""
    """The models in words."""
    commit: str = ""
    """Commit of jaxtroj that fitted it."""
    sides: tuple[int, int] | None = None
    """Shortest and longest side, pixels, of the pictures that the calibrator is for."""
    evidence: Measured | None = None
    """By which version the models' evidence was measured; None where it is of several."""


UNKNOWN = Origin()


@dataclass(frozen=True)
class Population:
    """Labelled models in canonical order (by key), with where each stood in the caller's lists."""

    models: Labelled
    poisoned: np.ndarray
    keys: tuple[str, ...]
    places: np.ndarray

    def in_order(self, column: Sequence[str]) -> tuple[str, ...]:
        """A column of the caller's lists in canonical order."""
        return tuple(column[int(i)] for i in self.places)


def make_population(labelled: Labelled) -> Population:
    """The models in an order that depends on their content alone."""
    columns = (labelled.rows, labelled.poisoned, labelled.architectures)
    keys = [row_key(*item) for item in zip(*columns, strict=True)]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    models = labelled.take(order)
    return Population(models, models.truth, tuple(keys[i] for i in order), np.array(order, int))


def value_of(row: Row, name: str) -> float:
    """The field's value, NaN when it is absent, None, not finite or absurd (above 1e100)."""
    value = row.get(name)
    if value is None or not math.isfinite(value) or abs(value) > LARGEST_VALUE:
        return math.nan
    return float(value)


def matrix(rows: Sequence[Row], names: Sequence[str]) -> np.ndarray:
    """Values [rows, names], NaN where missing."""
    values = [[value_of(row, name) for name in names] for row in rows]
    return np.array(values, dtype=np.float64).reshape(len(rows), len(names))
