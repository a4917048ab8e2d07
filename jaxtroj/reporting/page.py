"""The report as one HTML file: nothing is fetched, and only its own script may run.

Names, reasons and texts come from strangers. Templates escape by default; what the script shows
goes through a JSON block and becomes text nodes, never markup; a content security policy names the
script and the style by their digests, so that nothing else would run or load.
"""

import base64
import hashlib
import json
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jaxtroj import __version__
from jaxtroj.record import Record
from jaxtroj.reporting import charts
from jaxtroj.reporting.beside import Beside
from jaxtroj.reporting.content import Content, architecture, kind_of_trigger, started
from jaxtroj.reporting.fields import fields_of
from jaxtroj.reporting.flips import read_flips
from jaxtroj.reporting.large import BRIEF, MOST_WHOLE, brief, spread, whole
from jaxtroj.reporting.pictures import PANELS, Picture, embed
from jaxtroj.reporting.texts import PlacedText, place

if TYPE_CHECKING:
    from jaxtroj.backgrounds.leaderboard import LeaderboardRow

_TEMPLATES = Path(__file__).parent / "templates"
WORDS = ("poisoned", "accepted", "clean", "gathered", "failed", "skipped")
_VERDICTS = ("poisoned", "accepted", "clean")
_DIGITS = 6  # significant ones, of numbers in the page


def render(
    content: Content,
    backgrounds: "Sequence[LeaderboardRow]" = (),
    beside: Beside | None = None,
    most: int = MOST_WHOLE,
) -> str:
    """The whole page. Equal content gives equal text.

    Args:
        content: of the run.
        backgrounds: rows of the Backgrounds Challenge to show beside it; none, no section.
        beside: another run of the same models, to compare with.
        most: models that the page holds everything of, see `large`.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = (_TEMPLATES / "page.css").read_text("utf-8")
    script = (_TEMPLATES / "page.js").read_text("utf-8")
    return environment.get_template("page.html.j2").render(
        content=content,
        version=__version__,
        style=Markup(style),
        script=Markup(script),
        style_digest=_digest(style),
        script_digest=_digest(script),
        data=Markup(_for_html(page_data(content, beside, most))),
        counts=_counts(content),
        seconds=_median_seconds(content.records),
        started=started(content),
        charts=charts.charts(content),
        width=charts.WIDTH,
        height=charts.HEIGHT,
        beside=beside,
        **_backgrounds(backgrounds),
    )


def _backgrounds(rows: "Sequence[LeaderboardRow]") -> dict[str, Any]:
    if not rows:
        return {"backgrounds": (), "remarks": ()}
    from jaxtroj.backgrounds.leaderboard import notes, tables  # loads jax

    return {"backgrounds": tables(rows), "remarks": notes(rows)}


def page_data(
    content: Content, beside: Beside | None = None, most: int = MOST_WHOLE
) -> dict[str, Any]:
    """What the script needs to build the table of models and their details; see `render`."""
    fields, shown = fields_of(content.records), whole(content, most)
    full = [record for record in content.records if record.model in shown]
    pictures, texts = embed(content.run, full), place(full, content.entries)
    steps = list(dict.fromkeys(step for record in content.records for step in record.seconds))
    scored, is_large = content.scored, len(full) < len(content.records)

    def model(record: Record) -> dict[str, Any] | list[Any]:
        names = [field.name for field in fields.get(record.kind, ())]
        told = _model(content, record, names, steps)
        told |= {} if beside is None else _beside(beside, record)
        if record.model not in shown:
            return brief(told)
        return told | _trigger(record, pictures.get(record.model), texts.get(record.model))

    return {
        "fields": {kind: [astuple(field) for field in found] for kind, found in fields.items()},
        "steps": steps,
        "panels": PANELS,
        "words": WORDS,
        "hasTruth": scored is not None,
        "beside": None if beside is None else beside.name,
        "brief": BRIEF,
        "spread": spread(content.records, fields) if is_large else None,
        "models": [model(record) for record in content.records],
    }


def _model(
    content: Content, record: Record, names: Sequence[str], steps: Sequence[str]
) -> dict[str, Any]:
    """One model for the script; lists are in the order of `names` and `steps`."""
    scored, acceptance = content.scored, content.accepted.of(record)
    label = scored.labels.get(record.model) if scored else None
    return {
        "model": record.model,
        "word": content.word(record),
        "acceptance": None if acceptance is None else str(acceptance),
        "probability": _short(record.probability),
        "label": None if label is None else ("poisoned" if label else "clean"),
        "wrong": label is not None and _is_wrong(content, record, label),
        "cost": _short(scored.parts.get(record.model)) if scored else None,
        "cells": dict(scored.cells.get(record.model, {})) if scored else {},
        "target": record.target_class,
        "sources": list(record.source_classes),
        "architecture": architecture(content, record),
        "seconds": _short(sum(record.seconds.values())) if record.seconds else None,
        "steps": [_short(record.seconds.get(step)) for step in steps],
        "kind": record.kind,
        "trigger": kind_of_trigger(record),
        "searched": len(record.searched) or None,
        "coverage": _coverage(record),
        "evidence": [_short(record.evidence.get(name)) for name in names],
        "reason": record.reason,
        "findings": list(record.findings),
        "sha256": record.sha256,
        "identity": record.identity,
    }


def _is_wrong(content: Content, record: Record, label: bool) -> bool:
    """Whether a verdict, at the threshold of its scan, is not the label; False without one."""
    return content.word(record) in _VERDICTS and record.poisoned != label


def _coverage(record: Record) -> list[list[Any]]:
    """Kinds of trigger that were searched for or counted: name, searched, share found or None."""
    names = dict.fromkeys((*record.searched, *record.found))
    return [[name, name in record.searched, _short(record.found.get(name))] for name in names]


def _beside(beside: Beside, record: Record) -> dict[str, Any]:
    """The same model in the other run: verdict, difference of probabilities, another file."""
    other = beside.records.get(record.model)
    if other is None:
        return {"besideWord": "", "difference": None, "besideFile": False}
    return {
        "besideWord": beside.word(other),
        "difference": _short(record.probability - other.probability),
        "besideFile": other.sha256 != record.sha256,
    }


def _trigger(record: Record, picture: Picture | None, text: PlacedText | None) -> dict[str, Any]:
    """What was recovered of the trigger, as far as there is anything."""
    found: dict[str, Any] = {}
    hidden = ("text", "flips")
    facts = {name: value for name, value in record.recovered.items() if name not in hidden}
    if flips := read_flips(record.recovered.get("flips")):
        found["flips"] = flips
    if facts:
        found["recovered"] = {
            str(name): _short(value) if isinstance(value, float) else str(value)
            for name, value in facts.items()
        }
    if picture is not None:
        found["picture"] = {"panels": picture.panels, "note": picture.note}
    if text is not None:
        found["text"] = {
            "words": text.words,
            "before": text.before,
            "after": text.after,
            "source": text.source_class,
        }
    return found


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{_DIGITS}g}")


def _counts(content: Content) -> dict[str, int]:
    found = Counter(map(content.word, content.records))
    rare = ("accepted", "gathered")
    return {word: found[word] for word in WORDS if found[word] or word not in rare}


def _median_seconds(records: Sequence[Record]) -> float | None:
    times = [sum(record.seconds.values()) for record in records if record.seconds]
    return statistics.median(times) if times else None


def _for_html(value: Any) -> str:
    """JSON that means the same inside a script element: no `<`, `>`, `&` or odd line end in it."""
    text = json.dumps(value, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _digest(text: str) -> str:
    """A source of a content security policy: what stands between the tags, by its sha256."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
