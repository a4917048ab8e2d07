"""What the type of an exported program's input says of the values of pixels."""

from dataclasses import replace

import torch

from converters.errors import ConversionError, safe_repr
from converters.input_form import InputForm

_BYTES = "the program takes images of uint8; the bounds 0 and 255 were taken"


def byte_form(dtype: torch.dtype, name: str, form: InputForm) -> tuple[InputForm, tuple[str, ...]]:
    """The form of a program whose input has this type, and findings.

    Args:
        dtype, name: of the input.
        form: what the user said; bounds in it stay.

    Raises:
        ConversionError: the input takes other whole numbers than bytes.
    """
    if dtype.is_floating_point:
        return form, ()
    if dtype != torch.uint8:
        raise ConversionError(
            f"input {safe_repr(name)} takes {str(dtype).removeprefix('torch.')}, expected floating "
            "values or uint8; export the network without its conversion from whole numbers"
        )
    if form.bounds is not None:
        return form, ()
    return replace(form, bounds=(0.0, 255.0)), (_BYTES,)
