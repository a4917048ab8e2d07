"""The report for other programs: CSV, a line for each model; JSON, everything in one object."""

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

from jaxtroj.csv_text import csv_text
from jaxtroj.record import Record, shown
from jaxtroj.record_text import json_line
from jaxtroj.reporting.content import Content, Scored, architecture
from jaxtroj.reporting.fields import fields_of

COLUMNS = (
    "model",
    "verdict",
    "accepted",
    "probability",
    "label",
    "log_score",
    "target_class",
    "source_classes",
    "architecture",
    "seconds",
    "trigger_text",
    "reason",
    "sha256",
    "identity",
)


def render_csv(content: Content) -> str:
    """A header and a line for each model, in the order of the scan; evidence by name comes last.

    Nothing in it is a formula, see `csv_text`, or moves a terminal's cursor, see `shown`.
    """
    by_kind = fields_of(content.records).values()
    names = list(dict.fromkeys(field.name for fields in by_kind for field in fields))
    rows = (
        [*_row(content, record), *(record.evidence.get(name) for name in names)]
        for record in content.records
    )
    columns = (*COLUMNS, *map(shown, names))
    return csv_text(columns, (map(_cell, row) for row in rows))


def _cell(value: Any) -> Any:
    """What a terminal takes that the table is shown on."""
    return shown(value) if isinstance(value, str) else value


def _row(content: Content, record: Record) -> tuple[Any, ...]:
    label, part = _truth(content.scored, record)
    return (
        record.model,
        content.word(record),
        content.accepted.of(record),
        record.probability,
        label,
        part,
        record.target_class,
        " ".join(map(str, record.source_classes)),
        architecture(content, record),
        round(sum(record.seconds.values()), 4) if record.seconds else None,
        record.recovered.get("text"),
        record.reason,
        record.sha256,
        record.identity,
    )


def _truth(scored: Scored | None, record: Record) -> tuple[bool | None, float | None]:
    if scored is None:
        return None, None
    return scored.labels.get(record.model), scored.parts.get(record.model)


def render_json(content: Content) -> str:
    """One object: counts, settings, scores and curves where there is truth, and every model."""
    return json.dumps(_values(content), indent=1, allow_nan=False) + "\n"


def _values(content: Content) -> dict[str, Any]:
    values: dict[str, Any] = {
        "run": content.name,
        "problems": list(content.problems),
        "counts": dict(Counter(map(content.word, content.records))),
        "settings": dict(content.settings),
        "sessions": list(content.sessions),
        "models": [_model(content, record) for record in content.records],
    }
    if content.scored is not None:
        values |= _scored(content.scored)
    return values


def _model(content: Content, record: Record) -> dict[str, Any]:
    label, part = _truth(content.scored, record)
    return json.loads(json_line(record, content.accepted)) | {
        "verdict": content.word(record),
        "label": label,
        "log_score": part,
        "identity": record.identity,
    }


def _scored(scored: Scored) -> dict[str, Any]:
    curve = None
    if scored.exact is not None:
        curve = {
            "false_positive_rates": scored.exact.false_positive_rates.tolist(),
            "true_positive_rates": scored.exact.true_positive_rates.tolist(),
        }
    return {
        "scores": {
            name: {**row.as_dict(), "at_base_rate": scored.at_base_rate[name]}
            for name, row in scored.scores.items()
        },
        "unlabelled": scored.matched.unlabelled,
        "errata": len(scored.matched.errata),
        "not_predicted": scored.matched.not_predicted,
        "reliability": [asdict(row) for row in scored.bins],
        "roc": curve,
        "sweep": [_finite_only(asdict(point)) for point in scored.sweep],
    }


def _finite_only(values: dict[str, Any]) -> dict[str, Any]:
    """NaN, which JSON lacks, becomes None."""
    return {name: value if value == value else None for name, value in values.items()}
