"""The tables of stages are complete and say nothing twice."""

import pytest

from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.stage import Field, Fitted, Stage, StageResult, Subject, stages_for
from jaxtroj.evidence.stages import IMAGE_STAGES, IMAGES, TABLES, TEXT_STAGES, TEXTS

each_table = pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.kind)
FIELDS = [field for table in TABLES.values() for field in table.fields]
LARGE = ("weights", "probes", "sensitivity", "inversion")
MIDDLE = ("weights", "all_to_all", *LARGE[1:])
SMALL = ("weights", "all_to_all", "fixed", "whole", "agreement", "pairs")
BANKED = Subject(has_bank=True, clean_heads=24)
COMPARED = tuple(name for name in TEXTS.names if name not in ("weights", "shift"))
BESIDE = ("sensitivity", "slopes", "directions", "beside")
SHOWING = ("departure", "bank")
WITHOUT_HEADS = tuple(
    name for name in TEXTS.names if name not in ("directions", "beside", "against")
)


def names(stages) -> tuple[str, ...]:
    return tuple(stage.name for stage in stages)


@each_table
def test_names_are_unique_and_plain(table):
    found = [field.name for field in table.fields]
    assert len(set(found)) == len(found) and len(set(table.names)) == len(table.names)
    assert all(name.isidentifier() and name == name.lower() for name in (*found, *table.names))


@each_table
def test_stages_part_the_fields_in_their_order(table):
    assert tuple(table.stage_fields) == table.names and all(table.stage_fields.values())
    joined = [name for stage in table.names for name in table.stage_fields[stage]]
    assert joined == [field.name for field in table.fields]


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: f"{field.stage}-{field.name}")
def test_every_field_says_what_it_is(field):
    table = next(table for table in TABLES.values() if field in table.fields)
    assert field.stage in table.names and field.direction in (-1, 0, 1)
    assert field.label and field.unit and field.meaning and field.source
    assert table.labels[field.name] == field.label
    assert table.directions.get(field.name, 0) == field.direction


def test_a_stage_declares_fields_of_its_own():
    field = Field("a", "another", 0, "b", "c", "d")
    for fields in ((), (field,)):
        with pytest.raises(EvidenceError, match="expected fields of its own"):
            Stage("mine", fields, lambda context: StageResult({}))


@pytest.mark.parametrize(
    ("stages", "subject", "named", "fitted", "expected"),
    [
        (IMAGE_STAGES, Subject(32), None, (), SMALL),
        (IMAGE_STAGES, Subject(33), None, (), (*MIDDLE, "whole", "pairs")),
        (IMAGE_STAGES, Subject(16), None, LARGE, LARGE),
        (IMAGE_STAGES, Subject(32), None, ("fixed",), ("fixed",)),
        (IMAGE_STAGES, Subject(224), None, ("strange",), (*LARGE, "whole")),
        (IMAGE_STAGES, Subject(384), None, ("strange",), LARGE),
        (IMAGE_STAGES, Subject(16), ("probes", "fixed"), LARGE, ("probes", "fixed")),
        (TEXT_STAGES, Subject(), None, TEXTS.names, TEXTS.names[:3]),
        (TEXT_STAGES, BANKED, None, TEXTS.names, TEXTS.names),
        (TEXT_STAGES, Subject(has_bank=True), None, TEXTS.names, WITHOUT_HEADS),
        (TEXT_STAGES, BANKED, ("against",), (), COMPARED),
        (TEXT_STAGES, Subject(), ("shift", "bank"), (), ("shift",)),
        (TEXT_STAGES, BANKED, ("beside",), (), BESIDE),
        (TEXT_STAGES, BANKED, None, ("beside",), (*BESIDE, *SHOWING)),
        (TEXT_STAGES, BANKED, None, ("weights", "shift"), ("weights", "shift")),
    ],
)
def test_stages_follow_what_they_need(stages, subject, named, fitted, expected):
    assert names(stages_for(stages, subject, named, Fitted(fitted))) == expected


@pytest.mark.parametrize(
    ("subject", "expected"), [(BANKED, (*BESIDE, *SHOWING)), (Subject(), TEXTS.names[:3])]
)
def test_a_head_without_clean_ones_to_compare_with_is_answered_too(subject, expected):
    fitted = Fitted(("beside",), needs_all=False)
    assert names(stages_for(TEXT_STAGES, subject, None, fitted)) == expected


def test_a_calibrator_that_takes_what_there_is_gets_the_usual_stages():
    fitted = Fitted(IMAGES.names, needs_all=False)
    assert names(stages_for(IMAGE_STAGES, Subject(32), None, fitted)) == SMALL
    some = Fitted(("weights", "fixed", "probes"), needs_all=False)
    assert names(stages_for(IMAGE_STAGES, Subject(32), None, some)) == ("weights", "fixed")
    signed = Fitted(("weights", "fixed"), needs_all=False, signs=("all_to_all",))
    every = ("weights", "all_to_all", "fixed")
    assert names(stages_for(IMAGE_STAGES, Subject(32), None, signed)) == every
    assert names(stages_for(IMAGE_STAGES, Subject(224), None, signed))[:2] == ("weights", "probes")


def test_no_stage_left_is_said_in_words():
    with pytest.raises(EvidenceError, match="left of bank for this model.*jaxtroj bank"):
        stages_for(TEXT_STAGES, Subject(), ("bank",))


@pytest.mark.parametrize(
    ("choice", "holds"),
    [(("weights",), (True, True)), (LARGE, (True, False)), (("shift", "bank"), (False, True)),
     (("probes", "weights"), (False, False)), ((), (False, False)), (("odd",), (False, False))],
)  # fmt: skip
def test_a_choice_is_a_part_of_a_table_in_its_order(choice, holds):
    assert (IMAGES.holds(choice), TEXTS.holds(choice)) == holds
