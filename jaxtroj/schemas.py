"""Which evidence a set of records holds: that of image classifiers or that of text heads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from jaxtroj.calibration.linear import Few
from jaxtroj.errors import CalibrationError
from jaxtroj.evidence.images import schema as image_schema
from jaxtroj.evidence.texts import schema as text_schema


@dataclass(frozen=True)
class Schema:
    """The fields that a calibrator is fitted on.

    Attributes:
      kind: "image" or "text".
      stages: stage -> names of its fields, cheap stages first.
      directions: field -> +1 where poisoned models have larger values, -1 smaller.
      labels: field -> in words.
      few: how small populations are fitted; None as large ones.
    """

    kind: str
    stages: Mapping[str, tuple[str, ...]]
    directions: Mapping[str, int]
    labels: Mapping[str, str]
    few: Few | None = None


SCHEMAS = {
    kind: Schema(kind, stages, module.DIRECTIONS, module.LABELS, few)
    for kind, module, stages, few in (
        ("image", image_schema, image_schema.STAGE_FIELDS, None),
        ("text", text_schema, text_schema.JUDGED_FIELDS, text_schema.FEW),
    )
}


def schema_of(rows: Iterable[Mapping[str, float]]) -> Schema:
    """The schema of the evidence; rows without evidence say nothing, and no rows mean images.

    Of its stages those that occur: small pictures have other stages than large ones.

    Raises:
      CalibrationError: evidence of images and of texts in one set.
    """
    names = {name for row in rows for name in row}
    kinds = [
        kind
        for kind, schema in SCHEMAS.items()
        if any(name in names for fields in schema.stages.values() for name in fields)
    ]
    if len(kinds) > 1:
        raise CalibrationError(
            "the records hold evidence of image classifiers and of text models; calibrate and score"
            " them apart, by run folders of one kind"
        )
    schema = SCHEMAS[kinds[0] if kinds else "image"]
    found = {s: fields for s, fields in schema.stages.items() if not names.isdisjoint(fields)}
    return replace(schema, stages=found or schema.stages)
