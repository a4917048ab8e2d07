"""Names of evidence as a reader wants them: label, unit and meaning, by kind of model."""

from collections.abc import Iterable, Sequence

from jaxtroj.evidence.stage import Field
from jaxtroj.evidence.stages import TABLES
from jaxtroj.record import Record

UNKNOWN_STAGE = "not in this version's schema"


def fields_of(records: Iterable[Record]) -> dict[str, tuple[Field, ...]]:
    """For each kind of model among the records, the fields that occur, in the schema's order.

    Names that the schema does not have come last, with themselves as label.
    """
    names: dict[str, set[str]] = {}
    for record in records:
        names.setdefault(record.kind, set()).update(record.evidence)
    return {
        kind: _fields(TABLES[kind].fields, found) for kind, found in sorted(names.items()) if found
    }


def _fields(schema: Sequence[Field], found: set[str]) -> tuple[Field, ...]:
    known = tuple(field for field in schema if field.name in found)
    unknown = sorted(found - {field.name for field in schema})
    return known + tuple(Field(name, UNKNOWN_STAGE, 0, name, "", "") for name in unknown)
