"""Calibrators as JSON: written atomically, read as if the file came from a stranger."""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from converters.files import read_plain, write_atomic
from jaxtroj.calibration.fitted import Fitted, Provenance, StageReport
from jaxtroj.calibration.linear import FittedField, Linear
from jaxtroj.calibration.stage import StageModel
from jaxtroj.calibration.stopping import StopRule
from jaxtroj.calibration.training import StageScore
from jaxtroj.errors import CalibrationError

FORMAT = "jaxtroj calibrator"
SCHEMA_VERSION = 1
MAX_BYTES = 16 * 2**20
LARGEST_NUMBER = 1e101
LARGEST_LOG_ODDS = 1e3
"""Of an intercept or a weight; fitted ones are below 10, and 28 leave no probability but 0 or 1."""
SCALES = (1e-100, LARGEST_NUMBER)
SPREADS = (1e-6, 1e3)
"""The asinh of any float lies within 29 scales, and spreads are fitted near 1."""
LONGEST_TEXT = 2000


def save(fitted: Fitted, path: str | os.PathLike[str]) -> None:
    """Writes a calibrator, whole or not at all, into a folder that is there.

    Raises:
        CalibrationError: the file cannot be written.
    """
    document = {"format": FORMAT, "schema": SCHEMA_VERSION, **to_json(fitted)}
    text, target = json.dumps(document, indent=1, allow_nan=False), Path(path)
    try:
        os.stat(target.parent)  # a folder that is not there is a mistake in its name
        write_atomic(target, text.encode() + b"\n")
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
    if len(content) > MAX_BYTES:
        raise CalibrationError(f"{path} is larger than {MAX_BYTES} bytes: no calibrator")
    try:
        document = json.loads(content, parse_constant=_refuse_constant)
        return _from_json(_Node(document, "the file"))
    except (ValueError, RecursionError) as error:
        raise CalibrationError(f"{path} is not a calibrator: {error}") from error
    except CalibrationError as error:
        raise CalibrationError(f"{path} is not a usable calibrator: {error}") from error


def to_json(calibrator: Fitted) -> dict[str, Any]:
    """The calibrator as plain JSON values."""
    return {
        "provenance": asdict(calibrator.provenance),
        "unfitted": list(calibrator.unfitted),
        "stages": [
            {
                "stage": name,
                "low": model.low,
                "high": model.high,
                "penalty": model.penalty,
                "models": model.models,
                "intercept": model.linear.intercept,
                "architectures": dict(model.linear.offsets),
                "rate": model.linear.rate,
                "fields": [asdict(field) for field in model.linear.fields],
                "out_of_fold": asdict(calibrator.reports[name].score),
                "out_of_fold_by_architecture": {
                    key: asdict(score)
                    for key, score in calibrator.reports[name].by_architecture.items()
                },
                "stop": asdict(calibrator.reports[name].stop),
            }
            for name, model in calibrator.stages.items()
        ],
    }


def _refuse_constant(name: str) -> float:
    raise ValueError(f"holds {name}, expected finite numbers")


class _Node:
    """A JSON value and where it stands; each accessor checks what it returns."""

    def __init__(self, value: Any, place: str):
        self.value, self.place = value, place

    def _fail(self, expected: str) -> CalibrationError:
        got = repr(self.value)
        got = got if len(got) <= 60 else f"{got[:57]}..."
        return CalibrationError(f"{self.place} is {got}, expected {expected}")

    def __getitem__(self, key: str) -> "_Node":
        if not isinstance(self.value, dict) or key not in self.value:
            raise CalibrationError(f"{self.place} lacks {key!r}")
        return _Node(self.value[key], f"{self.place}.{key}")

    def number(self, low: float = -LARGEST_NUMBER, high: float = LARGEST_NUMBER) -> float:
        """A finite number in [low, high]; true and false are none."""
        value = self.value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high or not math.isfinite(value):
            raise self._fail(f"a number in [{low:g}, {high:g}]")
        return float(value)

    def inside(self, low: float, high: float) -> float:
        """A number in the open interval (low, high)."""
        value = self.number(low, high)
        if value in (low, high):
            raise self._fail(f"a number in ({low:g}, {high:g})")
        return value

    def log_odds(self) -> float:
        """A number that log-odds, or a weight of them, can be."""
        return self.number(-LARGEST_LOG_ODDS, LARGEST_LOG_ODDS)

    def count(self, low: int = 0, high: int = 2**63) -> int:
        if not isinstance(self.value, int) or isinstance(self.value, bool):
            raise self._fail("a whole number")
        return int(self.number(low, high))

    def text(self) -> str:
        if not isinstance(self.value, str) or len(self.value) > LONGEST_TEXT:
            raise self._fail(f"a text of at most {LONGEST_TEXT} characters")
        return self.value

    def items(self) -> list["_Node"]:
        if not isinstance(self.value, list):
            raise self._fail("a list")
        return [_Node(value, f"{self.place}[{i}]") for i, value in enumerate(self.value)]

    def pairs(self) -> list[tuple[str, "_Node"]]:
        if not isinstance(self.value, dict):
            raise self._fail("an object")
        return [
            (_Node(key, f"a key of {self.place}").text(), _Node(value, f"{self.place}.{key[:40]}"))
            for key, value in self.value.items()
        ]


