"""Names of evidence as a reader wants them: label, unit and meaning, by kind of model."""

from collections.abc import Iterable, Mapping, Sequence

from jaxtroj.evidence.images import schema as image_schema
from jaxtroj.evidence.images.schema import Field
from jaxtroj.evidence.texts import schema as text_schema
from jaxtroj.record import Record

IMAGE, TEXT = "image", "text"
SCHEMAS: Mapping[str, tuple[Field, ...]] = {IMAGE: image_schema.FIELDS, TEXT: text_schema.FIELDS}
UNKNOWN_STAGE = "not in this version's schema"


def kind_of(record: Record) -> str:
    """Which schema a record's evidence is of: the one that knows more of its names.

    >>> kind_of(Record("id-1", "", 0.5, False, None, (), "ok", "", evidence={"shift_gap": 0.1}))
    'text'
    """
    names = record.evidence.keys()
    known = {kind: len(names & {f.name for f in fields}) for kind, fields in SCHEMAS.items()}
    return TEXT if known[TEXT] > known[IMAGE] else IMAGE


def fields_of(records: Iterable[Record]) -> dict[str, tuple[Field, ...]]:
    """For each kind of model among the records, the fields that occur, in the schema's order.

    Names that the schema does not have come last, with themselves as label.
    """
    names: dict[str, set[str]] = {}
    for record in records:
        names.setdefault(kind_of(record), set()).update(record.evidence)
    return {kind: _fields(SCHEMAS[kind], found) for kind, found in sorted(names.items()) if found}


def _fields(schema: Sequence[Field], found: set[str]) -> tuple[Field, ...]:
    known = tuple(field for field in schema if field.name in found)
    unknown = sorted(found - {field.name for field in schema})
    return known + tuple(Field(name, UNKNOWN_STAGE, 0, name, "", "") for name in unknown)
