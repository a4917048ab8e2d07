"""Exported programs that leave the number of images open: one image is answered as among others.

The program is run for one image and for several. What answers an image otherwise beside others is
refused; what reads the number of images for more than shapes is named, as it may switch at a number
that was not run. Guards of a program (Python code, and calls that only assert) can end a run but
change no answer; its range constraints say which numbers may be asked for.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils._pytree import tree_leaves

from converters.errors import ConversionError, TooLargeError
from converters.findings import NOT_TOGETHER, ONE_ONLY
from converters.graph.counting import (
    TOGETHER,
    Line,
    is_decided,
    is_exact_quotient,
    is_linear_product,
    suspicions,
)
from converters.graph.export_inputs import placeholders
from converters.graph.guard import SizeGuard, WorkLimits
from converters.graph.kernels import KernelGuard

_MOST_IMAGES = 64
_ENDLESS = 2**31 - 1
# Where an operator takes a shape: place of the argument.
_SHAPES = {
    **dict.fromkeys(("full", "zeros", "ones", "empty"), 0),
    **dict.fromkeys(("view", "reshape", "_unsafe_view", "expand", "repeat", "broadcast_to"), 1),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full", "new_empty"), 1),
}
_ASSERTIONS = ("_assert", "sym_constrain")
_NUMBERS: dict[Any, Callable[..., bool]] = {
    **dict.fromkeys(
        (operator.add, operator.sub, operator.neg, torch.sym_int, torch.sym_float),
        lambda *lines: all(line.is_whole() for line in lines),
    ),
    operator.mul: is_linear_product,
    **dict.fromkeys((operator.floordiv, operator.truediv), is_exact_quotient),
    **dict.fromkeys(
        (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge), is_decided
    ),
}
_SIZES = {"sym_size", "sym_numel"}
# What may be done with a value that is as long as there are images and does not come from them.
_KEEPS_EVEN = {
    *_SIZES, *_SHAPES, *("clone", "_to_copy", "to", "detach", "alias", "contiguous", "permute"),
    *("transpose", "t", "unsqueeze", "squeeze", "add", "sub", "mul", "div", "neg", "where"),
    *("slice", "select"),
}  # fmt: skip
# What picks or mixes along `dim`; without one, along all axes.
_ALONG = {
    *("slice", "select", "narrow", "index_select", "gather", "split", "split_with_sizes", "chunk"),
    *("unbind", "flip", "roll", "cumsum", "cumprod", "sum", "mean", "prod", "amax", "amin", "max"),
    *("min", "argmax", "argmin", "any", "all", "var", "std", "norm", "topk", "sort", "softmax"),
    *("_softmax", "log_softmax", "_log_softmax", "logsumexp", "linalg_vector_norm"),
}


class _Run(torch.fx.Interpreter):
    """A run that remembers what every call gave."""

    def __init__(self, program: ExportedProgram):
        super().__init__(program.graph_module)
        self.extra_traceback = False  # torch would write itself into the messages
        self.seen: dict[str, Any] = {}

    def run_node(self, n: torch.fx.Node) -> Any:
        """As the interpreter, noting the result."""
        self.seen[n.name] = result = super().run_node(n)
        return result


def batch_findings(
    program: ExportedProgram, shape: Sequence[int], axis: int, output: int
) -> tuple[str, ...]:
    """What a reader should know of a program that takes any number of images; none of others.

    Args:
        program: with one input.
        shape: of the input for one image.
        axis: of the images.
        output: number of the logits.

    Raises:
        ConversionError: an image beside others is answered otherwise than alone.
        TooLargeError: it takes no fewer than `_MOST_IMAGES` images.
    """
    (image,) = [node for node, spec in placeholders(program) if spec.kind == InputKind.USER_INPUT]
    count = _images(program, image.meta["val"].shape[axis])
    if count == 1:
        return ()
    generator = torch.Generator().manual_seed(0)
    sizes = [count if place == axis else size for place, size in enumerate(shape)]
    dtype = image.meta["val"].dtype
    images = torch.rand(sizes, generator=generator)
    images = images.to(dtype) if dtype.is_floating_point else (255 * images).round().to(dtype)
    try:
        together, several = _answer(program, images, output)
        parts = [_answer(program, images.narrow(axis, k, 1), output) for k in range(count)]
    except TooLargeError as error:
        return (f"{NOT_TOGETHER}: {error}",)
    except (RuntimeError, ValueError, TypeError, IndexError):
        return (ONE_ONLY,)
    alone = torch.cat([answer.flatten() for answer, _ in parts]).float()
    if together.numel() != alone.numel():
        return (ONE_ONLY,)
    if not torch.allclose(together.flatten().float(), alone, 1e-3, 1e-4, equal_nan=True):
        raise ConversionError(
            "the program leaves the number of images open, and answers otherwise for an image "
            "beside others than for the image alone: which of both is used is not certain; export "
            "it so that images do not depend on each other"
        )
    return suspicions(list(_Reader(program, parts[0][1], several, count).found()))


def _images(program: ExportedProgram, size: Any) -> int:
    """How many images are run together; 1 where the program fixes their number."""
    if isinstance(size, int):
        return 1
    known = program.range_constraints.get(size.node.expr)
    lower, upper = (1, _ENDLESS) if known is None else (known.lower, known.upper)
    least = max(TOGETHER, int(lower))
    if least > _MOST_IMAGES:
        raise TooLargeError(
            f"the program takes no fewer than {least} images, more than {_MOST_IMAGES}; export it "
            "for one image or an open number"
        )
    return least if upper > least else int(upper)


def _answer(
    program: ExportedProgram, images: torch.Tensor, output: int
) -> tuple[torch.Tensor, dict[str, Any]]:
    state = {**program.state_dict, **program.constants}
    given = [
        images if spec.kind == InputKind.USER_INPUT else state[str(spec.target)]
        for _, spec in placeholders(program)
    ]
    run = _Run(program)
    weights = sum(t.numel() * t.element_size() for t in state.values() if torch.is_tensor(t))
    with torch.no_grad(), SizeGuard(WorkLimits(), weights), KernelGuard():
        answers = run.run(*given)
    return answers[output], run.seen


class _Reader:
    """Compares what each call gave for one image with what it gave for several."""

    def __init__(
        self, program: ExportedProgram, alone: dict[str, Any], among: dict[str, Any], images: int
    ):
        self._program, self._alone, self._among = program, alone, among
        self._images = images
        self._pictured: set[torch.fx.Node] = set()

    def found(self) -> Iterator[str]:
        """What reads the number of images, a sentence each."""
        for node, spec in placeholders(self._program):
            if spec.kind == InputKind.USER_INPUT:
                self._pictured.add(node)
        for node in self._program.graph.nodes:
            if node.op != "call_function":
                continue
            fed = node.all_input_nodes
            name = _name(node)
            if name not in _SIZES and self._pictured.intersection(fed):
                self._pictured.add(node)
            if name.startswith(_ASSERTIONS) or name in _SIZES or _only_asserted(node):
                continue
            place = f"{_called(node)} at {node.name}"
            counting = [part for part in fed if self._counts(part)]
            if counting and not self._is_linear(node, counting):
                yield f"{place} computes with the number of images"
            elif any(map(self._spread, fed)) and self._mixes(node, name):
                yield f"{place} works along the images"

    def _counts(self, node: torch.fx.Node) -> bool:
        """Whether a value that is no image's differs between one and several."""
        if node in self._pictured:
            return False
        one, several = self._alone[node.name], self._among[node.name]
        if torch.is_tensor(one) and torch.is_tensor(several):
            return one.shape == several.shape and not torch.equal(one, several)
        return isinstance(one, (int, float)) and one != several

    def _spread(self, node: torch.fx.Node) -> tuple[int, ...]:
        """Axes that are longer for several images."""
        one, several = self._alone[node.name], self._among[node.name]
        if not torch.is_tensor(one) or not torch.is_tensor(several):
            return ()
        sizes = zip(one.shape, several.shape, strict=False)
        return tuple(axis for axis, (m, n) in enumerate(sizes) if m != n)

    def _is_linear(self, node: torch.fx.Node, counting: list[torch.fx.Node]) -> bool:
        """Whether what counts images becomes a shape, or stays linear in their number."""
        rule = _NUMBERS.get(node.target)
        if rule is not None:
            return rule(*map(self._line, node.args))
        place = _SHAPES.get(_name(node))
        others = [argument for k, argument in enumerate(node.args) if k != place]
        leaves = tree_leaves([others, dict(node.kwargs)])
        return place is not None and not set(counting).intersection(
            leaf for leaf in leaves if isinstance(leaf, torch.fx.Node)
        )

    def _line(self, value: Any) -> Line:
        pair = [
            seen[value.name] if isinstance(value, torch.fx.Node) else value
            for seen in (self._alone, self._among)
        ]
        alone, among = (np.asarray(number, np.float64) for number in pair)
        return Line(alone, among, self._images)

    def _mixes(self, node: torch.fx.Node, name: str) -> bool:
        """Whether an operator picks or mixes along the images."""
        if node not in self._pictured:
            return name not in _KEEPS_EVEN or self._is_along(node, name)
        return self._is_along(node, name)

    def _is_along(self, node: torch.fx.Node, name: str) -> bool:
        value = node.args[0] if node.args else None
        if not isinstance(value, torch.fx.Node):
            return False
        spread, one = set(self._spread(value)), self._alone[value.name]
        if name in ("constant_pad_nd", "pad"):
            pads = node.args[1]
            assert isinstance(pads, Sequence)
            padded = {one.dim() - 1 - k // 2 for k, pad in enumerate(pads) if pad != 0}
            return bool(spread & padded)
        if name not in _ALONG or not spread or _is_whole_slice(node, name):
            return False
        dims = _argument(node, "dim")
        dims = _argument(node, "dims") if dims is None else dims
        if dims is None:
            return name not in _KEEPS_EVEN
        axes = dims if isinstance(dims, Sequence) else [dims]
        return bool(spread & {axis % max(one.dim(), 1) for axis in axes if isinstance(axis, int)})


def _called(node: torch.fx.Node) -> str:
    """The operator as findings name it."""
    return str(node.target) if isinstance(node.target, torch._ops.OpOverload) else _name(node)


def _name(node: torch.fx.Node) -> str:
    """The operator without its overload."""
    target = node.target
    if isinstance(target, torch._ops.OpOverload):
        return target.overloadpacket.__name__
    return str(getattr(target, "__name__", target))


def _only_asserted(node: torch.fx.Node) -> bool:
    """Whether a call serves assertions alone, which end a run and change no answer."""
    pending, seen = [node], {node}
    while pending:
        users = list(pending.pop().users)
        if not users:
            return len(seen) > 1
        for user in users:
            if _name(user).startswith(_ASSERTIONS):
                continue
            if user.target not in _NUMBERS:
                return False
            if user not in seen:
                seen.add(user)
                pending.append(user)
    return True


def _is_whole_slice(node: torch.fx.Node, name: str) -> bool:
    start, end, step = (_argument(node, part) for part in ("start", "end", "step"))
    endless = end is None or isinstance(end, int) and end >= _ENDLESS
    return name == "slice" and start in (None, 0) and endless and step in (None, 1)


def _argument(node: torch.fx.Node, name: str) -> Any:
    """An argument by its name in the operator's schema, its default, or None."""
    schema = getattr(node.target, "_schema", None)
    for place, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.name == name:
            given = node.kwargs.get(name, argument.default_value)
            return node.args[place] if place < len(node.args) else given
    return None
