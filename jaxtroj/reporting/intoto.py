"""In-toto statements: what a scan says of a model, bound to the digest of its file.

Format: https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md. One statement a line,
one for each model with a digest, unsigned: signing is for a tool that holds a key, such as cosign.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from jaxtroj import __version__
from jaxtroj.record import Record
from jaxtroj.record_text import json_line
from jaxtroj.reporting.content import Content, started

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "urn:jaxtroj:verdict:v1"
"""Type of the predicate: the object of `scan --json` without model and digest, which the subject
has, and with `verdict`, `identity`, `scanner` and `run`."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_SUBJECT = ("model", "sha256")  # said by the subject
_OF_THE_MACHINE = ("trigger", "seconds")  # paths and times of where it was scanned


def render(content: Content) -> str:
    """The statements, one a line; empty where no model has a digest."""
    return "".join(json.dumps(one, allow_nan=False) + "\n" for one in statements(content))


def statements(content: Content) -> Iterator[dict[str, Any]]:
    """The statement of each model whose file could be read."""
    for record in content.records:
        digest = record.sha256.lower()
        if _SHA256.fullmatch(digest):
            yield {
                "_type": STATEMENT,
                "subject": [{"name": record.model, "digest": {"sha256": digest}}],
                "predicateType": PREDICATE,
                "predicate": _predicate(content, record),
            }


def unnamed(content: Content) -> int:
    """How many models have no statement, because their file could not be read."""
    return len(content.records) - sum(1 for _ in statements(content))


def _predicate(content: Content, record: Record) -> dict[str, Any]:
    values = json.loads(json_line(record, content.accepted))
    for name in (*_SUBJECT, *_OF_THE_MACHINE):
        del values[name]
    return {
        "scanner": {"name": "jaxtroj", "version": __version__},
        "run": {"started": started(content) or None, "settings": dict(content.settings)},
        "verdict": content.word(record),
        "identity": record.identity,
        **values,
    }
