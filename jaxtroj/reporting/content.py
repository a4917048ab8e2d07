"""What every report shows: the records of a run, and its scores where the truth is known."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from converters.errors import LoadError
from converters.files import leads_out, read_json, strict_json
from jaxtroj.accepted import NONE, Accepted
from jaxtroj.leaderboard.cases import (
    ARCHITECTURE,
    Case,
    Matched,
    architecture_of,
    at_base_rate,
    groups,
    labels,
    match,
    probabilities,
    read_truth,
    reliability_of,
    score_cases,
    value_of,
    worst_first,
)
from jaxtroj.leaderboard.curves import ExactRoc, roc_exact
from jaxtroj.leaderboard.predictions import Predictions
from jaxtroj.leaderboard.sweep import SweepPoint, sweep
from jaxtroj.record import Record, printable, shown
from jaxtroj.record_text import word_of
from jaxtroj.record_values import has_whole_texts
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.rounds.truth import names_places
from jaxtroj.scoring import NistRoc, ReliabilityBin, Scores, roc_nist
from jaxtroj.store import read_records

ALL = "all"
MAX_FILE_BYTES = 2**22  # settings.json and environment.json have a few kilobytes


@dataclass(frozen=True)
class Scored:
    """What the truth adds to a run.

    Attributes:
        matched: the cases, and how many models fell out.
        scores: of all cases, then of each value of the columns asked for; by name.
        at_base_rate: by the same names, how many of these cases have a record and no answer.
        bins: stated against observed probability of the models that have an answer.
        nist, exact: the two ROC curves; None when the models are of one kind.
        sweep: the trojan percentage sweep; empty likewise.
        parts: each model's part of the log score in nats.
        cells: each model's values of the columns asked for.
    """

    matched: Matched
    scores: Mapping[str, Scores]
    at_base_rate: Mapping[str, int]
    bins: tuple[ReliabilityBin, ...]
    nist: NistRoc | None
    exact: ExactRoc | None
    sweep: tuple[SweepPoint, ...]
    parts: Mapping[str, float]
    cells: Mapping[str, Mapping[str, str]]

    @property
    def cases(self) -> tuple[Case, ...]:
        """One for each labelled model."""
        return self.matched.cases

    @property
    def labels(self) -> dict[str, bool]:
        """Whether each labelled model is poisoned."""
        return {case.model: case.poisoned for case in self.cases}


@dataclass(frozen=True)
class Content:
    """Everything a report shows.

    Attributes:
        run: the run folder.
        records: the latest of each model, in the order of the scan.
        settings: of the scan; empty where the file cannot be read.
        sessions: versions and machine of every session of the scan, likewise.
        scored: None without truth.
        dataset: folder of what was scanned, where that is named; None otherwise.
        entries: its models by printable name; empty without it.
        checkout: folder that the models' addresses start at instead; None for none.
        problems: sentences about what could not be read, and about entries of `accepted`.
        accepted: poisoned models that are shown as accepted.
    """

    run: Path
    records: tuple[Record, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    sessions: tuple[Mapping[str, Any], ...] = ()
    scored: Scored | None = None
    dataset: Path | None = None
    entries: Mapping[str, ModelEntry] = field(default_factory=dict)
    checkout: Path | None = None
    problems: tuple[str, ...] = ()
    accepted: Accepted = NONE

    def word(self, record: Record) -> str:
        """The answer in one word, see `record_text.word_of`."""
        return word_of(record, self.accepted)

    @property
    def name(self) -> str:
        """Name of the run folder, printable."""
        return printable(self.run.resolve().name)


def read_content(
    run: Path,
    truth: Path | None = None,
    by: Sequence[str] = (),
    predicted_only: bool = False,
    seed: int = 0,
    accepted: Accepted = NONE,
    models: Path | None = None,
) -> Content:
    """Reads a run folder, and scores it where there is truth.

    Args:
        run: folder that `jaxtroj scan --out` wrote; a scan may still be writing to it.
        truth: METADATA.csv, a CSV of model and label, a manifest, or the dataset folder.
        by: METADATA columns to score by, besides the architecture.
        predicted_only: leave labelled models without a record out instead of scoring them as 0.5.
        seed: of the sweep's subsets.
        accepted: poisoned models that are shown as accepted.
        models: the folder or manifest that was scanned, which needs no labels; their addresses
            start at the working folder then, where they lie below it.
    Raises:
        StoreError: no run folder, or a record with values that no scan writes.
        DatasetError, UsageError: as `leaderboard.cases.read_truth`, `match` and `groups`.
    """
    records = tuple(read_records(run))
    settings, first = _json_file(run, "settings.json")
    environment, second = _json_file(run, "environment.json")
    found = environment.get("sessions")
    sessions = tuple(s for s in found if isinstance(s, dict)) if isinstance(found, list) else ()
    is_whole = not any(sessions[-1].get(name) for name in ("limit", "smoke")) if sessions else True
    dataset, entries = _scanned(models, truth)
    here = None if models is None else Path.cwd()
    scored = None
    if truth is not None:
        matched = match(_predictions(run, records), read_truth(truth), predicted_only)
        scored = score(matched, by, seed)
    return Content(
        run=run,
        records=records,
        settings=settings,
        sessions=sessions,
        scored=scored,
        dataset=dataset,
        entries=entries,
        checkout=None if here is None or not is_below(dataset, here) else here,
        problems=(
            *map(shown, filter(None, (first, second, _missing(models, entries, records)))),
            *accepted.warnings(records, is_whole),
        ),
        accepted=accepted,
    )


def _scanned(models: Path | None, truth: Path | None) -> tuple[Path | None, dict[str, ModelEntry]]:
    """The folder of what was scanned, and its models, where either names it."""
    named = models or (truth if truth is not None and names_places(truth) else None)
    if named is None:
        return None, {}
    entries = {printable(entry.model_id): entry for entry in iter_models(named)}
    return named if named.is_dir() else named.parent, entries


def _missing(
    models: Path | None, entries: Mapping[str, ModelEntry], records: Sequence[Record]
) -> str:
    names = [record.model for record in records if record.model not in entries]
    if models is None or not names:
        return ""
    return (
        f"{len(names)} models of the run are not in {printable(str(models))}, such as {names[0]}:"
        " expected what was scanned; reports have their names in the place of their paths"
    )


def is_below(path: Path | None, folder: Path) -> bool:
    """Whether a path is a folder or lies below it, by name; links are not followed."""
    return path is not None and Path(os.path.abspath(path)).is_relative_to(os.path.abspath(folder))


def score(matched: Matched, by: Sequence[str] = (), seed: int = 0) -> Scored:
    """Every score and curve of the cases. Raises DatasetError for an unknown column."""
    cases = matched.cases
    said, truth = probabilities(cases), labels(cases)
    is_mixed = bool(truth.any() and not truth.all())
    named: dict[str, Sequence[Case]] = {ALL: cases}
    for column in dict.fromkeys((ARCHITECTURE, *by)):
        parts = groups(cases, column)
        if len(parts) > 1 or column in by:
            named |= {f"{column} {name}": part for name, part in parts.items()}
    return Scored(
        matched=matched,
        scores={name: score_cases(part) for name, part in named.items()},
        at_base_rate={name: at_base_rate(part) for name, part in named.items()},
        bins=reliability_of(cases),
        nist=roc_nist(said, truth) if is_mixed else None,
        exact=roc_exact(said, truth) if is_mixed else None,
        sweep=sweep(cases, seed=seed),
        parts={case.model: part for case, part in worst_first(cases)},
        cells={case.model: {name: value_of(case, name) for name in by} for case in cases},
    )


def architecture(content: Content, record: Record) -> str:
    """What the truth calls the model's architecture, else what the scan recognised, else ""."""
    entry = content.entries.get(record.model)
    case = Case(record.model, False, math.nan, entry.metadata if entry else {}, record)
    return architecture_of(case) or ""


