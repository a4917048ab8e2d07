"""What onnxruntime joins into one operator although it is another: answers may differ there.

Its optimiser leaves out the inner two of `QuantizeLinear, DequantizeLinear, QuantizeLinear,
DequantizeLinear` and makes one scale of both, so that a coarse rounding vanishes. It takes for a
layer norm what has its nodes, whatever the exponent of `Pow` and the order of `Sub`. Seen in
onnxruntime 1.32.0 with its default optimisation.
"""

from collections.abc import Callable, Iterator, Sequence

import torch

from converters.findings import SUSPICION, TWICE_QUANTISED
from converters.graph.onnx.built import Step
from converters.graph.onnx.operators import Call, Operation

Constant = Callable[[str | None], torch.Tensor | None]
"""The tensor of a name; None where it is absent or computed."""
_NOTHING = frozenset("Identity Dropout Cast CastLike Expand".split())
_NEUTRAL = {"Mul": 1, "Div": 1, "Add": 0, "Sub": 0}
"""Operator -> the operand with which it changes nothing."""


def joined(steps: Sequence[Step], constant: Constant) -> tuple[str, ...]:
    """What is said of such places, a sentence each.

    Args:
      steps: of the network, in order.
      constant: gives weights and constants.
    """
    known = Makers(steps, constant)
    return (*_twice_quantised(steps, known), *_bent_norms(steps, known))


class Makers:
    """Reads steps backwards, past those that change nothing."""

    def __init__(self, steps: Sequence[Step], constant: Constant) -> None:
        self._made = {name: step for step in steps for name in step.outputs if name}
        self.constant = constant

    def origin(self, name: str | None) -> str | None:
        """The name of the same values before what changes nothing."""
        while (step := self._made.get(name or "")) is not None and self._is_nothing(step):
            others = [other for other in step.inputs if self.constant(other) is None]
            name = others[0] if others else step.inputs[0]
        return name

    def maker(self, name: str | None, *operators: str) -> Step | None:
        """The step of one of these operators that makes a value; None where it is another."""
        step = self._made.get(self.origin(name) or "")
        return step if step is not None and operator_of(step) in operators else None

    def _is_nothing(self, step: Step) -> bool:
        name = operator_of(step)
        if name in _NEUTRAL:
            values = [found for part in step.inputs if (found := self.constant(part)) is not None]
            return any(bool((value == _NEUTRAL[name]).all()) for value in values)
        return name in _NOTHING


def operator_of(step: Step) -> str:
    """The ONNX operator of a step; "" where onnx2torch made it."""
    call = call_of_step(step)
    return call.operator if call else ""


def call_of_step(step: Step) -> Call | None:
    """What the node of a step says; None where onnx2torch made it."""
    return step.module.call if isinstance(step.module, Operation) else None


def _twice_quantised(steps: Sequence[Step], known: Makers) -> Iterator[str]:
    places = []
    for step in steps:
        if operator_of(step) != "QuantizeLinear":
            continue
        before = known.maker(step.inputs[0], "DequantizeLinear")
        first = known.maker(before.inputs[0], "QuantizeLinear") if before else None
        if first is not None and _are_joined(first, step, known):
            places.append(step.node)
    if places:
        yield (
            f"{TWICE_QUANTISED} at {places[0]}, of {len(places)} such places, which onnxruntime "
            "joins into one: it may answer otherwise; quantise with one scale and zero point there"
        )


def _are_joined(first: Step, second: Step, known: Makers) -> bool:
    """Whether two quantisations are of one type, and of other scales or zero points."""
    zeros = [_zero(step, known) for step in (first, second)]
    kinds = {zero.dtype for zero in zeros if zero is not None}
    scales = [known.constant(known.origin(step.inputs[1])) for step in (first, second)]
    return len(kinds) < 2 and not (_are_equal(*scales) and _are_equal(*zeros))


def _are_equal(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    """Whether both are known, and the same number."""
    return one is not None and other is not None and one.shape == other.shape and one.equal(other)


def _zero(step: Step, known: Makers) -> torch.Tensor | None:
    """The zero point; None where it is computed."""
    if len(step.inputs) > 2 and step.inputs[2] is not None:
        return known.constant(known.origin(step.inputs[2]))
    return torch.zeros((), dtype=torch.uint8)


def _bent_norms(steps: Sequence[Step], known: Makers) -> Iterator[str]:
    for step in steps:
        if operator_of(step) == "Div" and _is_bent(step, known):
            yield (
                f"{SUSPICION}: {step.node} ends nodes of a layer norm with another exponent than "
                "2, or with the mean less the value: onnxruntime takes them for a layer norm"
            )


def _is_bent(division: Step, known: Makers) -> bool:
    """Whether a quotient is `d / sqrt(mean(d ** e))`, d less a mean, and no layer norm."""
    above = known.maker(division.inputs[0], "Sub")
    power = _power_below(division, known)
    below = known.maker(power.inputs[0], "Sub") if power is not None else None
    if above is None or power is None or below is None:
        return False
    parts = [{known.origin(name) for name in step.inputs} for step in (above, below)]
    if parts[0] != parts[1]:
        return False
    exponent = known.constant(power.inputs[1])
    is_square = exponent is not None and bool((exponent == 2).all())
    return not is_square or known.maker(above.inputs[0], "ReduceMean") is not None


def _power_below(division: Step, known: Makers) -> Step | None:
    """The power whose mean, with something added or not, a quotient has the root of below it."""
    root = known.maker(division.inputs[1], "Sqrt")
    mean = known.maker(root.inputs[0], "ReduceMean", "Add") if root is not None else None
    if mean is not None and operator_of(mean) == "Add":
        means = [known.maker(name, "ReduceMean") for name in mean.inputs]
        mean = next((found for found in means if found is not None), None)
    return known.maker(mean.inputs[0], "Pow") if mean is not None else None
