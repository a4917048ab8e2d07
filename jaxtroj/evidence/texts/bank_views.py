"""How far a head's answers to a bank depart from those of clean heads, seen in four ways.

Answers are margins of every inserted carrier. Heads differ in confidence (training length, dropout
and adversarial training flatten them), so besides the raw answers there are views that take this
out:

| view | answers | less |
|---|---|---|
| raw | sigmoid of the margins | the references' mean, over their deviation |
| matched | sigmoid of the margins mapped by a straight line onto the references' mean | likewise |
| margin | the mapped margins themselves | likewise |
| half 0, 1 | as matched, candidates inserted in one half of the carriers only | likewise |
| span | sigmoid of the margins | sigmoid of their projection on what the references span |

A rise counts towards a target class on carriers that the references put outside it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from jaxtroj.evidence.texts.insertion import HALVES
from jaxtroj.numerics import sigmoid

# Candidates that a target is scored by: a trigger has several neighbours in a bank of thousands and
# none in a list of two dozen. Hence at most so many, and at most this share of the bank.
TOP, WIDE = 12, 100
_TOP_SHARE, _WIDE_SHARE = 1 / 24, 1 / 4
# Deviations below which references count as agreeing: sigmoid units, and logits.
_FLOORS = {"raw": 0.05, "matched": 0.05, "margin": 0.3}
_SPAN = 8
_EPS = 1e-6


@dataclass(frozen=True)
class Expected:
    """What clean heads answer to a bank.

    Attributes:
      mean: `[classes, n]`, mean margin of every inserted carrier, n = candidates x carriers.
      views: view -> mean and deviation over the references, `[classes, n]` each.
      span: orthonormal `[classes, n, axes]`.
      outside: bool `[classes, carriers]`, whether the references put a carrier outside a class.
    """

    mean: np.ndarray
    views: dict[str, tuple[np.ndarray, np.ndarray]]
    span: np.ndarray
    outside: np.ndarray


def expect(margins: np.ndarray, carriers: np.ndarray) -> Expected:
    """Learn from references.

    Args:
      margins: `[references, n, classes]` of the inserted carriers.
      carriers: `[references, r, classes]` of the carriers alone.
    """
    by_class = np.moveaxis(margins, 2, 0).astype(np.float64)
    mean = by_class.mean(axis=1)
    seen = [_views(answers, mean) for answers in by_class.swapaxes(0, 1)]
    views = {
        name: (
            np.mean([one[name] for one in seen], axis=0),
            np.std([one[name] for one in seen], axis=0),
        )
        for name in _FLOORS
    }
    span = np.stack([_span(answers) for answers in by_class])
    outside = carriers.mean(axis=0).T < 0
    return Expected(mean, views, span, outside)


def rises(margins: np.ndarray, expected: Expected) -> dict[str, np.ndarray]:
    """Rise of every candidate, mean over carriers outside the target: view -> `[classes, k]`.

    Args:
      margins: `[n, classes]`, one head's answers.
      expected: from `expect` on the same bank.
    """
    answers = margins.T.astype(np.float64)
    seen = _views(answers, expected.mean)
    found = {
        name: (seen[name] - expected.views[name][0]) / (expected.views[name][1] + floor)
        for name, floor in _FLOORS.items()
    }
    found["span"] = sigmoid(answers) - sigmoid(_projected(answers, expected.span))
    by_candidate = {name: _by_candidate(v, expected.outside) for name, v in found.items()}
    # Last, so that the views keep their order: the matched one over carriers of one half alone.
    for half in range(HALVES):
        by_candidate[f"half {half}"] = _in_half(found["matched"], expected.outside, half)
    return by_candidate


def view_fields(
    margins: np.ndarray, expected: Expected, found: Mapping[str, np.ndarray]
) -> dict[str, float]:
    """Evidence of one head; `jaxtroj.evidence.texts.stages.bank` says what each field means.

    Args:
      margins: `[n, classes]`, its answers.
      expected: from `expect` on the same bank.
      found: from `rises` on the same answers.
    """
    raw, matched, margin, span = (_Summary(found[name]) for name in (*_FLOORS, "span"))
    fitted = _projected(margins.T.astype(np.float64), expected.span)
    return {
        "bank_top": raw.top.max(),
        "bank_gap": np.ptp(raw.top),
        "bank_spread": raw.spread.max(),
        "matched_top": matched.top.max(),
        "matched_gap": np.ptp(matched.top),
        "matched_spread": matched.spread.max(),
        "matched_spread_least": matched.spread.min(),
        "matched_wide": matched.wide.max(),
        "matched_bottom": matched.bottom.min(),
        "margin_top": margin.top.max(),
        "margin_spread": margin.spread.max(),
        "margin_spread_least": margin.spread.min(),
        "margin_bottom": margin.bottom.min(),
        "span_top": span.top.max(),
        "span_spread": span.spread.max(),
        "span_residual": _log((margins.T - fitted).std()),
        "span_scale": _log(fitted.std()),
    }


def top_count(candidates: int) -> int:
    """How many of a bank's candidates count as its best.

    >>> top_count(1523), top_count(26)
    (12, 1)
    """
    return _share(candidates, TOP, _TOP_SHARE)


def _share(candidates: int, most: int, share: float) -> int:
    return min(most, max(1, int(candidates * share)))


class _Summary:
    """Statistics of rises `[classes, k]`, each `[classes]`."""

    def __init__(self, values: np.ndarray):
        ordered = np.sort(values, axis=1)
        few, many = top_count(values.shape[1]), _share(values.shape[1], WIDE, _WIDE_SHARE)
        self.top = ordered[:, -few:].mean(axis=1)
        self.wide = ordered[:, -many:].mean(axis=1)
        self.bottom = ordered[:, :few].mean(axis=1)
        self.spread = _log(values.std(axis=1))


def _views(answers: np.ndarray, mean: np.ndarray) -> dict[str, np.ndarray]:
    """Raw, matched and margin views of answers `[classes, n]`."""
    matched = np.stack([_mapped(a, m) for a, m in zip(answers, mean, strict=True)])
    return {"raw": sigmoid(answers), "matched": sigmoid(matched), "margin": matched}


def _mapped(answers: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Answers `[n]` on the straight line that fits them best to the references' mean."""
    centred = answers - answers.mean()
    slope = centred @ (mean - mean.mean()) / max(centred @ centred, _EPS)
    return mean.mean() + slope * centred


