"""What calibrators are fitted on: the fields of image classifiers, or those of text heads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from jaxtroj.calibration.linear import Few
from jaxtroj.errors import CalibrationError
from jaxtroj.evidence.stages import IMAGES, TABLES, TEXTS
from jaxtroj.record import Record

# Of the views of the same answers one or two for each question. Fields, penalty and clip were
# chosen on splits of 100 heads (`fresh` in benchmarks/results/round5_accuracy.json), never on those
# that the benchmark draws its small populations from.
FEW_HEADS = Few(
    models=60,
    fields=tuple(field.name for field in TEXTS.fields if field.is_for_few),
    penalty=1.0,
    clip=0.03,
)


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
    table.kind: Schema(table.kind, table.judged_fields, table.directions, table.labels, few)
    for table, few in ((IMAGES, None), (TEXTS, FEW_HEADS))
}


def schema_for(kind: str, rows: Iterable[Mapping[str, float]]) -> Schema:
    """The schema of one kind of model with the stages and fields that occur in the evidence.

    Small pictures have other stages than large ones, and records of earlier versions fewer fields;
    evidence of none stands for all.
    """
    schema, names = SCHEMAS[kind], {name for row in rows for name in row}
    known = {s: tuple(f for f in fields if f in names) for s, fields in schema.stages.items()}
    found = {s: fields for s, fields in known.items() if fields}
    return replace(schema, stages=found or schema.stages)


def schema_of(records: Iterable[Record]) -> Schema:
    """The schema of records; those without evidence say nothing, and no records mean images.

    Raises:
      CalibrationError: evidence of images and of texts in one set.
    """
    gathered = [record for record in records if record.evidence]
    kinds = {record.kind for record in gathered}
    if len(kinds) > 1:
        raise CalibrationError(
            "the records hold evidence of image classifiers and of text models; calibrate and score"
            " them apart, by run folders of one kind"
        )
    kind = kinds.pop() if kinds else "image"
    if kind not in TABLES:
        raise CalibrationError(f"the records are of kind {kind!r}, expected {' or '.join(TABLES)}")
    return schema_for(kind, (record.evidence for record in gathered))
