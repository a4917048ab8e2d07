"""The inputs of an exported program: which they are, their shapes, and what pixels they take."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec

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


def placeholders(program: ExportedProgram) -> list[tuple[torch.fx.Node, InputSpec]]:
    """Pairs of placeholder and what it stands for."""
    nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
    return list(zip(nodes, program.graph_signature.input_specs, strict=True))


def user_inputs(program: ExportedProgram) -> list[Any]:
    """The placeholders that are no weights."""
    return [n for n, spec in placeholders(program) if spec.kind == InputKind.USER_INPUT]


def example_inputs_of(program: ExportedProgram) -> list[torch.Tensor]:
    """Zeros of the shapes that the program takes, 1 for what is a symbol."""
    inputs = []
    for node in user_inputs(program):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            raise ConversionError(f"input {node.name} of the exported program is no tensor")
        shape = [n if isinstance(n, int) else 1 for n in value.shape]
        inputs.append(torch.zeros(shape, dtype=value.dtype))
    return inputs


def check_inputs(program: ExportedProgram, inputs: list[torch.Tensor]) -> None:
    """Raise ConversionError unless these inputs have shapes that the program takes."""
    expected = [node.meta["val"].shape for node in user_inputs(program)]
    got = [tuple(value.shape) for value in inputs]
    fits = len(got) == len(expected) and all(
        len(g) == len(e)
        and all(not isinstance(m, int) or n == m for n, m in zip(g, e, strict=True))
        for g, e in zip(got, expected, strict=True)
    )
    if not fits:
        raise ConversionError(
            f"got {_in_words(got)}, the program was exported for {_in_words(expected)}; export it "
            "for inputs of this shape: for one image or an open number of images (dynamic_shapes "
            "of torch.export.export), and pictures of this size"
        )


def _in_words(shapes: Sequence[Sequence[Any]]) -> str:
    """Shapes of inputs, such as "1 x 3 x 16 x 16"; "any" for a size that is a symbol."""
    words = (" x ".join(str(n) if isinstance(n, int) else "any" for n in s) for s in shapes)
    return " and ".join(words) or "no input"


def same_shapes(program: ExportedProgram, inputs: list[torch.Tensor]) -> bool:
    """Whether these inputs are of just the shapes that the program was exported with."""
    return all(
        tuple(node.meta["val"].shape) == tuple(value.shape)
        for node, value in zip(user_inputs(program), inputs, strict=True)
    )
