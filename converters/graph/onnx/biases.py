"""Biases that onnxruntime takes in other units than the file says: such networks are refused.

It joins `DequantizeLinear`, `Gemm` (or `MatMul` and `Add`) and `QuantizeLinear` into one operator
on whole numbers, which reads the bias in units of the product of both operands' scales. The bias's
own scale and zero point are dropped. Seen in onnxruntime 1.32.0 with its default optimisation.
"""

from collections.abc import Mapping, Sequence

import torch

from converters.errors import ConversionError
from converters.graph.onnx.built import Step, Units
from converters.graph.onnx.joined import Constant, Makers, call_of_step, operator_of

_MOVES = "Reshape Flatten Squeeze Unsqueeze Transpose MaxPool Slice Gather Concat Relu Clip".split()
"""What onnxruntime moves quantisations past."""
_ROUNDING = 1e-6


def check_biases(steps: Sequence[Step], constant: Constant, units: Mapping[str, Units]) -> None:
    """Raise ConversionError where a bias is in other units than the product that it is added to.

    Args:
      steps: of the network, in order.
      constant: gives weights and constants.
      units: of what was dequantised.
    """
    found = _Units(Makers(steps, constant), units)
    for step in steps:
        bias, product = found.parts(step)
        if bias is not None and product is not None and not _is_in(bias, product):
            raise ConversionError(
                f"{step.node} adds a bias of whole numbers in other units than the product of its "
                "operands' scales, or with a zero point: onnxruntime takes it in those units and "
                "runs another network; quantise the bias by that product, without a zero point"
            )


class _Units:
    """Finds the units of what steps read."""

    def __init__(self, known: Makers, units: Mapping[str, Units]) -> None:
        self._known, self._units = known, units

    def parts(self, step: Step) -> tuple[Units | None, torch.Tensor | None]:
        """The units of a bias that is added, and those of the product; None where it has none."""
        call = call_of_step(step)
        if operator_of(step) == "Gemm" and call is not None and len(step.inputs) > 2:
            plain = call["alpha"] == 1 and call["beta"] == 1
            return (self._bias(step.inputs[2]), self._product(step)) if plain else (None, None)
        if operator_of(step) == "Add":
            for place, bias in enumerate(step.inputs[:2]):
                other = step.inputs[1 - place]
                made = self._known.maker(other, "MatMul")
                if made is not None and self._bias(bias) is not None:
                    return self._bias(bias), self._product(made)
        return None, None

    def _bias(self, name: str | None) -> Units | None:
        found = self._units.get(self._known.origin(name) or "") or self._units.get(name or "")
        return found if found is not None and found.kind == torch.int32 else None

    def _product(self, step: Step) -> torch.Tensor | None:
        one, other = (self._scale(name) for name in step.inputs[:2])
        return None if one is None or other is None else one.reshape(-1) * other.reshape(-1)

    def _scale(self, name: str | None) -> torch.Tensor | None:
        """The scale of an operand, which may have been moved since; None where it has none."""
        while name is not None and name not in self._units:
            origin = self._known.origin(name)
            made = self._known.maker(name, *_MOVES)
            if origin == name and made is None:
                return None
            name = made.inputs[0] if made is not None else origin
        return self._units[name].scale if name is not None else None


def _is_in(bias: Units, product: torch.Tensor) -> bool:
    """Whether a bias is without a zero point, and in units of the product, for each column."""
    if bias.zero is not None and bool((bias.zero != 0).any()):
        return False
    scale = bias.scale.reshape(-1).double()
    if scale.numel() > 1 and product.numel() > 1 and scale.numel() != product.numel():
        return False
    return bool(torch.isclose(scale, product.double(), rtol=_ROUNDING, atol=0).all())
