"""Each lowering against torch in float64: values, and gradients of all floating inputs."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from converters.graph.replay import run
from converters.graph.tape import capture
from tests.graph.lowering_cases import CASES


class Function(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def _values(key: str, wanted) -> np.ndarray:
    """Values of an input: keyed by the case, no two alike."""
    if isinstance(wanted, np.ndarray):
        return wanted
    shape, low, high = wanted if isinstance(wanted[0], tuple) else (wanted, -2.0, 2.0)
    random = np.random.default_rng(list(key.encode()))
    count = int(np.prod(shape))
    steps = (random.permutation(count) + random.uniform(0.2, 0.8, count)) / count
    return (low + (high - low) * steps).reshape(shape)


def _outputs(value) -> list:
    return [value] if isinstance(value, torch.Tensor) else list(value)


def _expected(function, inputs):
    """torch's outputs, and the gradients of the sum of all of them times cos(0), cos(1), ..."""
    tensors = [torch.from_numpy(v.copy()) for v in inputs]
    floating = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    outputs = _outputs(function(*tensors))
    smooth = [o for o in outputs if o.requires_grad]
    total: Any = sum(
        (o * torch.cos(torch.arange(o.numel()).double()).reshape(o.shape)).sum() for o in smooth
    )
    gradients = (
        torch.autograd.grad(total, floating, allow_unused=True) if smooth and floating else ()
    )
    zeros = [torch.zeros_like(t) if g is None else g for t, g in zip(floating, gradients)]  # noqa: B905
    return [o.detach().numpy() for o in outputs], [z.numpy(force=True) for z in zeros]


def _compared(graph, params, inputs):
    """The same of the graph, to be traced."""

    def total(floating):
        rest = iter(floating)
        full = [
            next(rest) if "float" in s.dtype else v
            for s, v in zip(graph.inputs, inputs, strict=True)
        ]
        outputs = run(graph, params, full)
        weighted = (
            (o * jnp.cos(jnp.arange(o.size)).reshape(o.shape)).sum()
            for o in outputs
            if jnp.issubdtype(o.dtype, jnp.floating)
        )
        return sum(weighted, jnp.zeros(())), outputs

    floating = [jnp.asarray(v) for v in inputs if v.dtype.kind == "f"]
    gradients, outputs = jax.grad(total, has_aux=True)(floating)
    return outputs, gradients


@pytest.mark.parametrize("family", CASES)
def test_values_and_gradients_are_torch_s(family):
    torch.set_num_threads(1)
    jobs, expected = {}, {}
    with jax.enable_x64(True):
        for name, (function, *wanted) in CASES[family].items():
            inputs = [_values(f"{family} {name} {i}", w) for i, w in enumerate(wanted)]
            expected[name] = _expected(function, inputs)
            tensors = [torch.from_numpy(v.copy()) for v in inputs]
            jobs[name] = (capture(Function(function).eval(), tensors), inputs)
        # One program for the whole family: compiling is most of the time.
        got = jax.jit(
            lambda: {n: _compared(c.graph, dict(c.params), v) for n, (c, v) in jobs.items()}
        )()
    faults = [fault for name in jobs for fault in _differences(name, got[name], expected[name])]
    assert not faults, "\n".join(faults)


def _differences(name, got, expected):
    for kind, found, wanted in zip(("output", "gradient"), got, expected, strict=True):
        if kind == "gradient" and not wanted:
            continue
        if len(found) != len(wanted):
            yield f"{name}: {len(found)} {kind}s, expected {len(wanted)}"
            continue
        for i, (f, w) in enumerate(zip(found, wanted, strict=True)):
            f = np.asarray(f)
            if f.shape != w.shape or f.dtype != w.dtype:
                yield f"{name} {kind} {i}: {f.dtype}{f.shape}, expected {w.dtype}{w.shape}"
            elif not np.allclose(f, w, rtol=1e-10, atol=1e-12, equal_nan=True):
                yield f"{name} {kind} {i}: off by {np.abs(f.astype(float) - w.astype(float)).max()}"
