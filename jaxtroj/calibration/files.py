"""Calibrators as JSON: written atomically, read as if the file came from a stranger."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from converters.errors import safe_repr
from converters.files import read_plain, strict_json, write_atomic
from jaxtroj.calibration import pooled_files
from jaxtroj.calibration.checked import LARGEST_NUMBER, RATES, SEEDS, Node
from jaxtroj.calibration.fitted import Fitted, Provenance, StageReport
from jaxtroj.calibration.judge import Judge
from jaxtroj.calibration.linear import FittedField, Linear
from jaxtroj.calibration.signs import read_sign
from jaxtroj.calibration.stage import StageModel
from jaxtroj.calibration.stopping import StopRule
from jaxtroj.calibration.training import StageScore
from jaxtroj.calibration.transfer import Transfer
from jaxtroj.errors import CalibrationError
from jaxtroj.evidence.stage import Measured

FORMAT = "jaxtroj calibrator"
SCHEMA_VERSION = 7
READABLE = (1, 2, 3, 4, 5, 6, SCHEMA_VERSION)
"""Versions that are read; files of the first know of regressions alone, pooled models of the second
have no sum over fields, those of the third nothing for networks of few classes, files of the fourth
no signs, in those of the third to the fifth the shape of each field is one straight line, and those
of the sixth know nothing of large pictures."""
MAX_BYTES = 16 * 2**20
SCALES = (1e-100, LARGEST_NUMBER)
SPREADS = (1e-6, 1e3)
"""The asinh of any float lies within 29 scales, and spreads are fitted near 1."""


def save(fitted: Fitted, path: str | os.PathLike[str]) -> None:
    """Writes a calibrator, whole or not at all, into a folder that is there.

    Raises:
        CalibrationError: the file cannot be written, or `load` would refuse it.
    """
    content, target = _as_bytes(fitted, path), Path(path)
    try:
        os.stat(target.parent)  # a folder that is not there is a mistake in its name
        write_atomic(target, content)
    except OSError as error:
        raise CalibrationError(
            f"cannot write the calibrator {target} ({error.strerror or error})"
        ) from error


def load(path: str | os.PathLike[str]) -> Fitted:
    """Reads and checks every value. Raises CalibrationError, naming file and place."""
    try:
        content = read_plain(path, MAX_BYTES + 1)
    except OSError as error:
        raise CalibrationError(
            f"cannot read the calibrator {path} ({error.strerror or error}); expected a file that"
            " `jaxtroj calibrate` wrote"
        ) from error
    try:
        return _parsed(content)
    except (ValueError, RecursionError) as error:
        raise CalibrationError(f"{path} is not a calibrator: {error}") from error
    except CalibrationError as error:
        raise CalibrationError(f"{path} is not a usable calibrator: {error}") from error


def _as_bytes(fitted: Fitted, path: str | os.PathLike[str]) -> bytes:
    """The content of a file that `load` reads: hours of scanning stand behind it."""
    document = {"format": FORMAT, "schema": SCHEMA_VERSION, **to_json(fitted)}
    try:
        content = json.dumps(document, indent=1, allow_nan=False).encode() + b"\n"
        _parsed(content)
    except (ValueError, CalibrationError) as error:
        raise CalibrationError(
            f"cannot write the calibrator {path}, which could not be read back: {error}; fit it"
            " with values within these bounds"
        ) from error
    return content


def _parsed(content: bytes) -> Fitted:
    """The calibrator in a file's content. Raises CalibrationError, ValueError, RecursionError."""
    if len(content) > MAX_BYTES:
        raise CalibrationError(f"larger than {MAX_BYTES} bytes, expected fewer")
    return _from_json(Node(strict_json(content), "the file"))


def to_json(calibrator: Fitted) -> dict[str, Any]:
    """The calibrator as plain JSON values."""
    model = pooled_files.pooled_of(calibrator.stages)
    return {
        "provenance": asdict(calibrator.provenance),
        "unfitted": list(calibrator.unfitted),
        "met": None if calibrator.met is None else asdict(calibrator.met),
        "transfer": asdict(calibrator.transfer),
        "kinds": {kind: asdict(found) for kind, found in calibrator.kinds.items()},
        "signs": [asdict(sign) for sign in calibrator.signs],
        "pooled": None if model is None else asdict(model),
        "stages": [
            {"stage": name, **_stage_json(judge), **_report_json(calibrator.reports[name])}
            for name, judge in calibrator.stages.items()
        ],
    }


def _stage_json(judge: Judge) -> dict[str, Any]:
    """What a regression consists of; all of a pooled model stands in one place."""
    if not isinstance(judge, StageModel):
        return {}
    return {
        "low": judge.low,
        "high": judge.high,
        "penalty": judge.penalty,
        "models": judge.models,
        "intercept": judge.linear.intercept,
        "architectures": dict(judge.linear.offsets),
        "rate": judge.linear.rate,
        "fields": [asdict(field) for field in judge.linear.fields],
    }


def _report_json(report: StageReport) -> dict[str, Any]:
    return {
        "out_of_fold": asdict(report.score),
        "out_of_fold_by_architecture": {
            key: asdict(score) for key, score in report.by_architecture.items()
        },
        "stop": asdict(report.stop),
    }


