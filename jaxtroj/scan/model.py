"""One model to one record: the same way, and one failure path, for every kind of model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from converters.errors import ENDS
from jaxtroj import compiled, runtime
from jaxtroj.calibration import Calibrator
from jaxtroj.caller_settings import usual_jax
from jaxtroj.evidence.gather import Evidence, gather_steps
from jaxtroj.evidence.stage import NO_CALIBRATOR, Fitted, Stage, Subject, stages_for
from jaxtroj.record import Record
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan.attempt import Attempt, OnStep, silent
from jaxtroj.scan.classifiers import ClassifierScan
from jaxtroj.scan.images import ImageScan
from jaxtroj.scan.judging import check_finite, judge, lacking, stop_rule
from jaxtroj.scan.kinds import KindOfScan
from jaxtroj.scan.opening import open_model
from jaxtroj.scan.records import answered_record, failed_record
from jaxtroj.scan.texts import HeadScan
from jaxtroj.settings import Settings

if TYPE_CHECKING:
    from converters.model import Model

_KINDS = {"image": ImageScan, "text": HeadScan, "text-classifier": ClassifierScan}

Opener = Callable[[Attempt], "Model"]
"""Opens and converts the model of an attempt, which knows it then; see `opening.open_model`."""


def scan_model(
    entry: ModelEntry,
    settings: Settings,
    trigger_path: Path | None = None,
    on_step: OnStep | None = None,
) -> Record:
    """The record of one model; whatever goes wrong with it is a record of status `failed`.

    The model is opened in the caller's process, and what it takes of time and memory the caller
    bears; `jaxtroj.engine.run.answer` has limits for it.

    Args:
        entry: the model file and its examples.
        settings: what changes the answer.
        trigger_path: where the picture of the recovered trigger goes; None writes none.
        on_step: told of each step as it begins.

    Raises:
        EngineError: jax does not have what JAX_PLATFORMS asks for.
    """
    runtime.check_backend()
    return scan_attempt(Attempt(entry, settings, on_step or silent), open_model, trigger_path)


def scan_attempt(
    attempt: Attempt, open_network: Opener, trigger_path: Path | None = None
) -> Record:
    """The record of a model that is opened in any way; see `scan_model`.

    Args:
        attempt: a fresh one; what is found out stays in it.
        open_network: opens and converts the model.
        trigger_path: see `scan_model`.
    """
    compiled.make_room()
    try:
        with usual_jax():
            model = open_network(attempt)
            return _answer(attempt, _KINDS[attempt.kind](attempt, model, trigger_path))
    except ENDS:
        raise
    except BaseException as error:  # A record is owed for every model: the fault goes into it.
        return failed_record(attempt, error)


def _answer(attempt: Attempt, scan: KindOfScan) -> Record:
    prepared = scan.prepare()
    attempt.context = prepared.context
    calibrator = attempt.calibrator
    fitted = fitted_on(calibrator)
    named = attempt.settings.stages_named(attempt.kind)
    stages = stages_for(scan.stages, prepared.subject, named, fitted)
    for progress in gather_steps(prepared.context, stages, stop_rule(attempt, calibrator)):
        attempt.gathered(progress.evidence)
        if progress.following:
            attempt.on_step(attempt.name, progress.following)
    usual = _usual(scan.stages, prepared.subject, calibrator, fitted)
    attempt.unsearched = _unsearched(usual, attempt.evidence)
    attempt.flags = scan.flags(prepared.context)
    check_finite(attempt)
    lacks = lacking(scan.stages, fitted.stages, attempt.evidence.stages)
    target, sources = scan.target(attempt.evidence, prepared.context)
    verdict = judge(attempt, calibrator, target, sources, lacks)
    return answered_record(attempt, scan.judgement(attempt.evidence, verdict, prepared.context))


def fitted_on(calibrator: Calibrator | None) -> Fitted:
    """What decides which stages a model gets whose calibrator this is."""
    if calibrator is None:
        return NO_CALIBRATOR
    names = (*calibrator.stages, *calibrator.unfitted)
    return Fitted(names, calibrator.needs_all, tuple(sign.stage for sign in calibrator.signs))


def _usual(
    stages: Sequence[Stage], subject: Subject, calibrator: Calibrator | None, fitted: Fitted
) -> tuple[Stage, ...]:
    """The stages that a network usually gets; of signs only those for pictures of its own size.

    The shares of what a calibrator finds stand on its fit, which signs are not in.
    """
    met = stages_for(stages, _as_met(subject, calibrator), None, fitted)
    return tuple(s for s in met if s.name not in fitted.signs or s.needs.usual(subject))


def _as_met(subject: Subject, calibrator: Calibrator | None) -> Subject:
    """The same with pictures of the nearest size that the calibrator has met."""
    sides = None if calibrator is None or calibrator.met is None else calibrator.met.sides
    if sides is None or subject.side is None:
        return subject
    return replace(subject, side=min(max(subject.side, sides[0]), sides[1]))


def _unsearched(usual: Sequence[Stage], evidence: Evidence) -> tuple[str, ...]:
    """Kinds of trigger that only stages look for which a model usually gets and did not get."""
    left_out = (stage for stage in usual if stage.name not in evidence.stages)
    kinds = dict.fromkeys(kind for stage in left_out for kind in stage.kinds)
    return tuple(kind for kind in kinds if kind not in evidence.searched)
