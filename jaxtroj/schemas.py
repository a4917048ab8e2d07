"""What calibrators are fitted on: the fields of one kind of model."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from jaxtroj.calibration.labelled import Scheme
from jaxtroj.calibration.linear import Few
from jaxtroj.errors import CalibrationError
from jaxtroj.evidence.stages import CLASSIFIERS, IMAGES, TABLES, TEXTS
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


SCHEMES = {
    table.kind: Scheme(
        table.judged_fields, table.directions, table.labels, few, table.searches, sides=table.sides
    )
    for table, few in ((IMAGES, None), (TEXTS, FEW_HEADS), (CLASSIFIERS, None))
}


def scheme_for(kind: str, rows: Iterable[Mapping[str, float]]) -> Scheme:
    """The scheme of one kind of model with the stages and fields that occur in the evidence.

    Small pictures have other stages than large ones, and records of earlier versions fewer fields;
    evidence of none stands for all.
    """
    scheme, names = SCHEMES[kind], {name for row in rows for name in row}
    known = {s: tuple(f for f in fields if f in names) for s, fields in scheme.stages.items()}
    found = {s: fields for s, fields in known.items() if fields}
    return replace(scheme, stages=found or scheme.stages)


def kind_of(records: Iterable[Record]) -> str:
    """Kind of model that records hold evidence of; without any they are of images.

    Raises:
      CalibrationError: evidence of images and of texts in one set, or of an unknown kind.
    """
    kinds = {record.kind for record in records if record.whole_evidence}
    if len(kinds) > 1:
        raise CalibrationError(
            f"the records hold evidence of several kinds of models, {', '.join(sorted(kinds))};"
            " calibrate and score them apart, by run folders of one kind"
        )
    kind = kinds.pop() if kinds else "image"
    if kind not in TABLES:
        raise CalibrationError(f"the records are of kind {kind!r}, expected {' or '.join(TABLES)}")
    return kind


def scheme_of(records: Iterable[Record]) -> Scheme:
    """The scheme of records, with the stages that occur in them; raises as `kind_of`."""
    gathered = [record for record in records if record.whole_evidence]
    return scheme_for(kind_of(gathered), (record.whole_evidence for record in gathered))
