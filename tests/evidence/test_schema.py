"""The schema is complete and says nothing twice."""

import pytest

from jaxtroj.evidence.images.schema import DIRECTIONS, FIELDS, LABELS, STAGE_FIELDS, STAGES


def test_names_are_unique_and_plain():
    names = [field.name for field in FIELDS]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() and name == name.lower() for name in names)


def test_stages_part_the_fields_in_their_order():
    assert tuple(STAGE_FIELDS) == STAGES and all(STAGE_FIELDS.values())
    joined = [name for stage in STAGES for name in STAGE_FIELDS[stage]]
    assert joined == [field.name for field in FIELDS]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_every_field_says_what_it_is(field):
    assert field.stage in STAGES and field.direction in (-1, 0, 1)
    assert field.label and field.unit and field.meaning
    assert LABELS[field.name] == field.label
    assert DIRECTIONS.get(field.name, 0) == field.direction
