"""Stages that a fit leaves out though enough models have them, as no model has all before them.

A regression of a stage needs the fields of all stages before it. Some stages are made for small
pictures, some for large ones: a run that holds both has no model with all, and its strongest
searches are lost to the fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from jaxtroj.calibration.labelled import Labelled, Scheme, matrix
from jaxtroj.calibration.training import few_for, is_enough

_MOST_NAMED = 4
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class Unfitted:
    """A stage without a regression, and why it has none."""

    stage: str
    models: int
    """That have all of the stage's own fields."""
    complete: int
    """Of these, with all fields of the stages before it, too."""
    lacks: Mapping[tuple[str, ...], int]
    """Earlier stages -> how many of `models` lack fields of just these, most first.

    Empty where the models are too few anyway, or the fit of few leaves the stage out."""
    sides: Mapping[str, tuple[int, int]]
    """As in `Scheme`."""

    def __str__(self) -> str:
        if not self.lacks:
            return f"with so few models {self.stage} is not fitted"
        named = list(self.lacks.items())[:_MOST_NAMED]
        lacking = ", ".join(
            f"{count} lack {_listed(stages)}{self._made_for(stages)}" for stages, count in named
        )
        have = f"{self.complete} of them have" if self.complete else "none of them has"
        return (
            f"{self.stage} is not fitted: {self.models} models have its fields, but {have} those of"
            f" all stages before it ({lacking}); calibrate models with the same stages apart"
        )

    def _made_for(self, stages: Sequence[str]) -> str:
        """The pictures that stages are made for, where it is the same for all and has a limit."""
        found = {self.sides.get(stage) for stage in stages}
        sides = found.pop()
        if sides is None or found:
            return ""
        low, high = sides
        if high >= _NO_LIMIT:
            return f" (of pictures from {low} px)"
        return f" (of pictures of {'up' if low <= 1 else low} to {high} px)"


def unfitted_stages(labelled: Labelled, scheme: Scheme, stages: Sequence[str]) -> list[Unfitted]:
    """Why each of the named stages, which a fit by `scheme` left out, has no regression."""
    few = few_for(scheme, len(labelled.rows))
    counted = {
        stage: [name for name in fields if few is None or name in few.fields]
        for stage, fields in scheme.stages.items()
    }
    own = {
        stage: np.all(np.isfinite(matrix(labelled.rows, fields)), axis=1)
        for stage, fields in counted.items()
        if fields
    }
    return [_why(stage, own, labelled.truth, scheme) for stage in stages]


def _why(stage: str, own: Mapping[str, np.ndarray], truth: np.ndarray, scheme: Scheme) -> Unfitted:
    """Args: own: stage -> which models have all of its own fields that count, booleans [n]."""
    if stage not in own:  # it adds nothing that so few models are fitted by
        return Unfitted(stage, 0, 0, {}, scheme.sides)
    before = list(own)[: list(own).index(stage)]
    models, rows = int(own[stage].sum()), own[stage]
    complete = rows & np.all([own[name] for name in before] or [rows], axis=0)
    lacks = {} if scheme.is_pooled or not is_enough(truth[rows]) else _lacking(own, before, rows)
    return Unfitted(stage, models, int(complete.sum()), lacks, scheme.sides)


def _lacking(
    own: Mapping[str, np.ndarray], before: Sequence[str], rows: np.ndarray
) -> dict[tuple[str, ...], int]:
    """Stages that the same of some rows lack -> how many do, most first."""
    found: dict[bytes, list[str]] = {}
    for name in before:
        if (lacking := rows & ~own[name]).any():
            found.setdefault(lacking.tobytes(), []).append(name)
    counted = {tuple(names): int((rows & ~own[names[0]]).sum()) for names in found.values()}
    return dict(sorted(counted.items(), key=lambda item: -item[1]))


def _listed(names: Sequence[str]) -> str:
    """Names as a list in words.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
