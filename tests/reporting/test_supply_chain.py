"""CycloneDX by the official schema, and in-toto statements."""

import json
from dataclasses import replace

import jsonschema
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from jaxtroj.record import Record
from jaxtroj.reporting import cyclonedx, intoto
from jaxtroj.reporting.content import read_content
from jaxtroj.store import RunStore
from tests.reporting.conftest import DOUBTS

# What https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md demands.
STATEMENT = {
    "type": "object",
    "additionalProperties": False,
    "required": ["_type", "subject", "predicateType", "predicate"],
    "properties": {
        "_type": {"const": "https://in-toto.io/Statement/v1"},
        "subject": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["digest"],
                "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "digest": {
                        "type": "object",
                        "minProperties": 1,
                        "properties": {"sha256": {"pattern": "^[0-9a-f]{64}$"}},
                    },
                },
            },
        },
        "predicateType": {"type": "string", "pattern": "^[a-z][a-z0-9+.-]*:"},
        "predicate": {"type": "object"},
    },
}


def check_bill(text: str) -> dict:
    """The bill, which the official library's strict schema takes."""
    fault = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert fault is None, fault
    return json.loads(text, parse_constant=pytest.fail)


def values(item: dict, name: str) -> list[str]:
    return [p["value"] for p in item["properties"] if p["name"] == f"jaxtroj:{name}"]


@pytest.mark.parametrize("run", ["run_and_truth", "hostile"])
def test_the_bill_is_cyclonedx(run, request):
    content = read_content(*request.getfixturevalue(run))
    found = check_bill(cyclonedx.render(content))
    assert found["specVersion"] == "1.6" and len(found["components"]) == 24
    assert {one["type"] for one in found["components"]} == {"machine-learning-model"}
    for record, one in zip(content.records, found["components"], strict=True):
        assert values(one, "probability") == [str(record.probability)]
        assert values(one, "finding") == list(record.findings)
        assert one["name"] == record.model and "modelCard" in one
        assert [h["content"] for h in one.get("hashes", ())] == [record.sha256] * bool(
            record.sha256
        )
    affected = {one["affects"][0]["ref"] for one in found["vulnerabilities"]}
    assert len(found["vulnerabilities"]) == 12  # 8 poisoned, 4 refused
    assert affected < {one["bom-ref"] for one in found["components"]}
    assert cyclonedx.render(content) == cyclonedx.render(content)


def test_doubts_are_the_first_limits_in_the_bill(flagged):
    first, second, plain = check_bill(cyclonedx.render(read_content(flagged)))["components"]
    limits = [
        one["modelCard"]["considerations"]["technicalLimitations"] for one in (first, second, plain)
    ]
    caveat = "the calibrator has met no densenet"
    assert limits == [[*DOUBTS, caveat], [DOUBTS[0], caveat], [caveat]]


def test_other_answers_have_another_serial_number(run_and_truth):
    content = read_content(run_and_truth[0])
    fewer = replace(content, records=content.records[1:])
    assert cyclonedx.bill(content)["serialNumber"] != cyclonedx.bill(fewer)["serialNumber"]


def test_the_bill_names_the_calibrator(tmp_path):
    digest = "ab" * 32
    with RunStore(tmp_path / "run", {"calibrator": digest}) as store:
        answered = "general.json (abababababab), as nothing says otherwise"
        store.append(
            Record("id-1", "cd" * 32, 0.2, False, None, (), "ok", "", calibrator=answered,
                   searched=("patch",), found={"patch": 0.9}, caveats=("another size",))
        )  # fmt: skip
    found = check_bill(cyclonedx.render(read_content(tmp_path / "run")))
    assert values(found["metadata"], "setting:calibrator") == [digest]
    (one,) = found["components"]
    assert values(one, "calibrator") == [answered] and values(one, "searched") == ["patch"]
    limits = one["modelCard"]["considerations"]["technicalLimitations"]
    assert limits == ["another size", "such a scan finds 90% of triggers of kind patch"]


@pytest.mark.parametrize("run", ["run_and_truth", "hostile"])
def test_a_statement_for_every_digest(run, request):
    content = read_content(*request.getfixturevalue(run))
    lines = intoto.render(content).splitlines()
    digests = [record.sha256 for record in content.records if record.sha256]
    assert len(lines) == len(digests) == 20
    for line, digest in zip(lines, digests, strict=True):
        statement = json.loads(line, parse_constant=pytest.fail)
        jsonschema.Draft202012Validator(STATEMENT).validate(statement)
        assert statement["subject"][0]["digest"] == {"sha256": digest}
        predicate = statement["predicate"]
        assert predicate["verdict"] in ("poisoned", "clean", "failed")
        assert 0 < predicate["probability"] < 1 and predicate["scanner"]["name"] == "jaxtroj"
        assert not {"seconds", "trigger", "sha256"} & predicate.keys()


def test_a_model_without_a_digest_has_no_statement(tmp_path):
    with RunStore(tmp_path / "run", {}) as store:
        store.append(Record("id-1", "", 0.5, False, None, (), "failed", "absent"))
    content = read_content(tmp_path / "run")
    assert intoto.render(content) == "" and intoto.unnamed(content) == 1
