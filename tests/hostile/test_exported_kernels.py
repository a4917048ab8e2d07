"""Operators of torch that a program from a file may not run: 2,000 of torch's 3,100."""

import numpy as np
import pytest
import torch

from converters.errors import UnsupportedOperatorError
from converters.graph import registry
from converters.graph.export import from_exported
from converters.graph.kernels import KernelGuard, may_run
from converters.graph.light_mode import LightMode
from converters.graph.replay import run

aten = torch.ops.aten


class _Seen(LightMode):
    """What torch was asked to run."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.calls.append(str(func))
        return func(*args, **(kwargs or {}))


class _Constant(torch.nn.Module):
    """Adds to its picture what `function` makes of a buffer alone."""

    def __init__(self, function):
        super().__init__()
        self.register_buffer("table", torch.arange(12.0).reshape(4, 3))
        self._function = function

    def forward(self, image):
        return image.mean((2, 3)) + self._function(self.table).sum()


def _program(function):
    image = torch.zeros(1, 3, 8, 8)
    return torch.export.export(_Constant(function).eval(), (image,), strict=False)


def _bags(table):
    """Offsets come from the file: torch's kernel reads where they point."""
    whole = torch.arange(4)
    return torch.nn.functional.embedding_bag(whole, table, torch.tensor([0, 2]))


@pytest.mark.parametrize(
    ("function", "name"),
    [(_bags, "embedding_bag"), (lambda t: torch.histc(t, 4), "aten.histc.default"),
     (lambda t: torch.segment_reduce(t, "sum", lengths=torch.tensor([4])), "segment_reduce")],
    ids=["bags", "histogram", "segments"],
)  # fmt: skip
def test_a_kernel_that_is_not_known_is_refused_before_anything_runs(function, name):
    program = _program(function)
    with _Seen() as seen, pytest.raises(UnsupportedOperatorError, match=name):
        from_exported(program)
    assert seen.calls == []


def test_what_an_operator_is_made_of_is_looked_at_too():
    program = _program(lambda table: torch.cdist(table, table))
    assert may_run(aten.cdist.default)
    with pytest.raises(UnsupportedOperatorError, match=r"aten\._(cdist_forward|euclidean_dist)"):
        from_exported(program)


@pytest.mark.parametrize(
    "function",
    [lambda t: t[torch.nonzero(t[:, 0]).flatten()], lambda t: torch.unique(t.long()).float(),
     lambda t: torch.hann_window(4) + t[:, 0],
     lambda t: t.clone().add_(1).transpose_(0, 1), lambda t: torch.std(t, 0)],
    ids=["indices", "unique", "window", "in place", "deviation"],
)  # fmt: skip
def test_what_constants_are_usually_made_by_runs(function):
    captured = from_exported(_program(function))
    assert any(op.startswith("aten.mean") for op in captured.graph.operators())


@pytest.mark.parametrize(
    "function", [lambda t: t + torch.randn(3), lambda t: t * torch.rand(4, 1)], ids=["sum", "scale"]
)
def test_a_constant_that_is_drawn_is_refused(function):
    """One draw would be scanned, and another one answers."""
    with pytest.raises(UnsupportedOperatorError, match="random"):
        from_exported(_program(function))


def test_memory_that_nobody_wrote_is_read_as_zeros():
    captured = from_exported(_program(lambda table: table + torch.empty(4, 3)))
    image = np.zeros((1, 3, 8, 8), np.float32)
    (got,) = run(captured.graph, dict(captured.params), [image])
    np.testing.assert_array_equal(got, np.full((1, 3), 66.0))  # 0 + 1 + ... + 11


def test_every_operator_with_a_lowering_may_run():
    for name in registry.supported_operators():
        packet, overload = name.split(".")[1:]
        assert may_run(getattr(getattr(aten, packet), overload)), name


REFUSED = (
    aten._embedding_bag.default, aten.fbgemm_linear_int8_weight.default, aten.relu.out,
    aten.resize_.default, aten.set_.source_Tensor, aten.cudnn_convolution.default,
    aten._nested_view_from_buffer.default, aten.embedding_dense_backward.default,
    aten.quantized_lstm.input_legacy, aten._cslt_sparse_mm.default, torch.ops.prims.add.default,
)  # fmt: skip


@pytest.mark.parametrize("func", REFUSED, ids=str)
def test_kernels_that_trust_their_arguments_may_not(func):
    assert not may_run(func)


def test_the_guard_names_the_operator():
    with KernelGuard(), pytest.raises(UnsupportedOperatorError, match=r"aten\.histc\.default"):
        torch.histc(torch.zeros(3))
