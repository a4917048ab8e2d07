"""The one loop over evidence stages: seconds, early stop, progress; the same for both kinds."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jaxtroj.evidence.context import Context
from jaxtroj.evidence.stage import Stage

TRIGGER = "trigger"
"""The step after the last stage: candidates are ranked."""

Stop = Callable[[str, Mapping[str, float], bool], bool]
"""Asked with a stage's name, all fields so far, and whether there is a trigger to show, once a kind
of trigger was searched. True ends the gathering."""


@dataclass(frozen=True)
class Evidence:
    """What is known of one model.

    Attributes:
      fields: by name, in the order of the stages.
      triggers: recovered ones, the strongest first.
      for_classes: what the stages found for more classes than those; see `StageResult`.
      seconds: wall time by stage, of what was prepared before, and of "triggers" after.
      stages: those that ran.
      searched: kinds of trigger that they searched for.
    """

    fields: Mapping[str, float] = field(default_factory=dict)
    triggers: tuple[Any, ...] = ()
    for_classes: tuple[Any, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    stages: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()


@dataclass(frozen=True)
class GatherStep:
    """Where the gathering is.

    Attributes:
      following: what begins now: a stage, `TRIGGER`, or "" when all is done.
      evidence: what is known so far.
    """

    following: str
    evidence: Evidence


def _never(stage: str, fields: Mapping[str, float], has_trigger: bool) -> bool:
    return False


def gather_steps(
    context: Context, stages: Sequence[Stage], stop: Stop = _never
) -> Iterator[GatherStep]:
    """Run the stages in order; yields before each step, and when all is done.

    A fault of a stage is raised where the next progress was expected; what was yielded before it
    stands. The same context and stages give the same evidence, alone or among other models.

    A stage that works by gradients is left out for a network without any: what it would find is no
    evidence of a clean network.

    Args:
      context: of a model.
      stages: cheap ones first, as `evidence.stage.stages_for` chooses them.
      stop: asked after each stage from the first that searches for a kind of trigger.

    Raises:
      EvidenceError: the model gives no finite answers. A stage may raise anything else.
    """
    evidence, candidates = Evidence(seconds=dict(context.seconds)), []
    for stage in stages:
        if stage.needs.gradient and not context.has_gradient:
            continue
        yield GatherStep(stage.name, evidence)
        started = time.perf_counter()
        result = context.shared(stage.run)
        found = {field.name: float(result.fields[field.name]) for field in stage.fields}
        evidence = _with_stage(evidence, stage, found, time.perf_counter() - started)
        evidence = replace(evidence, for_classes=(*evidence.for_classes, *result.for_classes))
        candidates += result.triggers
        if evidence.searched and stop(stage.name, evidence.fields, bool(candidates)):
            break
    yield GatherStep(TRIGGER, evidence)
    started = time.perf_counter()
    triggers = context.recover(tuple(dict.fromkeys(candidates)))
    seconds = {**evidence.seconds, "triggers": time.perf_counter() - started}
    yield GatherStep("", replace(evidence, triggers=triggers, seconds=seconds))


def gather(context: Context, stages: Sequence[Stage], stop: Stop = _never) -> Evidence:
    """All of `gather_steps` at once."""
    *_, last = gather_steps(context, stages, stop)
    return last.evidence


def _with_stage(
    evidence: Evidence, stage: Stage, found: Mapping[str, float], seconds: float
) -> Evidence:
    return replace(
        evidence,
        fields={**evidence.fields, **found},
        seconds={**evidence.seconds, stage.name: seconds},
        stages=(*evidence.stages, stage.name),
        searched=tuple(dict.fromkeys((*evidence.searched, *stage.kinds))),
    )
