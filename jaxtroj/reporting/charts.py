"""The plots of the page as data for one SVG template: lines, bands, bars, in plot coordinates.

The page colours them by class, so that they follow light and dark; `plots` draws for papers.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from jaxtroj.leaderboard.sweep import SweepPoint
from jaxtroj.record import Record
from jaxtroj.reporting.content import Content, Scored

WIDTH, HEIGHT = 320.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 10.0, 8.0, 36.0
BINS = 20
Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """From 0 to `high`, with labelled ticks."""

    label: str
    high: float
    ticks: tuple[float, ...]


@dataclass(frozen=True)
class Line:
    """A line with its name in the legend; `css` is its class."""

    name: str
    css: str
    points: tuple[Point, ...]
    has_dots: bool = False


@dataclass(frozen=True)
class Bar:
    """From `low` to `high` on the first axis, from `bottom` to `top` on the second."""

    css: str
    low: float
    high: float
    bottom: float
    top: float


@dataclass(frozen=True)
class Chart:
    """One plot: what it shows in words is its alt text; `rows` are its numbers as a table."""

    key: str
    title: str
    words: str
    x: Axis
    y: Axis
    lines: tuple[Line, ...] = ()
    bands: tuple[Line, ...] = ()
    bars: tuple[Bar, ...] = ()
    has_diagonal: bool = False
    legend: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    def across(self, value: float) -> float:
        """Where a value of the first axis is, in the SVG's units."""
        return round(LEFT + value / self.x.high * (WIDTH - LEFT - RIGHT), 1)

    def up(self, value: float) -> float:
        """Where a value of the second axis is, in the SVG's units."""
        return round(HEIGHT - BOTTOM - value / self.y.high * (HEIGHT - TOP - BOTTOM), 1)

    def path(self, line: Line) -> str:
        """SVG coordinates of a line; points that fall on one another are drawn once."""
        places = ((self.across(x), self.up(y)) for x, y in line.points if math.isfinite(y))
        return " ".join(f"{x:g},{y:g}" for (x, y), _ in groupby(places))


def charts(content: Content) -> list[Chart]:
    """The plots that the content allows: probabilities always, the others with truth."""
    found = [histogram(content)]
    scored = content.scored
    if scored is None:
        return found
    found.append(reliability_chart(scored))
    if scored.nist is not None:
        found.append(roc_chart(scored))
    if scored.sweep:
        found += [sweep_chart(scored.sweep), sweep_area_chart(scored.sweep)]
    return found