def kind_of_trigger(record: Record) -> str:
    """Kind of the trigger that the verdict shows; "" where none is."""
    if not record.poisoned:
        return ""
    kind = record.recovered.get("kind")
    return str(kind) if kind else "words" if record.recovered.get("text") else ""


def started(content: Content) -> str:
    """When the scan began, as "2026-01-31T12:00:00Z"; "" where that is not known."""
    try:
        text = content.sessions[0]["started"]
        return datetime.fromisoformat(text).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (IndexError, KeyError, TypeError, ValueError):
        return ""


def _predictions(run: Path, records: Sequence[Record]) -> Predictions:
    said = {r.model: r for r in records if r.status != "skipped"}
    skipped = frozenset(record.model for record in records) - said.keys()
    return Predictions(run, {name: r.probability for name, r in said.items()}, said, skipped)


def _json_file(run: Path, name: str) -> tuple[dict[str, Any], str]:
    """A JSON object, or an empty one and why; the records stand without it."""
    path = run / name
    if leads_out(path, run):  # a report may be passed on
        return {}, f"{path} is not read: it is a link to another folder"
    try:
        value = read_json(path, MAX_FILE_BYTES, strict_json)
        json.dumps(value, allow_nan=False)
    except LoadError as error:
        return {}, str(error)
    except ValueError:
        return {}, f"{path} is not read: it holds a number too large for a float"
    if not has_whole_texts(value):
        return {}, f"{path} is not read: it holds half of a surrogate pair, expected characters"
    return value, ""
