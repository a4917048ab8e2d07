"""One model from its file to its repaired weights, with baselines on the same examples."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from converters.model import Model
from converters.rewriting import Rewritable, open_rewritable
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.repair.data import RepairData, divided
from jaxtroj.repair.outcome import Attack, Outcome, outcome
from jaxtroj.repair.pruning import pruned
from jaxtroj.repair.training import Tuning, stamp_of, tuned
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan.attempt import Attempt, OnStep, examples_size, silent, taken
from jaxtroj.scan.model import scan_attempt
from jaxtroj.settings import Settings
from jaxtroj.verdict import ScanError

UNLEARNT, PRUNED, TUNED = "unlearning", "pruning", "fine-tuning"
METHODS = (UNLEARNT, PRUNED, TUNED)
GOAL, MOST_LOST = 0.10, 0.03
"""A repair converged: recovered triggers work on at most this share, with at most so much of the
clean accuracy lost."""
MOST_CYCLES = 4
"""Of training; baselines get as many as unlearning took."""
_ENOUGH = 0.05  # attack success rate on the examples that are learnt from, which ends unlearning
_WORKS = 0.5  # attack success rate from which a recovered trigger is unlearnt
_MOST_STAMPS = 6


@dataclass(frozen=True)
class Patient:
    """A model that was searched, and what its repair starts from.

    Attributes:
        file: the opened file.
        model: over pictures in [0, 1], as the examples are.
        data: the examples, divided.
        attacks: recovered triggers that are unlearnt, the strongest first.
        record: of the scan.
    """

    file: Rewritable
    model: Model
    data: RepairData
    attacks: tuple[Attack, ...]
    record: Any


@dataclass(frozen=True)
class Mended:
    """What became of a model.

    Attributes:
        before: of the model as it was.
        after: by method, see `METHODS`; pruning is missing where it cannot be done.
        models: the model of each method.
    """

    before: Outcome
    after: Mapping[str, Outcome] = field(default_factory=dict)
    models: Mapping[str, Model] = field(default_factory=dict)

    @property
    def converged(self) -> bool:
        """Whether unlearning reached its goals on held-out examples."""
        done = self.after[UNLEARNT]
        return done.worst <= GOAL and self.before.accuracy - done.accuracy <= MOST_LOST


def examined(entry: ModelEntry, settings: Settings, on_step: OnStep = silent) -> Patient:
    """Scan a model for the triggers that are to be unlearnt.

    Raises:
        ScanError: the scan failed; its record says why.
        LoadError, ConversionError: the weights could not be written back.
        ExamplesError: there are too few labelled examples.
    """
    attempt, opened = Attempt(entry, settings, on_step), []

    def opener(attempt: Attempt) -> Model:
        file = open_rewritable(entry.model_path, settings.input_form(), examples_size(attempt))
        attempt.sha256 = file.sha256
        opened.append(file)
        return taken(attempt, file.model)

    record = scan_attempt(attempt, opener)
    if record.status != "ok":
        raise ScanError(record)
    context: Any = attempt.context
    if attempt.kind != "image":
        raise ExamplesError("repair is for image classifiers; this model takes embeddings")
    images = np.asarray(context.examples.images)
    data = divided(images, np.asarray(context.examples.labels))
    found = attempt.evidence.triggers
    works = [one for one in found if one.attack_success_rate >= _WORKS] or list(found[:1])
    attacks = tuple(
        Attack(stamp_of(one), one.target_class, one.source_classes) for one in works[:_MOST_STAMPS]
    )
    return Patient(opened[0], context.opened, data, attacks, record)


def mended(
    patient: Patient,
    planted: Attack | None = None,
    how: Tuning | None = None,
    seed: int = 0,
    methods: tuple[str, ...] = METHODS,
    say: Callable[[str], None] = lambda method: None,
) -> Mended:
    """Repair a model by each method, and measure every one on the held-out examples.

    Args:
        patient: the model.
        planted: the trigger that was planted, where that is known.
        how: length and rate of training.
        seed: of batches.
        methods: out of `METHODS`.
        say: told of each method as it begins.
    """
    held = patient.data.held
    result = Mended(outcome(patient.model, held, patient.attacks, planted))
    for method, model in _models(patient, how or Tuning(), seed, methods, say):
        done = outcome(model, held, patient.attacks, planted)
        result = replace(
            result,
            after={**result.after, method: done},
            models={**result.models, method: model},
        )
    return result


def _models(
    patient: Patient,
    how: Tuning,
    seed: int,
    methods: tuple[str, ...],
    say: Callable[[str], None],
) -> Iterator[tuple[str, Model]]:
    learn, cycles = patient.data.learn, 1
    for method in methods:
        say(method)
        if method == UNLEARNT:
            model, cycles = _unlearnt(patient, how, seed)
            yield method, model
        elif method == TUNED:
            yield method, tuned(patient.model, learn, (), how.times(cycles), seed)
        else:
            try:
                model, masks = pruned(patient.model, learn)
            except EvidenceError:  # the table of methods has no row then
                continue
            yield method, tuned(model, learn, (), how.times(cycles), seed, masks)


def _unlearnt(patient: Patient, how: Tuning, seed: int) -> tuple[Model, int]:
    """The model once its triggers work on few of the examples that it learns from, and cycles."""
    learn, model = patient.data.learn, patient.model
    stamps = [attack.stamp for attack in patient.attacks]
    for cycle in range(1, MOST_CYCLES + 1):
        model = tuned(model, learn, stamps, how, seed + cycle)
        if outcome(model, learn, patient.attacks).worst <= _ENOUGH:
            return model, cycle
    return model, MOST_CYCLES