def histogram(content: Content) -> Chart:
    """How many models have which probability; by label where it is known."""
    done = [record for record in content.records if record.status == "ok"]
    labels = content.scored.labels if content.scored else {}
    named = {
        "clean": [r for r in done if labels.get(r.model) is False],
        "poisoned": [r for r in done if labels.get(r.model) is True],
        "unlabelled": [r for r in done if r.model not in labels],
    }
    counts = {name: _counts(records) for name, records in named.items() if records}
    bars, base = [], [0] * BINS
    for name, column in counts.items():
        for place, count in enumerate(column):
            if count:
                low, top = place / BINS, base[place] + count
                bars.append(Bar(name, low, low + 1 / BINS, base[place], top))
                base[place] = top
    rows = tuple(
        (f"{i / BINS:.2f} to {(i + 1) / BINS:.2f}", *(str(c[i]) for c in counts.values()))
        for i in range(BINS)
        if base[i]
    )
    below = sum(base[: BINS // 2])
    return Chart(
        key="histogram",
        title="Probabilities",
        words=f"Histogram of the stated probabilities of {len(done)} models: {below} below 0.5,"
        f" {len(done) - below} at or above.",
        x=_unit("P(poisoned)"),
        y=_axis("models", max(*base, 1), whole=True),
        bars=tuple(bars),
        legend=tuple((name, name) for name in counts),
        columns=("probability", *counts),
        rows=rows,
    )


def _counts(records: Iterable[Record]) -> list[int]:
    counts = [0] * BINS
    for record in records:
        counts[min(int(record.probability * BINS), BINS - 1)] += 1
    return counts


def reliability_chart(scored: Scored) -> Chart:
    """Stated probability against the share of poisoned models."""
    points = tuple((b.mean_probability, b.poisoned_fraction) for b in scored.bins)
    gap = sum(b.count * abs(b.mean_probability - b.poisoned_fraction) for b in scored.bins)
    mean = gap / max(1, sum(b.count for b in scored.bins))
    return Chart(
        key="reliability",
        title="Reliability",
        words="Share of poisoned models against stated probability, in bins; a calibrated detector"
        f" lies on the diagonal. Mean distance from it {mean:.3f}.",
        x=_unit("stated probability"),
        y=_unit("share poisoned"),
        lines=(Line("this run", "first", points, has_dots=True),),
        has_diagonal=True,
        columns=("probability", "models", "stated", "observed"),
        rows=tuple(
            (
                f"{b.low:.1f} to {b.high:.1f}",
                str(b.count),
                f"{b.mean_probability:.3f}",
                f"{b.poisoned_fraction:.3f}",
            )
            for b in scored.bins
        ),
    )


def roc_chart(scored: Scored) -> Chart:
    """Both ROC curves; needs models of both kinds."""
    exact, nist = scored.exact, scored.nist
    if exact is None or nist is None:
        raise ValueError("a ROC curve needs models of both kinds")
    false_rates, true_rates = exact.false_positive_rates, exact.true_positive_rates
    rates = (0.01, 0.05, 0.1, 0.2, 0.5)
    hits = [max(float(t) for f, t in zip(false_rates, true_rates, strict=True) if f <= r)
            for r in rates]  # fmt: skip
    return Chart(
        key="roc",
        title="ROC",
        words=f"True against false positive rate. Exact area {exact.area:.4f}, at NIST's 101"
        f" thresholds {nist.area:.4f}; at 10 % false positives {100 * hits[2]:.0f} % are found.",
        x=_unit("false positive rate"),
        y=_unit("true positive rate"),
        lines=(
            Line("exact", "first", _pairs(false_rates, true_rates)),
            Line(
                "NIST's 101 thresholds",
                "second",
                _pairs(nist.false_positive_rates, nist.true_positive_rates),
            ),
        ),
        has_diagonal=True,
        columns=("false positive rate at most", "true positive rate"),
        rows=tuple((f"{rate:.2f}", f"{hit:.3f}") for rate, hit in zip(rates, hits, strict=True)),
    )


def _pairs(across: np.ndarray, up: np.ndarray) -> tuple[Point, ...]:
    return tuple(zip(across.tolist(), up.tolist(), strict=True))


_SWEEP_SHOWN = (1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99)


def sweep_chart(points: Sequence[SweepPoint]) -> Chart:
    """Log scores by percentage of poisoned models; bands from lowest to highest repeat."""
    said = _by_percentage(points, lambda p: p.log_score)
    guess = _by_percentage(points, lambda p: p.base_rate_log_score)
    bar = _by_percentage(points, lambda p: p.success_log_score)
    highest = max(max(values) for _, values in (*said, *guess))
    below = sum(_mean(s) < _mean(b) for (_, s), (_, b) in zip(said, bar, strict=True))
    return Chart(
        key="sweep",
        title="Trojan percentage sweep",
        words="Log score by percentage of poisoned models: the detector, guessing the base rate,"
        f" and half of that, the bar for success. Below the bar at {below} of {len(said)}"
        " percentages.",
        x=Axis("poisoned models asked for (%)", 100.0, (0, 25, 50, 75, 100)),
        y=_axis("log score (nats)", highest),
        lines=(
            Line("detector", "first", _means(said)),
            Line("guessing the base rate", "second", _means(guess)),
            Line("success", "third", _means(bar)),
        ),
        bands=(_band("first", said),),
        columns=("%", "detector", "base rate", "success"),
        rows=tuple(
            (str(p), f"{_mean(s):.3f}", f"{_mean(g):.3f}", f"{_mean(b):.3f}")
            for (p, s), (_, g), (_, b) in zip(said, guess, bar, strict=True)
            if p in _SWEEP_SHOWN
        ),
    )


def sweep_area_chart(points: Sequence[SweepPoint]) -> Chart:
    """ROC areas by percentage of poisoned models."""
    exact = _by_percentage(points, lambda p: p.roc_auc)
    nist = _by_percentage(points, lambda p: p.nist_auc)
    values = [_mean(v) for _, v in exact if math.isfinite(_mean(v))]
    return Chart(
        key="sweep-area",
        title="ROC area in the sweep",
        words=f"ROC area by percentage of poisoned models, from {min(values):.3f} to"
        f" {max(values):.3f}.",
        x=Axis("poisoned models asked for (%)", 100.0, (0, 25, 50, 75, 100)),
        y=_unit("ROC area"),
        lines=(
            Line("exact", "first", _means(exact)),
            Line("NIST's 101 thresholds", "second", _means(nist)),
        ),
        bands=(_band("first", exact),),
        columns=("%", "exact", "NIST"),
        rows=tuple(
            (str(p), f"{_mean(e):.3f}", f"{_mean(n):.3f}")
            for (p, e), (_, n) in zip(exact, nist, strict=True)
            if p in _SWEEP_SHOWN
        ),
    )


def _by_percentage(
    points: Sequence[SweepPoint], value: Callable[[SweepPoint], float]
) -> list[tuple[int, list[float]]]:
    ordered = sorted(points, key=lambda p: p.percentage)
    return [(p, [value(x) for x in same]) for p, same in groupby(ordered, lambda x: x.percentage)]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _means(values: Sequence[tuple[int, list[float]]]) -> tuple[Point, ...]:
    return tuple((float(p), _mean(v)) for p, v in values)


def _band(css: str, values: Sequence[tuple[int, list[float]]]) -> Line:
    above = [(float(p), max(v)) for p, v in values]
    below = [(float(p), min(v)) for p, v in reversed(values)]
    return Line("from lowest to highest", css, tuple(above + below))


def _unit(label: str) -> Axis:
    return Axis(label, 1.0, (0, 0.25, 0.5, 0.75, 1))


def _axis(label: str, highest: float, whole: bool = False) -> Axis:
    """From 0 to a round number that is not below `highest`, in at most five steps."""
    size = 10 ** math.floor(math.log10(highest / 5)) if highest > 0 else 1.0
    step = next(size * f for f in (1, 2, 2.5, 5, 10) if size * f * 5 >= highest)
    if whole:
        step = float(max(1, math.ceil(step)))
    count = max(1, math.ceil(highest / step))
    return Axis(label, step * count, tuple(step * n for n in range(count + 1)))
