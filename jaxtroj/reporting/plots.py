"""The plots of a report as SVG and PNG files, for papers. Imports matplotlib when used."""

from pathlib import Path

from jaxtroj.errors import UsageError
from jaxtroj.leaderboard.plots import BLUE, ORANGE, new_figure, save_figure, save_roc, save_sweep
from jaxtroj.reporting.charts import Chart, histogram, reliability_chart
from jaxtroj.reporting.content import Content

_FILLS = {"clean": BLUE, "poisoned": ORANGE, "unlabelled": "0.6"}


def write_plots(folder: Path, content: Content) -> list[str]:
    """Writes probabilities, and with truth reliability, roc and sweep, as .svg and .png.

    Returns their names without ending; ROC and sweep need models of both kinds.
    Raises UsageError if a file cannot be written.
    """
    scored = content.scored
    try:
        _save_bars(folder / "probabilities", histogram(content))
        if scored is None:
            return ["probabilities"]
        _save_reliability(folder / "reliability", reliability_chart(scored))
        if scored.nist is None or scored.exact is None:
            return ["probabilities", "reliability"]
        save_roc(folder / "roc", scored.nist, scored.exact)
        save_sweep(folder / "sweep", scored.sweep)
    except OSError as error:
        raise UsageError(f"cannot write in {folder}: {error.strerror or error}") from error
    return ["probabilities", "reliability", "roc", "sweep"]


def _save_bars(stem: Path, chart: Chart) -> None:
    figure = new_figure(4.8, 3.6)
    axes = figure.subplots()
    for css, name in chart.legend:
        bars = [bar for bar in chart.bars if bar.css == css]
        axes.bar(
            [bar.low for bar in bars],
            [bar.top - bar.bottom for bar in bars],
            [bar.high - bar.low for bar in bars],
            [bar.bottom for bar in bars],
            align="edge",
            color=_FILLS[css],
            hatch="//" if css == "poisoned" else "",
            edgecolor="white",
            linewidth=0.5,
            label=name,
        )
    axes.set_xlim(0, 1)
    axes.set_xlabel(chart.x.label)
    axes.set_ylabel(chart.y.label)
    if len(chart.legend) > 1:
        axes.legend(frameon=False)
    save_figure(figure, stem)


def _save_reliability(stem: Path, chart: Chart) -> None:
    figure = new_figure(4.2, 4.2)
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color="0.6", linewidth=0.8)
    for line in chart.lines:
        axes.plot([x for x, _ in line.points], [y for _, y in line.points], "o-", color=BLUE)
    axes.set_xlabel(chart.x.label)
    axes.set_ylabel(chart.y.label)
    axes.set_aspect("equal")
    save_figure(figure, stem)
