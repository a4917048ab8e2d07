"""The report as Markdown: counts, scores, and a table of what needs to be looked at."""

import re
from collections.abc import Iterable, Sequence

from jaxtroj.flags import in_doubt
from jaxtroj.record import Record, shown
from jaxtroj.record_text import summary
from jaxtroj.reporting.content import Content, Scored, architecture, kind_of_trigger

_SIGNS = re.compile(r"([\\`*_{}\[\]#!|~$@:]|(?<=www)\.)", re.IGNORECASE)


def render(content: Content) -> str:
    """The whole report; models that are called clean are counted, not listed."""
    lines = [
        f"# jaxtroj report: {escape(content.name)}",
        "",
        summary(content.records, content.accepted) + ".",
    ]
    lines += [f"\n{escape(problem)}" for problem in content.problems]
    if content.scored is not None:
        lines += ["", "## Scores", "", *_scores(content.scored)]
    flagged = [r for r in content.records if content.word(r) in ("poisoned", "gathered")]
    flagged.sort(key=lambda record: -record.probability)
    if flagged:
        lines += ["", "## Models to look at", "", *_flagged(content, flagged)]
    doubtful = [r for r in content.records if r.status == "ok" and in_doubt(r.findings)]
    if doubtful:
        lines += ["", "## Answers in doubt", "", *_doubtful(content, doubtful)]
    accepted = [r for r in content.records if content.word(r) == "accepted"]
    if accepted:
        lines += ["", "## Accepted models", "", *_accepted(content, accepted)]
    others = [r for r in content.records if r.status != "ok"]
    if others:
        lines += ["", "## Models without an answer", "", *_others(others)]
    return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    r"""Text that Markdown, HTML and a terminal show as it is, on one line.

    >>> escape("a|b <script> *c*\nd")
    'a\\|b &lt;script&gt; \\*c\\* d'
    >>> escape("www.a.b")  # GitHub makes a link of it
    'www\\.a.b'
    """
    line = shown(" ".join(text.split()))
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SIGNS.sub(lambda match: "\\" + match[1], line)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def _scores(scored: Scored) -> list[str]:
    columns = ("models", "n", "poisoned", "no answer", "log score", "95 % interval")
    columns += ("bar for success", "ROC AUC", "Brier", "accuracy")
    rows = [
        (
            escape(name),
            str(row.models),
            str(row.poisoned),
            str(scored.at_base_rate[name]),
            f"{row.log_score:.4f}",
            f"{row.log_score_low:.4f} to {row.log_score_high:.4f}",
            f"{row.success_log_score:.4f}",
            "none" if row.roc_auc is None else f"{row.roc_auc:.4f}",
            f"{row.brier_score:.4f}",
            f"{row.accuracy:.4f}",
        )
        for name, row in scored.scores.items()
    ]
    note = "No answer: models that failed or have no verdict; they count with the base rate."
    return [*_table(columns, rows), "", note]


def _flagged(content: Content, records: Sequence[Record]) -> list[str]:
    columns = ("model", "verdict", "P(poisoned)", "target", "architecture", "trigger", "reasons")
    rows = [
        (
            escape(record.model),
            content.word(record),
            f"{record.probability:.3f}",
            "" if record.target_class is None else str(record.target_class),
            escape(architecture(content, record)),
            escape(str(record.recovered.get("text") or kind_of_trigger(record))),
            escape(record.reason),
        )
        for record in records
    ]
    return _table(columns, rows)


def _doubtful(content: Content, records: Sequence[Record]) -> list[str]:
    """Flags ask for something to be done, whatever the verdict is; docs/flags.md says what."""
    rows = [
        (
            escape(record.model),
            content.word(record),
            f"{record.probability:.3f}",
            escape("; ".join(in_doubt(record.findings))),
        )
        for record in records
    ]
    return _table(("model", "verdict", "P(poisoned)", "doubts"), rows)


def _accepted(content: Content, records: Sequence[Record]) -> list[str]:
    columns = ("model", "P(poisoned)", "owner", "until", "reason")
    found = [(record, content.accepted.of(record)) for record in records]
    rows = [
        (
            escape(record.model),
            f"{record.probability:.3f}",
            escape(entry.owner),
            entry.expires.isoformat(),
            escape(entry.reason),
        )
        for record, entry in found
        if entry is not None
    ]
    return _table(columns, rows)


def _others(records: Sequence[Record]) -> list[str]:
    rows = [(escape(record.model), record.status, escape(record.reason)) for record in records]
    return _table(("model", "status", "why"), rows)