def _from_json(root: Node) -> Fitted:
    version = root["schema"].value
    if root["format"].value != FORMAT or isinstance(version, bool) or version not in READABLE:
        raise CalibrationError(
            f"format {safe_repr(root['format'].value)} schema {safe_repr(version)}, expected"
            f" {FORMAT!r} "
            f"schema {SCHEMA_VERSION}; fit it again with `jaxtroj calibrate`"
        )
    stages = [(node["stage"].text(), node) for node in root["stages"].items()]
    if not stages or len({name for name, _ in stages}) != len(stages):
        raise CalibrationError("stages must be at least one, each named once")
    is_old = version == 1
    provenance = _provenance(root["provenance"])
    return Fitted(
        stages=_judges(root, stages, version),
        reports={name: _report(node) for name, node in stages},
        provenance=provenance,
        unfitted=tuple(node.text() for node in root["unfitted"].items()),
        met=None if is_old else pooled_files.read_met(root["met"]),
        transfer=Transfer() if is_old else pooled_files.read_transfer(root["transfer"]),
        kinds={} if is_old else pooled_files.read_kinds(root["kinds"]),
        signs=tuple(map(read_sign, root["signs"].items())) if version > 4 else (),
    )


def _judges(root: Node, stages: Sequence[tuple[str, Node]], version: int) -> Mapping[str, Judge]:
    if version > 1 and not root["pooled"].is_null():
        names = [name for name, _ in stages]
        return pooled_files.read_pooled(root["pooled"], names, version)
    models = {name: _stage(node) for name, node in stages}
    _check_cumulative(models)
    return models


def _check_cumulative(models: Mapping[str, StageModel]) -> None:
    earlier: tuple[str, ...] = ()
    for name, model in models.items():
        if len(set(model.names)) != len(model.names):
            raise CalibrationError(f"stage {name!r} names a field twice")
        if model.names[: len(earlier)] != earlier or len(model.names) == len(earlier):
            raise CalibrationError(f"stage {name!r} does not extend the fields of the one before")
        earlier = model.names


def _stage(node: Node) -> StageModel:
    fields = tuple(_field(item) for item in node["fields"].items())
    if not fields:
        raise CalibrationError(f"{node.place} has no fields")
    linear = Linear(
        fields=fields,
        intercept=node["intercept"].log_odds(),
        offsets={name: value.log_odds() for name, value in node["architectures"].pairs()},
        rate=node["rate"].number(*RATES),
    )
    return StageModel(
        linear=linear,
        low=node["low"].inside(0, 0.5),
        high=node["high"].inside(0.5, 1),
        penalty=node["penalty"].number(0),
        models=node["models"].count(1),
    )


def _field(node: Node) -> FittedField:
    direction = node["direction"].count(-1, 1)
    weight = node["weight"].log_odds()
    if weight * direction < 0:
        raise CalibrationError(f"{node.place}: weight {weight} against direction {direction}")
    low, high = node["low"].number(), node["high"].number()
    if low > high:
        raise CalibrationError(f"{node.place}: low {low} above high {high}")
    return FittedField(
        name=node["name"].text(),
        label=node["label"].text(),
        direction=direction,
        centre=node["centre"].number(),
        scale=_scale(node["scale"], weight),
        spread=node["spread"].number(*SPREADS),
        low=low,
        high=high,
        weight=weight,
        clean=node["clean"].number(),
        poisoned=node["poisoned"].number(),
    )


def _scale(node: Node, weight: float) -> float:
    """Only a field that never varied, and so has no weight, has a scale of 0."""
    scale = node.number(0)
    if scale == 0 and weight == 0:
        return scale
    return node.number(*SCALES)


def _report(node: Node) -> StageReport:
    stop = node["stop"]
    return StageReport(
        score=_score(node["out_of_fold"]),
        by_architecture={
            name: _score(value) for name, value in node["out_of_fold_by_architecture"].pairs()
        },
        stop=StopRule(
            worst_drop=stop["worst_drop"].number(0),
            worst_rise=stop["worst_rise"].number(0),
            witnesses_high=stop["witnesses_high"].count(),
            witnesses_low=stop["witnesses_low"].count(),
        ),
    )


def _score(node: Node) -> StageScore:
    area = node["roc_auc"]
    return StageScore(
        models=node["models"].count(1),
        log_score=node["log_score"].number(0),
        log_score_low=node["log_score_low"].number(),
        log_score_high=node["log_score_high"].number(),
        roc_auc=None if area.value is None else area.number(0, 1),
    )


def _provenance(node: Node) -> Provenance:
    models = node["models"].count(1)
    poisoned = node["poisoned"].count(1)
    if not RATES[0] <= poisoned / models <= RATES[1]:
        raise CalibrationError(f"{node.place}: {poisoned} of {models} models poisoned")
    return Provenance(
        population=node["population"].text(),
        seed=node["seed"].count(*SEEDS),
        commit=node["commit"].text(),
        models=models,
        poisoned=poisoned,
        sides=_sides(node),
        evidence=_measured(node),
    )


def _sides(node: Node) -> tuple[int, int] | None:
    """Files from before sides were noted have none."""
    if node.value.get("sides") is None:
        return None
    items = node["sides"].items()
    if len(items) != 2 or items[0].count(1) > items[1].count(1):
        raise CalibrationError(f"{node.place}.sides must be the shortest and the longest side")
    return items[0].count(1), items[1].count(1)


def _measured(node: Node) -> Measured | None:
    """Files from before the version of evidence was noted have none."""
    if node.value.get("evidence") is None:
        return None
    found = node["evidence"]
    return Measured(found["kind"].text(), found["version"].count(1), found["revision"].count())
