"""By which version evidence was measured that a run or a calibrator holds; see `StageTable`.

A run keeps the versions among its settings, so no scan goes on in a run of another version. A
calibrator keeps that of the evidence it was fitted on.
"""

from collections.abc import Mapping
from typing import Any

from converters.errors import safe_repr
from jaxtroj.errors import CalibrationError
from jaxtroj.evidence.stage import Measured
from jaxtroj.evidence.stages import CLASSIFIERS, IMAGES, TABLES, TEXTS

_PREFIXES = {IMAGES.kind: "", TEXTS.kind: "text_", CLASSIFIERS.kind: "classifier_"}
# What settings without the name stand for: they are from before there was a second one.
_FIRST = {
    "evidence_revision": 0,
    "text_evidence_revision": 0,
    "classifier_evidence_schema": 1,
    "classifier_evidence_revision": 0,
}
_REFIT = "gather its models' evidence again and fit it with `jaxtroj calibrate`"
_AGAIN = "gather it again: jaxtroj scan --evidence-only --restart, or another --out"


def as_settings() -> dict[str, int]:
    """Name -> version or revision of every table, as the settings of a run hold them."""
    found = {}
    for kind, table in TABLES.items():
        schema, revision = _names(kind)
        found |= {schema: table.version, revision: table.revision}
    return {name: value for name, value in found.items() if value != _FIRST.get(name)}


def gathered_by(kind: str, settings: Mapping[str, Any]) -> Measured | None:
    """By which version a run gathered evidence of a kind; None where its settings do not say.

    Args:
        kind: of the models, one of `stages.TABLES`.
        settings: of the run.
    """
    version, revision = (settings.get(name, _FIRST.get(name)) for name in _names(kind))
    if isinstance(version, bool) or isinstance(revision, bool):
        return None
    if not isinstance(version, int) or not isinstance(revision, int):
        return None
    return Measured(kind, version, revision)


def check_gathered(kind: str, settings: Mapping[str, Any]) -> str:
    """What to know before a calibrator is fitted to a run's evidence; "" for nothing.

    Args:
        kind: of the models, one of `stages.TABLES`.
        settings: of the run.

    Raises:
        CalibrationError: the evidence is of another version, in which its fields mean something
            else.
    """
    table = TABLES[kind]
    version, revision = (settings.get(name, _FIRST.get(name)) for name in _names(kind))
    if version is None:
        return f"nothing says by which version of {kind} evidence the run was gathered"
    if version != table.version:
        raise CalibrationError(
            f"the run holds {kind} evidence of version {safe_repr(version)}, expected version"
            f" {table.version}, in which fields mean something else; {_AGAIN}"
        )
    if revision != table.revision:
        return (
            f"the run holds {kind} evidence of revision {safe_repr(revision)}, scans measure it by"
            f" revision {table.revision}: the calibrator may be a little off; {_AGAIN}"
        )
    return ""


def check_fitted(kind: str, measured: Measured | None) -> str:
    """What to know before a calibrator judges evidence of today; "" for nothing.

    Args:
        kind: of the model that it judges, one of `stages.TABLES`.
        measured: the evidence that it was fitted on; None where its file does not say.

    Raises:
        CalibrationError: it was fitted on evidence of another kind or version.
    """
    now = TABLES[kind].measured
    if measured is None or measured == now:
        return ""
    if (measured.kind, measured.version) != (now.kind, now.version):
        raise CalibrationError(
            f"the calibrator was fitted on {safe_repr(measured.kind)} evidence of version"
            f" {measured.version}, expected {now.kind} evidence of version {now.version}; {_REFIT}"
        )
    return (
        f"the calibrator was fitted on evidence of revision {measured.revision}, this is of"
        f" revision {now.revision}: the probability may be a little off; {_REFIT}"
    )


def _names(kind: str) -> tuple[str, str]:
    """Of the settings that hold a table's version and revision."""
    return f"{_PREFIXES[kind]}evidence_schema", f"{_PREFIXES[kind]}evidence_revision"
