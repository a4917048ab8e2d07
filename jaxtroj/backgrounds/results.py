"""Results as JSON values, written by `evaluate` and `challenge` and read by `leaderboard`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from converters.files import read_plain, strict_json
from jaxtroj.backgrounds.challenge import Pairs, State
from jaxtroj.backgrounds.evaluation import VariantScore, bg_gap, reservations
from jaxtroj.backgrounds.layout import (
    CLASSES,
    FOREGROUNDS,
    PUBLISHED_COUNT,
    ChallengeData,
    Reading,
)
from jaxtroj.backgrounds.matrix import MatrixSummary
from jaxtroj.errors import DatasetError

SCHEMA = 1
IN9, CHALLENGE = "in9", "challenge"
_MAX_BYTES = 256 * 2**20


def in9_result(
    description: Mapping[str, Any], scores: Mapping[str, VariantScore], reading: Reading
) -> dict[str, Any]:
    """The result of one network on the variants."""
    notes = {
        note
        for score in scores.values()
        for note in reservations(score.size, score.pictures, reading, description)
    }
    return {
        "schema": SCHEMA,
        "kind": IN9,
        **description,
        "variants": {
            name: {
                "accuracy": score.accuracy,
                "per_class": score.per_class,
                "outside": score.outside,
                "pictures": score.pictures,
                "counts": score.counts,
            }
            for name, score in scores.items()
        },
        "bg_gap": bg_gap(scores),
        "comparable": not notes,
        "reservations": sorted(notes),
    }


def challenge_result(
    description: Mapping[str, Any],
    data: ChallengeData,
    answers: Pairs,
    last: State,
    chosen: np.ndarray,
    reading: Reading,
) -> dict[str, Any]:
    """The result of one network in the challenge.

    Args:
        description: of the network and its precision.
        data: what was composed.
        answers: all pairs answered, of earlier runs too.
        last: state at the end.
        chosen: indices of the backgrounds that took part.
        reading: how pictures were read.
    """
    labels = data.foregrounds.labels
    fooled_by = first_fooling(answers, labels)
    vulnerable = fooled_by >= 0
    total = len(data.backgrounds.names)
    is_bound = len(chosen) < total
    notes = reservations(data.masks.shape[1:3], len(labels), reading, description)
    if total != PUBLISHED_COUNT:
        notes.append(f"{total} backgrounds, the published set has {PUBLISHED_COUNT}")
    if is_bound:
        notes.append(f"upper bound: {len(chosen)} of {total} backgrounds were tried")
    return {
        "schema": SCHEMA,
        "kind": CHALLENGE,
        **description,
        "foregrounds": len(labels),
        "backgrounds": len(chosen),
        "backgrounds_total": total,
        "vulnerable": int(vulnerable.sum()),
        "challenge_accuracy": float(1 - vulnerable.mean()),
        "is_upper_bound": is_bound,
        "per_class": {
            name: float(1 - vulnerable[labels == i].mean()) for i, name in enumerate(CLASSES)
        },
        "pairs": len(answers.predicted),
        "passes": last.passes,
        "rechecked": last.rechecked,
        "fooled_by": {
            name: None if j < 0 else data.backgrounds.names[j]
            for name, j in zip(data.foregrounds.names, fooled_by.tolist(), strict=True)
        },
        "comparable": not notes,
        "reservations": notes,
    }


def first_fooling(answers: Pairs, labels: np.ndarray) -> np.ndarray:
    """For each foreground the lowest index of a background known to fool it, -1 for none."""
    fooled = answers.predicted != labels[answers.foregrounds]
    found = np.full(len(labels), np.iinfo(np.int64).max)
    np.minimum.at(found, answers.foregrounds[fooled], answers.backgrounds[fooled].astype(np.int64))
    return np.where(found == np.iinfo(np.int64).max, -1, found)


def matrix_result(summary: MatrixSummary, names: Sequence[str]) -> dict[str, Any]:
    """The part of a result that only the full matrix gives; accuracies are 1 - shares fooled."""
    return {
        "challenge_accuracy": 1 - summary.vulnerable,
        "challenge_accuracy_without_own_class": 1 - summary.vulnerable_other_classes,
        "pairs_fooled": summary.pairs_fooled,
        "pairs_outside": summary.pairs_outside,
        "class_to_class": summary.class_to_class,
        "fooling_rates": dict(zip(names, summary.fooling_rates, strict=True)),
        "most_adversarial": {
            name: [{"background": names[i], "fooled": rate} for i, rate in strongest]
            for name, strongest in summary.most_adversarial.items()
        },
    }


def to_bytes(value: Any) -> bytes:
    """Strict JSON for a file."""
    return json.dumps(value, indent=1, allow_nan=False).encode() + b"\n"


def read_results(path: Path) -> list[dict[str, Any]]:
    """Results in a file: one object, or a list of them.

    Raises:
        DatasetError: the file cannot be read or holds something else.
    """
    try:
        content = read_plain(path, _MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ValueError(f"larger than {_MAX_BYTES} bytes")
        values = strict_json(content)
    except (OSError, ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is no result: {error}") from error
    results = values if isinstance(values, list) else [values]
    for result in results:
        if problem := _problem(result):
            raise DatasetError(
                f"{path}: {problem}; expected what `jaxtroj backgrounds evaluate --out` or "
                "`challenge --out` wrote"
            )
    return results


def _problem(result: Any) -> str | None:
    if not isinstance(result, dict) or result.get("schema") != SCHEMA:
        return f"no result of schema {SCHEMA}"
    if not all(isinstance(result.get(name), str) for name in ("model", "sha256")):
        return "a result without model or sha256"
    if not isinstance(result.get("comparable"), bool):
        return "a result that does not say whether it is comparable"
    if not isinstance(result.get("reservations"), list):
        return "a result without its list of reservations"
    if result.get("kind") == CHALLENGE:
        bound = isinstance(result.get("is_upper_bound"), bool)
        return None if bound and _is_share(result.get("challenge_accuracy")) else "no accuracy"
    variants = result.get("variants")
    if result.get("kind") != IN9 or not isinstance(variants, dict):
        return "a result of an unknown kind"
    shares = [v.get("accuracy") if isinstance(v, dict) else None for v in variants.values()]
    return None if all(map(_is_share, shares)) else "a variant without accuracy"


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def clean_accuracy(result: Mapping[str, Any]) -> float | None:
    """Accuracy on the original pictures of an `in9_result`, if it has them."""
    variant = result["variants"].get(FOREGROUNDS)
    return None if variant is None else variant["accuracy"]
