"""One model's answer as one JSON object, and the identity that says when it still holds."""

import errno
import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from converters.errors import safe_repr
from converters.files import strict_json
from jaxtroj.errors import StoreError
from jaxtroj.record_values import odd_value

SCHEMA_VERSION = 7
"""Raised whenever a record gains, loses or redefines a field, or `identity` changes."""

EVIDENCE_ONLY = "evidence only"
"""The reason of records that were not calibrated: their probability says nothing."""

# The whole sentence, or with what the calibrator lacks; a long reason is cut after a sentence.
_NO_VERDICT = re.compile(rf"{EVIDENCE_ONLY}(?:, the probability is the base rate.*)?…?")


@dataclass(frozen=True)
class Record:
    """The answer for one model.

    A failed or skipped model has a record too: `reason` says why, and `probability` is the base
    rate, because one confident wrong answer costs 27.6 nats.
    """

    model: str
    """Name of the model in its dataset: printable, unique there (such as `id-00000012`)."""
    sha256: str
    """Hex digest of the model file; empty if it could not be read."""
    probability: float
    """P(poisoned), in (0, 1)."""
    poisoned: bool
    """`probability` exceeds the threshold of the settings, and the scan did not fail."""
    target_class: int | None
    """The class that the trigger forces; None if none was found or the model is called clean."""
    source_classes: tuple[int, ...]
    """The classes that the trigger works from."""
    status: str
    """`ok`, `failed` or `skipped`."""
    reason: str
    """One line: why the scan failed or skipped, or what the verdict rests on."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Wall time by step, in seconds."""
    evidence: Mapping[str, float] = field(default_factory=dict)
    """Named finite floats; see `jaxtroj.evidence`."""
    architecture: str | None = None
    """Such as `resnet50`; None if the model could not be converted."""
    trigger: str | None = None
    """Path of the picture of the recovered trigger."""
    recovered: Mapping[str, Any] = field(default_factory=dict)
    """What was recovered of the trigger: `method`, `score`, and `text` for a text model; for one of
    images `kind`, and of kinds with a mask `mask_l1`, `row` and `column` in pixels; of one that is
    shown `flips`, what it does to each class (`jaxtroj.triggers.flips`); empty if nothing was. For
    a text model called poisoned also what the text does on held-out examples
    (`jaxtroj.evidence.texts.recovery`), or in `words` why nobody knows."""
    kind: str = "image"
    """What the network takes: `image`, `text` for heads on sentence embeddings, `text-classifier`
    for whole classifiers of texts; of a model that could not be read, what its folder looks
    like."""
    input_form: Mapping[str, Any] = field(default_factory=dict)
    """How pixels became the network's input: `name` in words, `channel_order`, `normalization`,
    `bounds`, `mean`, `std`; `basis`, one of `settings`, `round`, `folder`, `examples` and
    `assumed`; where examples were asked `accuracy` on how many `examples`, the `next` best form,
    `next_accuracy`. Empty for text models, and where it was not settled."""
    searched: tuple[str, ...] = ()
    """Kinds of trigger that the evidence searched for, such as `patch`. A trigger of another kind
    can have been missed."""
    calibrator: str = ""
    """File and digest of the calibrator that answered, and why that one; empty for none."""
    found: Mapping[str, float] = field(default_factory=dict)
    """Kind of trigger in that calibrator's population -> share found out of fold, 0 to 1: how much
    a clean answer is worth against it. Empty where nobody counted."""
    caveats: tuple[str, ...] = ()
    """What of this network that calibrator has not met."""
    findings: tuple[str, ...] = ()
    """What reading and converting the file noticed, one line each, the flags first."""
    identity: str = ""
    """See `identity`; empty for skipped models."""
    schema: int = SCHEMA_VERSION

    @property
    def whole_evidence(self) -> Mapping[str, float]:
        """What calibrators are fitted on and asked about: none where the scan failed half-way."""
        return self.evidence if self.status == "ok" else {}

    def to_json(self) -> str:
        """The record as one line of strict JSON: ASCII, no NaN, no newline inside."""
        return json.dumps(asdict(self), allow_nan=False, ensure_ascii=True)


_NAMES = frozenset(field.name for field in fields(Record))
_LISTS = ("source_classes", "searched", "caveats", "findings")


