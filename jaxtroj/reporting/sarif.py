"""SARIF 2.1.0, so that code-scanning tools show poisoned models, refused files and doubts.

Format: https://docs.oasis-open.org/sarif/sarif/v2.1.0/. One run, one result for each model that is
called poisoned, was refused, failed or was skipped, and one for each finding: those that put the
answer in doubt are warnings, all others are information and no matter of security. A model that is
called clean stands among the artifacts with its digest.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from converters.errors import NOTHING_EXECUTED
from jaxtroj import __version__
from jaxtroj.flags import in_doubt
from jaxtroj.record import Record
from jaxtroj.record_text import text_line
from jaxtroj.reporting.content import Content, is_below, started

SCHEMA_URI = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
DATASET = "DATASET"
CHECKOUT = "%SRCROOT%"
"""What addresses are relative to; code-scanning tools know the second as the repository."""
_BASES = {
    DATASET: "The folder that the models were scanned from.",
    CHECKOUT: "The folder that the report was made in, such as a checkout of the repository.",
}


@dataclass(frozen=True)
class SarifRule:
    """One kind of finding; `level` is SARIF's, `severity` GitHub's scale of 0 to 10 or ""."""

    id: str
    name: str
    level: str
    severity: str
    text: str
    help: str


POISONED = SarifRule(
    "JXT001",
    "PoisonedModel",
    "error",
    "9.0",
    "The model answers a trigger: it is probably poisoned.",
    "Do not deploy the model. Look at the recovered trigger in the HTML report, and compare with"
    " a model from a source you trust.",
)
REFUSED = SarifRule(
    "JXT002",
    "UnsafeModelFile",
    "error",
    "9.0",
    "The model file asks for more than tensors and layers; it was refused, and nothing ran.",
    "Do not load the file with pickle or torch.load. Ask for weights as safetensors.",
)
FAILED = SarifRule(
    "JXT003",
    "ModelNotScanned",
    "warning",
    "4.0",
    "The model could not be scanned; nothing is known about it.",
    "The message says what was expected. The probability of such a model is the base rate.",
)
SKIPPED = SarifRule(
    "JXT004",
    "ModelSkipped",
    "note",
    "1.0",
    "The model was left out on purpose.",
    "The message says why.",
)
NOTICED = SarifRule(
    "JXT005",
    "FileFinding",
    "none",
    "",
    "Something was noticed in reading the model, such as how its layers were taken.",
    "Nothing is to be done. Names before a colon are explained in docs/flags.md.",
)
IN_DOUBT = SarifRule(
    "JXT006",
    "AnswerInDoubt",
    "warning",
    "4.0",
    "The answer for the model may be wrong: its examples or the network itself give cause to doubt"
    " it.",
    "Names before a colon are explained in docs/flags.md, with what to do.",
)
RULES = (POISONED, REFUSED, FAILED, SKIPPED, NOTICED, IN_DOUBT)


def rule_of(record: Record) -> SarifRule | None:
    """What kind of finding a record is; None for a model that is not called poisoned."""
    if record.status == "skipped":
        return SKIPPED
    if record.status == "failed":
        return REFUSED if NOTHING_EXECUTED in record.reason else FAILED
    return POISONED if record.poisoned else None


def render(content: Content) -> str:
    """The SARIF log as text."""
    return json.dumps(sarif_log(content), indent=1, allow_nan=False) + "\n"


def sarif_log(content: Content) -> dict[str, Any]:
    """The SARIF log as JSON values."""
    results = [
        result
        for place, record in enumerate(content.records)
        for result in _results(content, place, record)
    ]
    base = _base(content)
    run = {
        "tool": {"driver": _driver()},
        "automationDetails": {"id": f"jaxtroj/{_uri(content.name)}/"},
        "originalUriBaseIds": {base: {"description": {"text": _BASES[base]}}},
        "invocations": [_invocation(content)],
        "artifacts": [_artifact(content, record) for record in content.records],
        "results": results,
        "columnKind": "unicodeCodePoints",
    }
    return {"$schema": SCHEMA_URI, "version": "2.1.0", "runs": [run]}


def _driver() -> dict[str, Any]:
    return {
        "name": "jaxtroj",
        "version": __version__,
        "semanticVersion": __version__,
        "shortDescription": {"text": "Scanner for poisoned neural networks."},
        "rules": [_described(rule) for rule in RULES],
    }


def _described(rule: SarifRule) -> dict[str, Any]:
    security = {"security-severity": rule.severity, "tags": ["security"]}
    return {
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.text},
        "fullDescription": {"text": rule.text},
        "help": {"text": rule.help},
        "defaultConfiguration": {"level": rule.level},
        **({"properties": security} if rule.severity else {}),
    }


def _invocation(content: Content) -> dict[str, Any]:
    time = started(content)
    return {
        "executionSuccessful": True,
        **({"startTimeUtc": time} if time else {}),
        "toolExecutionNotifications": [
            {"level": "warning", "message": {"text": _plain(problem)}}
            for problem in content.problems
        ],
        "properties": {"settings": dict(content.settings)},
    }


def _artifact(content: Content, record: Record) -> dict[str, Any]:
    hashes = {"hashes": {"sha-256": record.sha256}} if record.sha256 else {}
    return {"location": _location(content, record), "roles": ["analysisTarget"], **hashes}


def _location(content: Content, record: Record) -> dict[str, str]:
    """Where the model lies below the checkout or the dataset; its name where that is not known."""
    entry, root = content.entries.get(record.model), content.checkout or content.dataset
    path: str | Path = record.model
    if entry is not None and root is not None and is_below(entry.model_path, root):
        path = Path(os.path.relpath(entry.model_path, root))
    return {"uri": _uri(path), "uriBaseId": _base(content)}


def _base(content: Content) -> str:
    return DATASET if content.checkout is None else CHECKOUT


def _uri(path: str | Path) -> str:
    """A relative reference that cannot be taken for a scheme, a host or a way up.

    >>> _uri("models/id-1/model.pt"), _uri("javascript:x"), _uri("../a")
    ('models/id-1/model.pt', 'javascript%3Ax', '%2E%2E/a')
    """
    text = path.as_posix() if isinstance(path, Path) else path
    parts = text.encode(
        "utf-8", "surrogateescape" if isinstance(path, Path) else "backslashreplace"
    )
    names = [quote(part, safe="") for part in parts.split(b"/") if part]
    return "/".join("%2E" * len(name) if name in (".", "..") else name for name in names) or "-"


def _results(content: Content, place: int, record: Record) -> Iterator[dict[str, Any]]:
    """What a record has to say: its verdict, if that is a result, then each finding."""
    locations = _locations(content, place, record)
    rule, name = rule_of(record), record.identity or record.model
    if rule is not None:
        yield {
            **_result(rule, _message(content, record), locations, name),
            **_suppressions(content, record),
            **({"rank": round(100 * record.probability, 2)} if rule is POISONED else {}),
            "properties": {
                "probability": record.probability,
                "architecture": record.architecture,
                "evidence": dict(record.evidence),
                "recovered": dict(record.recovered),
            },
        }
    doubts = in_doubt(record.findings)
    for number, finding in enumerate(record.findings):
        text = _plain(f"{record.model}: {finding}")
        kind = IN_DOUBT if finding in doubts else NOTICED
        yield _result(kind, text, locations, f"{name}/{number}")


def _suppressions(content: Content, record: Record) -> dict[str, Any]:
    """What makes a code-scanning tool show a result as accepted instead of open."""
    entry = content.accepted.of(record)
    if entry is None:
        return {}
    said = {"kind": "external", "status": "accepted", "justification": str(entry)}
    return {"suppressions": [said]}


def _result(
    rule: SarifRule, message: str, locations: list[Any], fingerprint: str
) -> dict[str, Any]:
    return {
        "ruleId": rule.id,
        "ruleIndex": RULES.index(rule),
        "level": rule.level,
        **({"kind": "informational"} if rule is NOTICED else {}),  # its level is "none" then
        "message": {"text": message},
        "locations": locations,
        "partialFingerprints": {"jaxtroj/v1": fingerprint},
    }


def _locations(content: Content, place: int, record: Record) -> list[Any]:
    location = {**_location(content, record), "index": place}
    return [
        {
            "physicalLocation": {
                "artifactLocation": location,
                "region": {"startLine": 1},  # GitHub shows no result without one
            },
            "logicalLocations": [{"fullyQualifiedName": record.model, "kind": "module"}],
        }
    ]


def _message(content: Content, record: Record) -> str:
    """The record in words."""
    text = text_line(record, content.accepted)
    if record.status == "ok" and record.reason:
        text += f"  {record.reason}"
    return _plain(text)


def _plain(text: str) -> str:
    """Text as a message: braces and brackets would be placeholders and links there."""
    for sign in "\\[]":
        text = text.replace(sign, "\\" + sign)
    return text.replace("{", "{{").replace("}", "}}")
