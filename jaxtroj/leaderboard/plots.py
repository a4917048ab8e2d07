"""The sweep and the ROC curves as SVG and PNG files, for papers. Imports matplotlib when used."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converters.files import write_atomic
from jaxtroj.leaderboard.curves import ExactRoc
from jaxtroj.leaderboard.sweep import SweepPoint
from jaxtroj.scoring import NistRoc

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's palette, which colour-blind people tell apart; in grey the dashes do.
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"
_DOTS_PER_INCH = 200


def save_sweep(stem: Path, points: Sequence[SweepPoint]) -> None:
    """Writes STEM.svg and STEM.png: log scores above, areas below, by percentage.

    Lines are means over the repeats; bands reach from the lowest to the highest.
    Raises OSError if a file cannot be written.
    """
    figure = new_figure(6.4, 6.4)
    upper, lower = figure.subplots(2, 1, sharex=True)
    _band(upper, points, lambda p: p.log_score, BLUE, "-", "detector")
    _band(upper, points, lambda p: p.base_rate_log_score, ORANGE, "--", "guessing the base rate")
    _band(upper, points, lambda p: p.success_log_score, GREEN, ":", "success: half of that")
    upper.set_ylabel("log score (nats)")
    upper.set_ylim(bottom=0)
    upper.legend(frameon=False)
    _band(lower, points, lambda p: p.roc_auc, BLUE, "-", "exact")
    _band(lower, points, lambda p: p.nist_auc, ORANGE, "--", "101 thresholds (NIST)")
    lower.set_ylabel("ROC AUC")
    lower.set_xlabel("poisoned models asked for (%)")
    lower.legend(frameon=False)
    save_figure(figure, stem)


def save_roc(stem: Path, nist: NistRoc, exact: ExactRoc) -> None:
    """Writes STEM.svg and STEM.png with both curves. Raises OSError if a file cannot be written."""
    figure = new_figure(4.8, 4.8)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
    axes.plot(
        exact.false_positive_rates,
        exact.true_positive_rates,
        color=BLUE,
        label=f"exact, area {exact.area:.4f}",
    )
    axes.plot(
        nist.false_positive_rates,
        nist.true_positive_rates,
        color=ORANGE,
        linestyle="--",
        label=f"101 thresholds (NIST), area {nist.area:.4f}",
    )
    axes.set_xlabel("false positive rate")
    axes.set_ylabel("true positive rate")
    axes.set_aspect("equal")
    axes.legend(frameon=False, loc="lower right")
    save_figure(figure, stem)


def new_figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure  # without pyplot there is no window and no global state

    return Figure(figsize=(width, height), layout="constrained")


def _band(
    axes,
    points: Sequence[SweepPoint],
    value: Callable[[SweepPoint], float],
    colour: str,
    style: str,
    label: str,
) -> None:
    """One line with its band; percentages without a value (models of one kind only) are gaps."""
    percentages = sorted({point.percentage for point in points})
    values = [[value(p) for p in points if p.percentage == x] for x in percentages]
    table = np.array(values, dtype=np.float64)
    axes.plot(percentages, table.mean(axis=1), color=colour, linestyle=style, label=label)
    axes.fill_between(
        percentages, table.min(axis=1), table.max(axis=1), color=colour, alpha=0.2, linewidth=0
    )


def save_figure(figure: "Figure", stem: Path) -> None:
    import matplotlib

    # Equal input gives equal bytes: no date, and ids inside the SVG that are not random.
    with matplotlib.rc_context({"svg.hashsalt": "jaxtroj", "svg.fonttype": "none"}):
        for suffix, metadata in ((".svg", {"Date": None}), (".png", {"Software": None})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix[1:], dpi=_DOTS_PER_INCH, metadata=metadata)
            write_atomic(stem.with_name(stem.name + suffix), buffer.getvalue())
