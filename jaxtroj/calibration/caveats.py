"""What is said first of a network that the fit of a calibrator has not met, or hardly."""

from collections.abc import Iterator
from dataclasses import replace

from jaxtroj.calibration.fitted import Fitted
from jaxtroj.calibration.pooled_files import pooled_of
from jaxtroj.calibration.transfer import Traits

SHOWN_ARCHITECTURES = 4  # of those met; a longer list says nothing to people
_LITTLE = "examples show too little of its classes: their evidence counts {:.0%}"
_FEW = (
    "networks of 2 to {most} classes are judged beside {clean} clean ones; {models} such networks"
    " had a log score of {log_score:.2f} (0.5 scores 0.69)"
)
_LARGE = (
    "what evidence counts for pictures above {above} pixels was learnt on {models} such networks;"
    " judged without their populations, they had a log score of {log_score:.2f} (0.5 scores 0.69)"
)


def caveats_of(fitted: Fitted, traits: Traits) -> Iterator[str]:
    """Sentences about a network: too little of it, what was not met, what is known instead."""
    if traits.weight < 1:
        yield _LITTLE.format(traits.weight)
    model = pooled_of(fitted.stages)
    few = None if model is None else model.few_for(traits.classes)
    large = None if model is None else model.large_for(traits.side)
    others = replace(
        traits,
        classes=None if few else traits.classes,
        side=None if large else traits.side,
    )
    strange = _strange(fitted, others)
    if strange:
        advice = "" if few or large else f": {_advice(fitted, traits)}"
        yield f"the calibrator has met no {', and no '.join(strange)}{advice}"
    if few is not None:
        yield _FEW.format(**vars(few))
    if large is not None:
        yield _LARGE.format(**vars(large))


def _strange(fitted: Fitted, traits: Traits) -> tuple[str, ...]:
    """What of a network the calibrator has not met, in words."""
    known = {name for report in fitted.reports.values() for name in report.by_architecture}
    known = known if fitted.met is None else set(fitted.met.architectures)
    strange = () if fitted.met is None else fitted.met.strange_shape(traits)
    if traits.architecture in known:
        return strange
    some = len(known) <= SHOWN_ARCHITECTURES
    others = ", ".join(sorted(known)) if some else f"{len(known)} others"
    return (f"{traits.name}, only {others or 'unnamed ones'}", *strange)


def _advice(fitted: Fitted, traits: Traits) -> str:
    """What the probability of a network that was not met is worth, in words."""
    met, transfer = fitted.met, fitted.transfer
    learnt = () if met is None else transfer.concerned(met, traits)
    factor = 1.0 if met is None else transfer.factor(met, traits)
    if met is not None and not transfer.is_measured(met, traits):
        return f"nothing tells what it is worth for such networks: evidence counts {factor:.0%}"
    if met is None or not learnt:
        # A trigger in such a network may leave traces that the fit has never weighed.
        return "take the probability as a guess"
    if factor < 1:
        return f"its evidence counts {factor:.0%}"
    score = max(one.log_score for one in learnt)
    return f"such networks, left out of its fit, had a log score of {score:.2f} (0.5 scores 0.69)"
