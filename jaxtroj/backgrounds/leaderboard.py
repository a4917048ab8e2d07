"""The two published tables, with results beside the published rows."""

import html
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxtroj.backgrounds.results import CHALLENGE, clean_accuracy
from jaxtroj.csv_text import csv_text
from jaxtroj.record import shown

README = "Backgrounds Challenge README, 2020"
_VARIANTS = ("original", "mixed_same", "mixed_rand")
CHALLENGE_COLUMNS = ("Model", "Reference", "Challenge Accuracy", "Clean Accuracy (on IN-9)")
IN9_COLUMNS = ("Model", "Reference", "Original", "Mixed-Same", "Mixed-Rand", "BG-Gap")
FORMATS = ("text", "json", "csv", "html")


@dataclass(frozen=True)
class LeaderboardRow:
    """One network, all figures in percent or points, None where unknown.

    Attributes:
        model, reference: name, and where the figures come from.
        challenge, clean: challenge accuracy, and accuracy on the original pictures.
        original, mixed_same, mixed_rand, bg_gap: the second table.
        note: why figures are not comparable, or empty.
        is_upper_bound: `challenge` is one.
    """

    model: str
    reference: str
    challenge: float | None = None
    clean: float | None = None
    original: float | None = None
    mixed_same: float | None = None
    mixed_rand: float | None = None
    bg_gap: float | None = None
    note: str = ""
    is_upper_bound: bool = False


PUBLISHED = (
    LeaderboardRow("ResNet-50", README, 22.3, 95.6, 95.6, 86.2, 78.9, 7.3),
    LeaderboardRow("ResNet-50 (IN-9L)", README, 12.0, 96.4, 96.4, 89.8, 75.6, 14.2),
    LeaderboardRow("always 'dog'", README, 11.0),
    LeaderboardRow("VGG16-BN", README, None, None, 94.3, 83.6, 73.4, 10.2),
    LeaderboardRow("ResNet-152", README, None, None, 96.7, 89.3, 83.5, 5.8),
    LeaderboardRow("ResNet-50 (trained on Mixed-Rand)", README, None, None, 73.3, 71.5, 71.3, 0.2),
)
"""The rows of the published tables."""


def rows(results: Iterable[Mapping[str, Any]]) -> list[LeaderboardRow]:
    """One row for each network and its settings, results of both kinds joined.

    Of several results of one kind, network and settings the last counts. Where a network has
    several rows, their reference says the settings.
    """
    found: dict[tuple[str, str, str], dict[str, Mapping[str, Any]]] = {}
    for result in results:
        key = (result["model"], result["sha256"], json.dumps(_settings(result), sort_keys=True))
        found.setdefault(key, {})[result["kind"]] = result
    count = Counter(key[:2] for key in found)
    return [_row(kinds, count[key[:2]] > 1) for key, kinds in found.items()]


def _settings(result: Mapping[str, Any]) -> dict[str, Any]:
    """What the figures of one network depend on; `evaluate` knows float32 alone."""
    names = ("normalization", "restricted_to_mapped", "mapping_sha256")
    return {n: result.get(n) for n in names} | {"precision": result.get("precision", "float32")}


def _in_words(settings: Mapping[str, Any]) -> str:
    """Such as `half, all classes, float32`."""
    normalization = settings["normalization"]
    named = normalization.get("name") if isinstance(normalization, dict) else normalization
    mapping = settings["mapping_sha256"]
    return ", ".join(
        [
            str(named),
            "mapped classes" if settings["restricted_to_mapped"] else "all classes",
            *([f"mapping {str(mapping)[:8]}"] if mapping else []),
            str(settings["precision"]),
        ]
    )


