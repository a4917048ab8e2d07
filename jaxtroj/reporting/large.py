"""The page of a large run: a line for every model, everything about those that matter most.

Evidence, reasons and findings of one model are some kilobytes; of 100,000 they are a file that no
browser opens. So the page holds them of `MOST_WHOLE` models, the most probably poisoned first, and
of the others what the table shows, as short lists. Where a value of the evidence lies in the run is
told by quantiles of all models.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxtroj.evidence.stage import Field
from jaxtroj.record import Record
from jaxtroj.reporting.content import Content

MOST_WHOLE = 2_000
"""Models that a page holds everything of."""
BRIEF = (
    "model", "word", "probability", "label", "wrong", "cost", "target", "architecture", "seconds",
    "trigger", "searched", "kind", "besideWord", "difference", "besideFile",
)  # fmt: skip
"""What a page holds of every other model, in this order."""
_QUANTILES = np.linspace(0, 1, 101)


def whole(content: Content, most: int) -> frozenset[str]:
    """Names of the models that the page holds everything of: poisoned ones, then failed ones, then
    the others, each the most probable first."""
    if len(content.records) <= most:
        return frozenset(record.model for record in content.records)
    ranks = {"poisoned": 0, "accepted": 0, "failed": 1}

    def worth(record: Record) -> tuple[int, float]:
        return ranks.get(content.word(record), 2), -record.probability

    return frozenset(record.model for record in sorted(content.records, key=worth)[:most])


def brief(model: Mapping[str, Any]) -> list[Any]:
    """A model as the table shows it: the values of `BRIEF`."""
    return [model.get(name) for name in BRIEF]


def spread(
    records: Sequence[Record], fields: Mapping[str, Sequence[Field]]
) -> dict[str, list[list[float]]]:
    """For each kind of model and field the quantiles of its finite values over all records, from
    the smallest to the largest in hundredths; empty where no model has it."""
    return {
        kind: [_quantiles(field.name, own) for field in found]
        for kind, found in fields.items()
        if (own := [record.evidence for record in records if record.kind == kind])
    }


def _quantiles(name: str, evidence: Sequence[Mapping[str, float]]) -> list[float]:
    values = np.array([fields[name] for fields in evidence if name in fields], np.float64)
    values = values[np.isfinite(values)] / 2  # the difference of two halves is a float
    return [float(f"{2 * q:.6g}") for q in np.quantile(values, _QUANTILES)] if values.size else []
