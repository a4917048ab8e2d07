"""What a calibrator's file holds of a pooled model, of what was met and of what was found."""

from collections.abc import Mapping, Sequence
from itertools import groupby

import numpy as np

from jaxtroj.calibration.checked import RATES, Node
from jaxtroj.calibration.judge import Judge
from jaxtroj.calibration.kinds import KindFound
from jaxtroj.calibration.pooled import FewClasses, LargePictures, PooledModel, PooledStage
from jaxtroj.calibration.searches import PARTS, WAYS
from jaxtroj.calibration.tails import KNOTS, PIECES, Tail
from jaxtroj.calibration.transfer import Met, Temperature, Transfer
from jaxtroj.errors import CalibrationError

CAPS = (0.1, 100.0)
SCALES = (1e-100, 1e101)
LENGTHS = (1e-6, 1e3)
"""In z, where any float lies within 29; fitted ones are near 0.3."""
LARGEST_WEIGHT = 1e3
LARGEST_TEMPERATURE = 1e3


def pooled_of(stages: Mapping[str, Judge]) -> PooledModel | None:
    """The model that all stages ask; None where each has a regression."""
    judges = [judge for judge in stages.values() if isinstance(judge, PooledStage)]
    return judges[0].model if judges else None


def read_pooled(node: Node, stages: Sequence[str], version: int) -> Mapping[str, Judge]:
    """The judges of the named stages, of a file of some version (`files.READABLE`).

    Raises CalibrationError.
    """
    tails = tuple(_tail(item, version) for item in node["tails"].items())
    if len({tail.name for tail in tails}) != len(tails):
        raise CalibrationError(f"{node.place} names a field twice")
    runs = [stage for stage, _ in groupby(tail.stage for tail in tails)]
    if not tails or len(set(runs)) != len(runs):
        raise CalibrationError(f"{node.place}.tails must be at least one, stage after stage")
    if [stage for stage in runs if stage in stages] != list(stages):
        raise CalibrationError(f"{node.place} has the stages {runs}, expected {list(stages)}")
    searches = {tail.search for tail in tails}
    usual = tuple(tuple(name.text() for name in part.items()) for part in node["usual"].items())
    if any(not part or not set(part) <= searches for part in usual):
        raise CalibrationError(f"{node.place}.usual must name searches of its fields")
    weights = [part.number(0, LARGEST_WEIGHT) for part in node["weights"].items()]
    if len(weights) != len(PARTS):
        raise CalibrationError(f"{node.place}.weights must be {len(PARTS)} numbers")
    model = PooledModel(
        tails=tails,
        usual=usual,
        way=node["way"].choice(WAYS),
        cap=node["cap"].number(*CAPS),
        weights=(weights[0], weights[1], weights[2]),
        missing=node["missing"].number(0, LARGEST_WEIGHT),
        intercept=node["intercept"].log_odds(),
        rate=node["rate"].number(*RATES),
        low=node["low"].inside(0, 0.5),
        high=node["high"].inside(0.5, 1),
        penalty=node["penalty"].number(0),
        models=node["models"].count(1),
        sides=tuple(_searched_sides(part) for part in node["sides"].items()) if version > 2 else (),
        few=_few(node["few"], tails, version) if version > 3 else None,
        large=_large(node["large"]) if version > 6 else None,
    )
    return {stage: PooledStage(model, stage) for stage in stages}


def _few(node: Node, tails: Sequence[Tail], version: int) -> FewClasses | None:
    """What there is for networks of few classes; `tails` are those of the others."""
    if node.is_null():
        return None
    own = tuple(_tail(item, version) for item in node["tails"].items())
    if [_places(tail) for tail in own] != [_places(tail) for tail in tails]:
        raise CalibrationError(f"{node.place}.tails must be of the same fields, in their order")
    return FewClasses(
        tails=own,
        most=node["most"].count(2),
        clean=node["clean"].count(1),
        models=node["models"].count(1),
        log_score=node["log_score"].number(0),
    )


def _large(node: Node) -> LargePictures | None:
    """How parts count for large pictures."""
    if node.is_null():
        return None
    return LargePictures(
        above=node["above"].count(1),
        intercept=node["intercept"].log_odds(),
        pool=node["pool"].number(0, LARGEST_WEIGHT),
        traces=node["traces"].number(0, LARGEST_WEIGHT),
        searches=node["searches"].number(0, LARGEST_WEIGHT),
        models=node["models"].count(1),
        log_score=node["log_score"].number(0),
    )


def _places(tail: Tail) -> tuple[str, str, str, int]:
    return tail.name, tail.stage, tail.search, tail.direction


def _searched_sides(node: Node) -> tuple[str, int, int]:
    items = node.items()
    if len(items) != 3:
        raise CalibrationError(f"{node.place} must be a search, its least and its largest side")
    least = items[1].count(1)
    return items[0].text(), least, items[2].count(least)


def _tail(node: Node, version: int) -> Tail:
    direction = node["direction"].count(-1, 1)
    if direction == 0:
        raise CalibrationError(f"{node.place}.direction is 0, expected -1 or 1")
    scale = node["scale"].number(0)
    return Tail(
        name=node["name"].text(),
        label=node["label"].text(),
        stage=node["stage"].text(),
        search=node["search"].text(),
        direction=direction,
        centre=node["centre"].number(),
        scale=node["scale"].number(*SCALES) if scale > 0 else 0.0,
        start=node["start"].number(-LENGTHS[1], LENGTHS[1]),
        length=node["length"].number(*LENGTHS),
        poisoned=node["poisoned"].number(),
        worth=node["worth"].number(0, 1),
        rises=_rises(node, version),
    )


def _rises(node: Node, version: int) -> tuple[float, ...]:
    """Of a field's shape; files of before have a weight for each step of z, the oldest none."""
    if version < 3:
        return ()
    if version < 6:
        weight = node["weight"].number(0, LARGEST_WEIGHT)
        return tuple((weight * np.diff(KNOTS)).tolist())
    rises = tuple(item.number(0, LARGEST_WEIGHT) for item in node["rises"].items())
    if len(rises) not in (0, PIECES):
        raise CalibrationError(f"{node.place}.rises must be {PIECES} numbers, or none")
    return rises


def read_met(node: Node) -> Met | None:
    """What the networks of the fit were."""
    if node.is_null():
        return None
    names = tuple(name.text() for name in node["architectures"].items())
    return Met(names, _range(node["sides"]), _range(node["classes"]))


def _range(node: Node) -> tuple[int, int] | None:
    if node.is_null():
        return None
    items = node.items()
    if len(items) != 2 or items[0].count(1) > items[1].count(1):
        raise CalibrationError(f"{node.place} must be the least and the largest")
    return items[0].count(1), items[1].count(1)


def read_transfer(node: Node) -> Transfer:
    """The learnt temperatures."""
    return Transfer(_temperature(node["architecture"]), _temperature(node["dataset"]))


def _temperature(node: Node) -> Temperature | None:
    if node.is_null():
        return None
    return Temperature(
        value=node["value"].number(1, LARGEST_TEMPERATURE),
        log_score=node["log_score"].number(0),
        log_score_before=node["log_score_before"].number(0),
        groups=node["groups"].count(2),
        models=node["models"].count(1),
    )


def read_kinds(node: Node) -> Mapping[str, KindFound]:
    """How each kind of trigger was found."""
    found = {}
    for kind, part in node.pairs():
        models = part["models"].count(1)
        counts = (part["above_half"].count(0, models), part["above_base"].count(0, models))
        found[kind] = KindFound(models, *counts)
    return found