def _row(kinds: Mapping[str, Mapping[str, Any]], is_one_of_several: bool) -> LeaderboardRow:
    figures: dict[str, Any] = {}
    first = next(iter(kinds.values()))
    settings = f" ({_in_words(_settings(first))})" if is_one_of_several else ""
    notes = [note for result in kinds.values() for note in result["reservations"]]
    for kind, result in kinds.items():
        if kind == CHALLENGE:
            figures["challenge"] = 100 * result["challenge_accuracy"]
            figures["is_upper_bound"] = result["is_upper_bound"]
            continue
        figures["clean"] = _percent(clean_accuracy(result))
        variants = result["variants"]
        for name in _VARIANTS:
            figures[name] = _percent(variants[name]["accuracy"] if name in variants else None)
        if figures["mixed_same"] is not None and figures["mixed_rand"] is not None:
            figures["bg_gap"] = figures["mixed_same"] - figures["mixed_rand"]
    note = "; ".join(dict.fromkeys(map(str, notes)))
    return LeaderboardRow(first["model"], f"this run{settings}", **figures, note=note)


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _challenge_cells(row: LeaderboardRow) -> tuple[str, ...]:
    bound = "at most " if row.is_upper_bound else ""
    return (row.model, row.reference, bound + _number(row.challenge), _number(row.clean))


def _in9_cells(row: LeaderboardRow) -> tuple[str, ...]:
    figures = (row.original, row.mixed_same, row.mixed_rand, row.bg_gap)
    return (row.model, row.reference, *map(_number, figures))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def tables(
    all_rows: Sequence[LeaderboardRow],
) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Both tables as (title, columns, cells of each row), the best challenge accuracy first."""
    challenge = [row for row in all_rows if row.challenge is not None]
    challenge.sort(key=lambda row: -(row.challenge or 0.0))
    in9 = [row for row in all_rows if row.original is not None or row.bg_gap is not None]
    return [
        ("Backgrounds Challenge", CHALLENGE_COLUMNS, [_challenge_cells(row) for row in challenge]),
        ("ImageNet-9", IN9_COLUMNS, [_in9_cells(row) for row in in9]),
    ]


def notes(all_rows: Sequence[LeaderboardRow]) -> list[str]:
    """Why rows are not comparable with the published ones, a sentence each."""
    return [f"{r.model}: not comparable with published rows: {r.note}" for r in all_rows if r.note]


def render(all_rows: Sequence[LeaderboardRow], form: str) -> str:
    """Both tables in one of `FORMATS`; figures in percent, best challenge accuracy first."""
    return {"text": _text, "json": _json, "csv": _csv, "html": _page}[form](all_rows)


def _text(all_rows: Sequence[LeaderboardRow]) -> str:
    """For a terminal, whose cursor no name of a stranger's file moves."""
    parts = []
    for title, head, cells in tables(all_rows):
        body = [tuple(map(shown, line)) for line in cells]
        widths = [max(len(line[i]) for line in (head, *body)) for i in range(len(head))]
        lines = ["  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
                 for line in (head, *body)]  # fmt: skip
        parts.append("\n".join([title, *lines]))
    return "\n\n".join([*parts, *map(shown, notes(all_rows))]) + "\n"


def _json(all_rows: Sequence[LeaderboardRow]) -> str:
    return json.dumps([vars(row) for row in all_rows], indent=1, allow_nan=False) + "\n"


def _csv(all_rows: Sequence[LeaderboardRow]) -> str:
    names = list(LeaderboardRow.__dataclass_fields__)
    return csv_text(names, ([getattr(row, name) for name in names] for row in all_rows))


def _page(all_rows: Sequence[LeaderboardRow]) -> str:
    style = (
        "body{font:16px sans-serif;margin:2em}table{border-collapse:collapse}"
        "th,td{border:1px solid #999;padding:.3em .6em;text-align:left}"
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f"<title>Backgrounds Challenge</title><style>{style}</style></head>\n"
        f"<body>\n{_html_tables(all_rows)}</body></html>\n"
    )


def _html_tables(all_rows: Sequence[LeaderboardRow]) -> str:
    """Both tables; every value is escaped."""
    parts = []
    for title, head, body in tables(all_rows):
        lines = [_html_line("th", head), *(_html_line("td", cells) for cells in body)]
        table = "\n".join(lines)
        parts.append(f"<h2>{html.escape(title)}</h2>\n<table>\n{table}\n</table>")
    parts += [f"<p>{html.escape(note)}</p>" for note in notes(all_rows)]
    return "<section>\n" + "\n".join(parts) + "\n</section>\n"


def _html_line(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"