def parse_record(line: str | bytes) -> Record:
    """Read back `Record.to_json`.

    Raises:
        StoreError: the line is not a record of this schema version, or says what no scan would.
    """
    try:
        values = strict_json(line)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"not a JSON record: {error}") from error
    if not isinstance(values, dict) or "schema" not in values:
        raise StoreError(f"not a record: its fields differ from those of schema {SCHEMA_VERSION}")
    if values["schema"] != SCHEMA_VERSION:
        raise StoreError(
            f"record of schema {safe_repr(values['schema'])}, expected {SCHEMA_VERSION}: it was"
            " written by another version of jaxtroj"
        )
    if values.keys() != _NAMES:
        odd = sorted(_NAMES ^ values.keys())
        raise StoreError(f"not a record of schema {SCHEMA_VERSION}: fields differ ({odd})")
    if odd := odd_value(values):
        raise StoreError(f"not a record: {odd}")
    return Record(**{**values, **{name: tuple(values[name]) for name in _LISTS}})


def finite(values: Mapping[str, Any]) -> dict[str, float]:
    """`values` as plain floats, the non-finite ones left out.

    >>> finite({"asr": 1, "mask_l1": float("nan")})
    {'asr': 1.0}
    """
    floats = {name: float(value) for name, value in values.items()}
    return {name: value for name, value in floats.items() if math.isfinite(value)}


def printable(name: str) -> str:
    r"""A file name as text that any terminal and any JSON reader takes, on one line.

    Different names stay different: a backslash is doubled, and of the escapes from `\x80` to
    `\xff` each stands for a byte that is no UTF-8, never for a character. The bytes of a name are
    read as UTF-8 whatever the locale: a model has one name in all sessions.

    >>> printable("id-00000001")
    'id-00000001'
    >>> print(printable("a\nb\udcff"), printable(r"a\nb"), printable("\x85"))
    a\nb\xff a\\nb \u0085
    """
    # What is no UTF-8 becomes lone surrogates.
    text = _file_bytes(name).decode("utf-8", "surrogateescape")
    return "".join(c if c.isprintable() and c != "\\" else _escaped(c) for c in text)


def _file_bytes(name: str) -> bytes:
    try:
        return os.fsencode(name)
    except UnicodeEncodeError:  # no file's name in this locale, but one from a table
        return name.encode("utf-8", "surrogateescape")


def shown(text: str) -> str:
    r"""A text for a terminal: what moves its cursor or colours it is escaped, all else stays.

    What is `printable` already stays the same, so a backslash is not doubled.

    >>> print(shown("\x1b[31mred\na\u202eb"), shown(printable("a\nb")), shown("naïve"))
    \x1b[31mred\na\u202eb a\nb naïve
    """
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if 0x80 <= code <= 0xFF:
        return f"\\u{code:04x}"
    return character.encode("unicode_escape").decode()


def identity(
    sha256: str, examples_digest: str, settings: Mapping[str, Any], schema: int = SCHEMA_VERSION
) -> str:
    """What an answer depends on, as 32 hex digits; equal identities mean equal answers.

    Args:
        sha256: digest of the model file, empty if unreadable.
        examples_digest: see `rounds.examples.examples_digest`; empty if the model has no examples.
        settings: JSON values of everything that changes the answer, and nothing else.
        schema: version of the record.
    """
    parts = {"model": sha256, "examples": examples_digest, "settings": dict(settings)}
    text = json.dumps({**parts, "schema": schema}, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def digest_file(path: Path) -> str:
    """sha256 of a file's bytes, hex. Raises OSError if it cannot be read or is no plain file."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would keep us waiting for ever
        raise OSError(errno.EINVAL, "not a plain file", str(path))
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_evidence_only(record: Record) -> bool:
    """Whether evidence was gathered and no verdict given; flags may stand before that reason.

    >>> is_evidence_only(Record("m", "", 0.5, False, None, (), "ok", "flag: odd; evidence only"))
    True
    >>> is_evidence_only(Record("m", "", 0.9, True, 1, (), "ok", "evidence only"))
    False
    """
    said = any(_NO_VERDICT.fullmatch(part) for part in record.reason.split("; "))
    return record.status == "ok" and not record.poisoned and said