def _from_json(root: _Node) -> Fitted:
    if root["format"].value != FORMAT or root["schema"].value != SCHEMA_VERSION:
        raise CalibrationError(
            f"format {root['format'].value!r} schema {root['schema'].value!r}, expected {FORMAT!r} "
            f"schema {SCHEMA_VERSION}; fit it again with `jaxtroj calibrate`"
        )
    stages = [(node["stage"].text(), node) for node in root["stages"].items()]
    if not stages or len({name for name, _ in stages}) != len(stages):
        raise CalibrationError("stages must be at least one, each named once")
    models = {name: _stage(node) for name, node in stages}
    _check_cumulative(models)
    return Fitted(
        stages=models,
        reports={name: _report(node) for name, node in stages},
        provenance=_provenance(root["provenance"]),
        unfitted=tuple(node.text() for node in root["unfitted"].items()),
    )


def _check_cumulative(models: Mapping[str, StageModel]) -> None:
    earlier: tuple[str, ...] = ()
    for name, model in models.items():
        if len(set(model.names)) != len(model.names):
            raise CalibrationError(f"stage {name!r} names a field twice")
        if model.names[: len(earlier)] != earlier or len(model.names) == len(earlier):
            raise CalibrationError(f"stage {name!r} does not extend the fields of the one before")
        earlier = model.names


def _stage(node: _Node) -> StageModel:
    fields = tuple(_field(item) for item in node["fields"].items())
    if not fields:
        raise CalibrationError(f"{node.place} has no fields")
    linear = Linear(
        fields=fields,
        intercept=node["intercept"].log_odds(),
        offsets={name: value.log_odds() for name, value in node["architectures"].pairs()},
        rate=node["rate"].inside(0, 1),
    )
    return StageModel(
        linear=linear,
        low=node["low"].inside(0, 0.5),
        high=node["high"].inside(0.5, 1),
        penalty=node["penalty"].number(0),
        models=node["models"].count(1),
    )


def _field(node: _Node) -> FittedField:
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


def _scale(node: _Node, weight: float) -> float:
    """Only a field that never varied, and so has no weight, has a scale of 0."""
    scale = node.number(0)
    if scale == 0 and weight == 0:
        return scale
    return node.number(*SCALES)


def _report(node: _Node) -> StageReport:
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


def _score(node: _Node) -> StageScore:
    area = node["roc_auc"]
    return StageScore(
        models=node["models"].count(1),
        log_score=node["log_score"].number(0),
        log_score_low=node["log_score_low"].number(),
        log_score_high=node["log_score_high"].number(),
        roc_auc=None if area.value is None else area.number(0, 1),
    )


def _provenance(node: _Node) -> Provenance:
    models = node["models"].count(1)
    poisoned = node["poisoned"].count(1)
    if poisoned >= models:
        raise CalibrationError(f"{node.place}: {poisoned} of {models} models poisoned")
    return Provenance(
        population=node["population"].text(),
        seed=node["seed"].count(-(2**63)),
        commit=node["commit"].text(),
        models=models,
        poisoned=poisoned,
        sides=_sides(node),
    )


def _sides(node: _Node) -> tuple[int, int] | None:
    """Files from before sides were noted have none."""
    if node.value.get("sides") is None:
        return None
    items = node["sides"].items()
    if len(items) != 2 or items[0].count(1) > items[1].count(1):
        raise CalibrationError(f"{node.place}.sides must be the shortest and the longest side")
    return items[0].count(1), items[1].count(1)
