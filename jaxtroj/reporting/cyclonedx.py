"""A machine-learning bill of materials: CycloneDX 1.6, a component for each model of a run.

Format: https://cyclonedx.org/docs/1.6/json/. A component has digest, verdict and findings as
properties, and a model card with what the verdict rests on and what was searched for. A model that
is called poisoned, or whose file was refused, is a vulnerability of its component, so that tools
which follow those show it; an accepted one carries who answers for it.
"""

import json
import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

from jaxtroj import __version__
from jaxtroj.flags import in_doubt
from jaxtroj.record import Record
from jaxtroj.reporting.content import Content, architecture, started
from jaxtroj.reporting.sarif import POISONED, REFUSED, SarifRule, rule_of

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:jaxtroj:cyclonedx")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_TROJAN = 507  # of the Common Weakness Enumeration: Trojan Horse
_MALICIOUS = 506  # Embedded Malicious Code
_CWES = {POISONED.id: _TROJAN, REFUSED.id: _MALICIOUS}
_TASKS = {"image": "image-classification", "text": "text-classification"}
_TASKS |= {"text-classifier": "text-classification"}


def render(content: Content) -> str:
    """The bill of materials as text; equal content gives equal text."""
    return json.dumps(bill(content), indent=1, allow_nan=False) + "\n"


def bill(content: Content) -> dict[str, Any]:
    """The bill of materials as JSON values."""
    time = started(content)
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{_serial(content)}",
        "version": 1,
        "metadata": {
            **({"timestamp": time} if time else {}),
            "tools": {
                "components": [{"type": "application", "name": "jaxtroj", "version": __version__}]
            },
            "properties": _properties(_about_run(content)),
        },
        "components": [_component(content, record) for record in content.records],
        "vulnerabilities": list(_vulnerabilities(content)),
    }


def _serial(content: Content) -> uuid.UUID:
    lines = [record.to_json() for record in content.records]
    lines += [str(content.accepted.of(record)) for record in content.records]
    return uuid.uuid5(_NAMESPACE, "\n".join([content.name, *lines]))


def _about_run(content: Content) -> Iterator[tuple[str, Any]]:
    yield "run", content.name
    for name, value in content.settings.items():  # calibrators are digests there
        yield f"setting:{name}", value if isinstance(value, str) else json.dumps(value)
    for problem in content.problems:
        yield "problem", problem


def _component(content: Content, record: Record) -> dict[str, Any]:
    digest = record.sha256.lower()
    is_digest = _SHA256.fullmatch(digest) is not None
    return {
        "type": "machine-learning-model",
        "bom-ref": _reference(record),
        "name": record.model,
        **({"hashes": [{"alg": "SHA-256", "content": digest}]} if is_digest else {}),
        "modelCard": _card(content, record),
        "properties": _properties(_about_model(content, record)),
    }


def _reference(record: Record) -> str:
    return f"model/{record.model}"


def _about_model(content: Content, record: Record) -> Iterator[tuple[str, Any]]:
    """Name and value of every property; names may come more than once."""
    yield "verdict", content.word(record)
    yield "status", record.status
    yield "probability", record.probability
    yield "calibrator", record.calibrator
    yield "reason", record.reason
    yield "identity", record.identity
    yield "target_class", record.target_class
    yield "source_classes", " ".join(map(str, record.source_classes))
    for kind in record.searched:
        yield "searched", kind
    for name, value in sorted(record.recovered.items()):
        if name == "flips":  # a matrix is no property
            continue
        yield f"trigger:{name}", value if isinstance(value, str) else json.dumps(value)
    for finding in record.findings:
        yield "finding", finding
    if entry := content.accepted.of(record):
        for name, value in entry.as_json().items():
            yield f"accepted:{name}", value


def _properties(pairs: Iterable[tuple[str, Any]]) -> list[dict[str, str]]:
    return [
        {"name": f"jaxtroj:{name}", "value": str(value)}
        for name, value in pairs
        if value is not None and value != ""
    ]


def _card(content: Content, record: Record) -> dict[str, Any]:
    """Of the network what a scan knows of it, and how far the verdict can be trusted."""
    name = architecture(content, record)
    parameters = {"task": _TASKS[record.kind], **({"modelArchitecture": name} if name else {})}
    metrics = [{"type": "probability of being poisoned", "value": str(record.probability)}]
    if isinstance(record.recovered.get("score"), (int, float)):
        score = str(record.recovered["score"])
        metrics.append({"type": "success of the recovered trigger, held out", "value": score})
    return {
        "modelParameters": parameters,
        "quantitativeAnalysis": {"performanceMetrics": metrics},
        "considerations": {"technicalLimitations": _limits(record)},
    }


def _limits(record: Record) -> list[str]:
    """Doubts about the answer first, as a reader may look at no more."""
    shares = [
        f"such a scan finds {share:.0%} of triggers of kind {kind}"
        for kind, share in sorted(record.found.items())
    ]
    return [*in_doubt(record.findings), *record.caveats, *shares]


def _vulnerabilities(content: Content) -> Iterator[dict[str, Any]]:
    for record in content.records:
        rule = rule_of(record)
        if rule in (POISONED, REFUSED):
            yield _vulnerability(content, record, rule)


def _vulnerability(content: Content, record: Record, rule: SarifRule) -> dict[str, Any]:
    entry = content.accepted.of(record)
    analysis = {"state": "in_triage"}
    if entry is not None:
        analysis = {"state": "exploitable", "response": ["will_not_fix"], "detail": str(entry)}
    return {
        "bom-ref": f"{rule.id}/{record.model}",
        "id": rule.id,
        "source": {"name": "jaxtroj"},
        "ratings": [{"source": {"name": "jaxtroj"}, "severity": "critical", "method": "other"}],
        "cwes": [_CWES[rule.id]],
        "description": rule.text,
        "detail": record.reason,
        "recommendation": rule.help,
        "analysis": analysis,
        "affects": [{"ref": _reference(record)}],
    }
