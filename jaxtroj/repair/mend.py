"""One model from its file to its repaired weights, with baselines on the same examples."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from converters.adjusted_logits import unadjusted
from converters.model import Model
from converters.rewriting import Rewritable, open_rewritable
from jaxtroj.errors import EvidenceError, ExamplesError, RepairError
from jaxtroj.record import Record
from jaxtroj.repair.data import RepairData, divided
from jaxtroj.repair.outcome import Attack, Outcome, mistaken, outcome
from jaxtroj.repair.pruning import pruned
from jaxtroj.repair.training import Tuning, stamp_of, tuned
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan.attempt import Attempt, OnStep, silent, taken
from jaxtroj.scan.model import scan_attempt
from jaxtroj.scan.opening import open_model
from jaxtroj.scan.public_code import settled
from jaxtroj.settings import Settings
from jaxtroj.verdict import ScanError

UNLEARNT, PRUNED, TUNED = "unlearning", "pruning", "fine-tuning"
METHODS = (UNLEARNT, PRUNED, TUNED)
GOAL, MOST_LOST = 0.10, 0.03
"""A repair converged: recovered triggers work on at most this share, with at most so much of the
clean accuracy lost."""
MOST_CYCLES = 4
"""Of training; baselines get as many as unlearning took."""
_ENOUGH = 0.05  # attack success rate, less that of clean pictures, which ends unlearning
WORKS = 0.5
"""Attack success rate from which a recovered trigger is unlearnt."""
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
    def had_a_trigger(self) -> bool:
        """Whether a recovered trigger worked before; without one there was nothing to unlearn."""
        return self.before.worst > GOAL

    @property
    def converged(self) -> bool:
        """Whether there was a trigger, and unlearning reached its goals on held-out examples."""
        done = self.after[UNLEARNT]
        is_gone = self.had_a_trigger and done.worst <= GOAL
        return is_gone and is_kept(self.before.accuracy, done.accuracy)


def is_kept(before: float, after: float) -> bool:
    """Whether at most `MOST_LOST` of an accuracy is gone.

    >>> is_kept(0.86, 0.83), is_kept(0.86, 0.8299)
    (True, False)
    """
    return before - after <= MOST_LOST + 1e-9


def examined(entry: ModelEntry, settings: Settings, on_step: OnStep = silent) -> Patient:
    """Scan a model for the triggers that are to be unlearnt.

    Raises:
        ScanError: the scan failed, or the weights could not be written back; its record says why.
        ExamplesError: there are too few labelled examples, or the model is none of images.
    """
    _refuse_texts(entry.kind)
    attempt, opened = Attempt(entry, settings, on_step), []

    def opener(attempt: Attempt) -> Model:
        path, code = entry.model_path, entry.code
        file = settled(attempt, lambda form, size: open_rewritable(path, form, size, code))
        attempt.sha256 = file.sha256
        _check_writable(file)
        opened.append(file)
        return taken(attempt, file.model)

    record = scan_attempt(attempt, opener)
    if record.status != "ok":
        raise ScanError(record)
    context: Any = attempt.context
    _refuse_texts(attempt.kind)
    images = np.asarray(context.examples.images)
    data = divided(images, np.asarray(context.examples.labels))
    attacks = _attacks(attempt) or _attacks(attempt, 0.0)[:1]
    return Patient(opened[0], unadjusted(context.opened), data, attacks, record)


def _refuse_texts(kind: str) -> None:
    """Before anything is opened: no other form of the file would help."""
    if kind != "image":
        raise ExamplesError(f"repair is for image classifiers; this is a {kind} model")


def _check_writable(file: Rewritable) -> None:
    """Write the file to memory as it is: what cannot be written is not searched for an hour.

    Raises:
        ConversionError: weights cannot be written back.
        RepairError: there is nothing to train.
    """
    if not file.weights:
        raise RepairError(
            "the file names no floating weights of layers that could be trained; export the network"
            " in float32, with its weights as initialisers that no node computes"
        )
    file.contents({name: np.asarray(value) for name, value in file.model.params.items()})


def examined_again(entry: ModelEntry, settings: Settings) -> tuple[Record, tuple[Attack, ...]]:
    """The record of a repaired file, and the triggers that work on it; none if the scan failed."""
    attempt = Attempt(entry, settings)
    record = scan_attempt(attempt, open_model)
    return record, _attacks(attempt)


def _attacks(attempt: Attempt, least: float = WORKS) -> tuple[Attack, ...]:
    """Recovered triggers that work on at least that share of what the scan measured on."""
    works = [one for one in attempt.evidence.triggers if one.attack_success_rate >= least]
    return tuple(
        Attack(stamp_of(one), one.target_class, one.source_classes) for one in works[:_MOST_STAMPS]
    )


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

    Raises:
        RepairError: a method makes a network that computes no numbers.
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
    learn, weights, cycles = patient.data.learn, patient.file.weights, 1
    for method in methods:
        say(method)
        if method == UNLEARNT:
            model, cycles = unlearnt(patient, how, seed)
            yield method, model
        elif method == TUNED:
            yield method, tuned(patient.model, learn, (), how.times(cycles), seed, weights=weights)
        else:
            try:
                model, masks = pruned(patient.model, learn)
            except EvidenceError:  # the table of methods has no row then
                continue
            yield method, tuned(model, learn, (), how.times(cycles), seed, masks, weights=weights)


def unlearnt(
    patient: Patient, how: Tuning, seed: int, start: Model | None = None
) -> tuple[Model, int]:
    """The model once its triggers work on few of the examples that it learns from, and cycles.

    Few beyond those that a weak network takes for the target without any trigger.

    Args:
        patient: the model as it was, which says what is right of clean pictures, and its triggers.
        how, seed: see `mended`.
        start: a model of the same form to go on from; None for the patient's own.

    Raises:
        RepairError: see `tuned` and `outcome`.
    """
    learn, weights = patient.data.learn, patient.file.weights
    model, teacher = start or patient.model, patient.model
    stamps = [attack.stamp for attack in patient.attacks]
    usual = [mistaken(patient.model, learn, attack) for attack in patient.attacks]
    for cycle in range(1, MOST_CYCLES + 1):
        model = tuned(model, learn, stamps, how, seed + cycle, None, teacher, weights)
        rates = outcome(model, learn, patient.attacks).recovered
        if all(rate - own <= _ENOUGH for rate, own in zip(rates, usual, strict=True)):
            return model, cycle
    return model, MOST_CYCLES
