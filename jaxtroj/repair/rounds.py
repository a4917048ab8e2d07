"""Scan, unlearn, scan again: what a repaired file still falls for is unlearnt in a next round."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from converters.files import write_atomic
from converters.model import Model
from jaxtroj.errors import RepairError
from jaxtroj.record import Record
from jaxtroj.repair.mend import (
    UNLEARNT,
    WORKS,
    Mended,
    Patient,
    examined_again,
    is_kept,
    mended,
    unlearnt,
)
from jaxtroj.repair.outcome import Attack, accuracy, outcome, success
from jaxtroj.repair.training import Tuning
from jaxtroj.rounds import ModelEntry
from jaxtroj.settings import Settings

_APART = 1000
"""Between the seeds of rounds."""


@dataclass(frozen=True)
class Course:
    """What became of a model over rounds.

    Attributes:
        mended: by method; every trigger of every round is measured before and after.
        triggers: how many were unlearnt in each round.
        records: of the model, then of the file that each round wrote; the last one is kept.
        left: recovered from the last file, work on it, and were not unlearnt: rounds were up, or
            unlearning them would have cost too much of the accuracy. None where that file could
            not be scanned, so that nobody knows.
    """

    mended: Mended
    triggers: tuple[int, ...]
    records: tuple[Record, ...]
    left: int | None


def in_rounds(
    patient: Patient,
    entry: ModelEntry,
    settings: Settings,
    path: Path,
    report: Path,
    how: Tuning,
    most: int,
    say: Callable[[str], None],
) -> Course:
    """Repair by each method; unlearning in up to `most` rounds, each after a scan of its file.

    A round that does not keep the accuracy (`is_kept`) on the examples that are learnt from, or
    makes weights that are no numbers, is taken back.

    Args:
        patient: the model.
        entry: of the model; the repaired file is scanned with its examples.
        settings: of scans; their seed is that of batches.
        path: of the repaired file.
        report: that lies beside it; an earlier one is removed before the file becomes another.
        how: length and rate of training.
        most: rounds, at least 1.
        say: told of each step as it begins.

    Raises:
        RepairError: the first round makes a network that computes no numbers; nothing is written.
        OSError: the file cannot be written.
    """
    first = mended(patient, how=how, seed=settings.seed, say=say)
    model, learn = first.models[UNLEARNT], patient.data.learn
    counts, records = [len(patient.attacks)], [patient.record]
    for number in range(1, most + 1):
        report.unlink(missing_ok=True)
        _write(path, patient, model)
        say(f"the repaired network is {path}; scanning it")
        record, found = examined_again(
            replace(entry, model_id=path.name, model_path=path), settings
        )
        records.append(record)
        fresh = [attack for attack in found if success(model, learn, attack) >= WORKS]
        if number == most or not fresh:
            break
        wider = replace(patient, attacks=(*patient.attacks, *fresh))
        say(f"round {number + 1}: {len(fresh)} more triggers")
        after, why_not = _next_round(wider, how, settings.seed + number * _APART, model)
        if why_not:
            say(f"round {number + 1} is taken back: {why_not}")
            break
        patient, model = wider, after
        counts.append(len(fresh))
    done = _measured(first, patient, model)
    left = len(fresh) if records[-1].status == "ok" else None
    return Course(done, tuple(counts), tuple(records), left)


def _next_round(patient: Patient, how: Tuning, seed: int, model: Model) -> tuple[Model, str]:
    """The model after another round, and why it is not to be kept; "" where it is."""
    learn = patient.data.learn
    try:
        after, _ = unlearnt(patient, how, seed, model)
    except RepairError as error:  # what the rounds before reached is good all the same
        return model, str(error)
    is_good = is_kept(accuracy(model, learn), accuracy(after, learn))
    return after, "" if is_good else "it costs too much of the accuracy"


def _write(path: Path, patient: Patient, model: Model) -> None:
    params = {name: np.asarray(value) for name, value in model.params.items()}
    write_atomic(path, patient.file.contents(params))


def _measured(first: Mended, patient: Patient, model: Model) -> Mended:
    """The outcomes with the triggers of all rounds, on held-out examples."""
    held = patient.data.held
    attacks: tuple[Attack, ...] = patient.attacks
    models: dict[str, Any] = {**first.models, UNLEARNT: model}
    after = {name: outcome(one, held, attacks) for name, one in models.items()}
    return Mended(outcome(patient.model, held, attacks), after, models)
