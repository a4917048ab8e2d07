"""Records as they are read: what no scan writes is refused, by name and line."""

import json

import pytest

from jaxtroj.errors import StoreError
from jaxtroj.evidence.stages import TABLES
from jaxtroj.record import parse_record
from jaxtroj.record_values import KINDS
from jaxtroj.store import RunStore, iter_records, read_records
from tests.stored import SETTINGS, fill, record


def test_records_of_another_schema_are_refused():
    line = json.loads(record("a").to_json())
    with pytest.raises(StoreError, match="schema 99"):
        parse_record(json.dumps({**line, "schema": 99}))
    with pytest.raises(StoreError, match="fields differ.*extra"):
        parse_record(json.dumps({**line, "extra": 1}))
    with pytest.raises(StoreError, match="fields differ"):
        parse_record("[1]")


ODD = [
    ("probability", 2.0, "probability is 2.0, expected a number in"),
    ("probability", -1, "probability is -1, expected"),
    ("probability", "0.5", "probability is '0.5', expected"),
    ("probability", True, "probability is True, expected"),
    ("probability", 10**400, "probability is an integer of more than 20 digits, expected"),
    ("model", ["a"], "model is a list, expected a text"),
    ("model", "\ud800", r"model is '\\ud800', expected a text"),
    ("identity", None, "identity is None, expected a text"),
    ("reason", "a\ud800", r"reason is 'a\\ud800', expected a text"),
    ("architecture", "\udcff", r"architecture is '\\udcff', expected a text or null"),
    ("findings", ["a", "\ude00\ud83d"], r"findings\[1\] is '\\ude00\\ud83d', expected a text"),
    ("evidence", {"a": 1, "\ud800": 1}, r"a name in evidence is '\\ud800', expected a text"),
    ("seconds", {"\udfff": 1}, r"a name in seconds is '\\udfff', expected a text"),
    ("found", {"\ud83d": 0.5}, r"a name in found is '\\ud83d', expected a text"),
    ("recovered", {"text": "\ud800"}, r"recovered of 'text' is '\\ud800', expected a text"),
    ("recovered", {"a": [{"b": ["\ud800"]}]}, "recovered is a dict, expected no half of a surr"),
    ("recovered", {"a": [{"\ud800": 1}]}, "recovered is a dict, expected no half of a surrogate"),
    ("input_form", {"\ud800": 1}, "input_form is a dict, expected no half of a surrogate pair"),
    ("calibrator", 1, "calibrator is 1, expected a text"),
    ("status", {}, "status is a dict, expected one of ok, failed, skipped"),
    ("poisoned", 1, "poisoned is 1, expected true or false"),
    ("kind", ["image"], "kind is a list, expected one of image, text, text-classifier"),
    ("target_class", True, "target_class is True, expected null or a class"),
    ("target_class", 10**400, "target_class is an integer of more than 20 digits"),
    ("source_classes", 5, "source_classes is 5, expected a list"),
    ("source_classes", [0, -1], r"source_classes\[1\] is -1, expected a class"),
    ("searched", None, "searched is None, expected a list"),
    ("caveats", [1], r"caveats\[0\] is 1, expected a text"),
    ("findings", "one", "findings is 'one', expected a list"),
    ("seconds", "0.5", "seconds is '0.5', expected an object"),
    ("seconds", {"read": "0.5"}, "seconds of 'read' is '0.5', expected a number"),
    ("seconds", {"a": 1.7e308, "b": 1.7e308}, "seconds of 'a' is 1.7e\\+308, expected a number"),
    ("evidence", [1.0], "evidence is a list, expected an object"),
    ("evidence", {"asr": True}, "evidence of 'asr' is True, expected a finite number"),
    ("evidence", {"asr": 10**400}, "evidence of 'asr' is an integer of more than 20 digits"),
    ("found", None, "found is None, expected an object"),
    ("found", {"patch": 1.5}, r"found of 'patch' is 1.5, expected a number in \[0, 1\]"),
    ("input_form", {"accuracy": "0.9"}, "input_form of 'accuracy' is '0.9', expected a number"),
    ("input_form", {"basis": "examples"}, "input_form is a dict, expected the name of a form"),
    ("recovered", {"score": "0.9"}, "recovered of 'score' is '0.9', expected a finite number"),
    ("recovered", {"a": [[[[[[[[1]]]]]]]]}, "recovered is a dict, expected finite numbers in it"),
    ("recovered", {"method": "words", "text": "so"}, "recovered is a dict, expected the attack_"),
]


@pytest.mark.parametrize(
    ("field", "value", "expected"), ODD, ids=[f"{i}-{field}" for i, (field, *_) in enumerate(ODD)]
)
def test_records_that_no_scan_writes_are_refused_with_what_was_got(
    tmp_path, field, value, expected
):
    values = json.loads(record("a").to_json()) | {field: value}
    refused_where_it_stands(tmp_path, json.dumps(values), f"not a record: {expected}")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (('"mask_l1": 3.0', '"mask_l1": NaN'), "not a JSON record: holds NaN"),
        (('"mask_l1": 3.0', '"mask_l1": -Infinity'), "not a JSON record: holds -Infinity"),
        (('"mask_l1": 3.0', '"mask_l1": 1e999'), "not a record: evidence of 'mask_l1' is inf"),
        (('"recovered": {}', '"recovered": {"a": [1e999]}'), "not a record: recovered is a dict"),
        (('"mask_l1": 3.0', '"a": 1.0, "a": 1.0'), "not a JSON record: the name 'a' stands twice"),
        (("}", '}, "model": "b"'), "not a JSON record: the name 'model' stands twice"),
    ],
    ids=["nan", "infinity", "beyond floats", "infinite fact", "evidence twice", "model twice"],
)
def test_lines_that_can_be_read_in_two_ways_are_refused(tmp_path, written, expected):
    line = record("a").to_json()
    odd = line.replace(written[0], written[1], 1)
    assert odd != line
    refused_where_it_stands(tmp_path, odd, expected)


def refused_where_it_stands(folder, odd: str, expected: str) -> None:
    """Every reader names file, line and fault, and leaves the file as it is."""
    whole = fill(folder, "a", "b")
    content = odd.encode() + b"\n" + whole.splitlines(keepends=True)[1]
    (folder / "records.jsonl").write_bytes(content)
    for read in (
        read_records,
        lambda run: list(iter_records(run)),
        lambda run: RunStore(run, SETTINGS),
    ):
        with pytest.raises(StoreError, match=f"line 1: {expected}.*Remove that line"):
            read(folder)
    assert (folder / "records.jsonl").read_bytes() == content


def test_kinds_of_records_are_those_of_the_tables_of_evidence():
    assert set(KINDS) == set(TABLES)


@pytest.mark.parametrize("probability", [0, 1, 0.0, 1.0])
def test_certain_probabilities_are_read(probability):
    assert parse_record(record("a", probability=probability).to_json()).probability == probability