def _span(answers: np.ndarray) -> np.ndarray:
    """Orthonormal `[n, axes]` of the references' answers `[references, n]`: 1, mean, main axes."""
    mean = answers.mean(axis=0)
    axes = np.linalg.svd(answers - mean, full_matrices=False)[2][:_SPAN]
    return np.linalg.qr(np.concatenate([mean[None], np.ones((1, len(mean))), axes]).T)[0]


def _projected(answers: np.ndarray, span: np.ndarray) -> np.ndarray:
    coordinates = np.einsum("cn,cna->ca", answers, span)
    return np.einsum("cna,ca->cn", span, coordinates)


def _in_half(values: np.ndarray, outside: np.ndarray, half: int) -> np.ndarray:
    """The same over the carriers whose candidates stand in one half (`build.make_plan`)."""
    own = outside & (np.arange(outside.shape[1]) % HALVES == half)
    return _by_candidate(values, own)


def _by_candidate(values: np.ndarray, outside: np.ndarray) -> np.ndarray:
    """Mean `[classes, k]` of `[classes, k x r]` over the carriers outside the class.

    0 for a class that the references give every carrier.
    """
    shaped = values.reshape(len(values), -1, outside.shape[1]) * outside[:, None]
    return shaped.sum(axis=2) / np.maximum(outside.sum(axis=1), 1)[:, None]


def _log(value):
    return np.log(value + _EPS)
