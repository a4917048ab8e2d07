"""Stage probes: a bank of random colour patches, forward passes only."""

from typing import TYPE_CHECKING

from jaxtroj.evidence.images.stages.sides import ON_OBJECTS
from jaxtroj.evidence.stage import Field, Stage, StageResult

if TYPE_CHECKING:
    from jaxtroj.evidence.images.context import ImageContext, TriggerCandidate
    from jaxtroj.evidence.images.probes import ProbeBudget, Probed

FIELDS = (
    Field("probe_score", "probes", 1, "the push of colour patches towards one class",
          "fraction 0-1", "mean sigmoid margin of the best class over its six best patches"),
    Field("probe_gap", "probes", 1, "the lead of one class over the next under colour patches",
          "fraction 0-1", "probe_score less that of the second best class"),
    Field("probe_agreement", "probes", 1, "the agreement of the best colour patches on one class",
          "fraction 0-1", "share of the close round's patches whose best class is the best class"),
    Field("probe_wide_gap", "probes", 1, "the lead of one class under random colour patches",
          "fraction 0-1", "as probe_gap, over the wide round"),
    Field("probe_head_gap", "probes", 1,
          "the last layer's preference for the class that colour patches reach",
          "difference of cosines",
          "cosine of the best class's row with a vector of ones, less the others'"),
)  # fmt: skip


def bank(context: "ImageContext") -> "Probed":
    """The bank's answers; other stages start from its best patches (`context.shared(bank)`)."""
    from jaxtroj.evidence.images.context import anchored
    from jaxtroj.evidence.images.probes import ProbeBudget, run_probes

    examples = context.shared(anchored)
    return run_probes(context.network, examples, context.key, context.budget(ProbeBudget))


def bank_trigger(context: "ImageContext") -> "TriggerCandidate":
    """The bank's best patch as a candidate trigger, once for all stages that ran the bank."""
    from functools import partial

    from jaxtroj.evidence.images.probes import ProbeBudget, probe_trigger

    budget = context.budget(ProbeBudget)
    return partial(probe_trigger, context.network, context.shared(bank), budget)


def _run(context: "ImageContext") -> StageResult:
    from jaxtroj.evidence.images.head_rows import compared_head
    from jaxtroj.evidence.images.probes import probe_fields

    fields = probe_fields(context.shared(bank), *compared_head(context))
    return StageResult(fields, (context.shared(bank_trigger),))


def _budget() -> "ProbeBudget":
    from jaxtroj.evidence.images.probes import ProbeBudget

    return ProbeBudget()


PROBES = Stage("probes", FIELDS, _run, ON_OBJECTS, ("patch",), _budget)
