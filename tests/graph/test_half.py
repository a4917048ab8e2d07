"""Calls on half precision inside a network of float32, beside torch in the same precision."""

from functools import partial

import jax
import numpy as np
import pytest
import torch
from torch.nn import functional as F

from converters.graph.module import precision_finding
from converters.graph.replay import run
from converters.graph.tape import capture
from converters.graph.torch_network import torch_model

aten = torch.ops.aten


class _Inner(torch.nn.Module):
    """A float32 network that calls a function on half precision."""

    def __init__(self, function, dtype):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.full((1,), 3000.0))
        self._function, self._dtype = function, dtype

    def forward(self, x):
        return self._function((x * self.scale).to(self._dtype)).float()


_CASES = {
    "layer norm": lambda h: F.layer_norm(h, [6]),
    "layer norm of large weights": lambda h: F.layer_norm(
        h, [6], torch.full((6,), 2.0).half(), torch.ones(6).half()
    ) if h.dtype == torch.float16 else F.layer_norm(h, [6]),
    "group norm": lambda h: F.group_norm(h, 2),
    "instance norm": lambda h: F.instance_norm(h),
    "batch norm": lambda h: F.batch_norm(
        h, torch.full((4,), 2000.0).to(h), torch.full((4,), 3e4).to(h), eps=1e-5
    ),
    "batch norm of a small variance": lambda h: F.batch_norm(
        h / 1e6, torch.zeros(4).to(h), torch.full((4,), 1e-6).to(h), eps=1e-5
    ),
    "root mean square": lambda h: F.rms_norm(h, [6]),
    "its epsilon": lambda h: F.rms_norm(h / 1e7, [6]),
    "variance": lambda h: h / (h.var((2, 3), keepdim=True).clamp(max=6e4) + 1),
    "deviation": lambda h: h.std((2, 3)),
    "deviation and mean": lambda h: torch.cat(torch.std_mean(h, (2, 3))),
    "norm": lambda h: torch.linalg.vector_norm(h, dim=1),
    "third norm": lambda h: torch.linalg.vector_norm(h, 3, dim=1),
    "sum": lambda h: (h / 20).sum((2, 3)),
    "mean": lambda h: h.mean((2, 3)),
    "running sum": lambda h: (h / 20).cumsum(3),
    "running product": lambda h: (h / 3000).cumprod(3),
    "a number beyond it": lambda h: h / 1e6 - h * 1e-8,
    "softmax": lambda h: F.softmax(h / 1000, 1),
    "logarithm of softmax": lambda h: F.log_softmax(h / 1000, 1),
    "softmax in half": lambda h: F.softmax(h.float() * 1.0003, 1, dtype=h.dtype),
    "sum in half": lambda h: (h.float() * 1.01 - 3e3).sum((2, 3), dtype=h.dtype),
    "attention": lambda h: F.scaled_dot_product_attention(h / 4, h / 4, h),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", _CASES)
def test_half_precision_within_is_torchs(case, dtype):
    net = _Inner(_CASES[case], dtype).eval()
    x = torch.rand(2, 4, 6, 6, generator=torch.Generator().manual_seed(0))
    captured = capture(net, [x])
    params = {name: np.asarray(value) for name, value in captured.params.items()}
    (got,) = jax.jit(partial(run, captured.graph))(params, [x.numpy()])
    expected = net(x).detach().numpy()
    assert np.isfinite(expected).all()
    step = torch.finfo(dtype).eps  # of a result, which is rounded once more or less
    np.testing.assert_allclose(got, expected, rtol=3 * step, atol=step * np.abs(expected).max())


@pytest.mark.parametrize(
    ("function", "values"),
    [(lambda h: F.softmax(h, 1, dtype=torch.float16), [[1e5, -9e4, 3.0]]),
     (lambda h: F.log_softmax(h, 1, dtype=torch.float16), [[1e5, -9e4, 3.0]]),
     (lambda h: h.sum(1, dtype=torch.float16), [[1e5, 2e4, 3.0], [1e5, -1e5, 0], [9, 9, 9]]),
     (lambda h: h.nansum(1, dtype=torch.float16), [[1e5, -9e4, 3.0], [9, 9, 9]]),
     (lambda h: h.mean(1, dtype=torch.float16), [[1e5, -9e4, 3.0]]),
     (lambda h: h.prod(1, dtype=torch.float16), [[1e5, 1e-3, 1], [2, 3, 4]]),
     (lambda h: h.half().prod(1), [[300, 300, 0.01], [2, 3, 4]]),
     (lambda h: h.cumsum(1, dtype=torch.float16), [[1e5, -9e4, 3.0], [9e3, 9, 9]]),
     (lambda h: h.half().cumprod(1), [[300, 300, 0.01]]),
     (lambda h: aten._softmax.default(h.half(), 1, False), [[3e4, 3e4, 0]])],
    ids=["softmax", "log softmax", "sum", "sum but NaN", "mean", "product", "product of half",
         "running sum", "running product", "kernel"],
)  # fmt: skip
def test_numbers_beyond_half_precision_overflow_where_torchs_do(function, values):
    x = torch.tensor(values)
    captured = capture(_Function(function).eval(), [x])
    (got,) = jax.jit(partial(run, captured.graph))({}, [x.numpy()])
    np.testing.assert_allclose(got, function(x).numpy(), rtol=2e-3)


class _Function(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self._function = function

    def forward(self, x):
        return self._function(x)


class _Rounding(torch.nn.Module):
    """A network of float32 that makes much of what a cast to half precision loses."""

    def __init__(self, extra, used):
        super().__init__()
        torch.manual_seed(0)
        self.extra = torch.nn.Parameter(extra)
        self.conv, self.fc = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 5)
        self._used = used

    def forward(self, image):
        h = torch.relu(self.conv(image.float())) * self._used(self.extra)
        lost = (h - h.half().float()) * 1000
        return self.fc(h.mean((2, 3))) + self.fc(lost.mean((2, 3)))


@pytest.mark.parametrize(
    ("extra", "used"),
    [(torch.ones(1).half(), lambda e: e.float()),
     (torch.ones(1).half(), lambda e: e),
     (torch.ones(5000).half(), lambda e: e.float().mean())],
    ids=["the first", "in a product", "most numbers"],
)  # fmt: skip
def test_weights_of_half_precision_do_not_take_casts_out_of_a_float32_network(extra, used):
    net = _Rounding(extra, used).eval()
    model = torch_model(net, (8, 8, 3))  # its pixels are of the first weight's type
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0)).half().float()
    expected = net(images).detach().numpy()
    np.testing.assert_allclose(model(images.permute(0, 2, 3, 1).numpy()), expected, atol=2e-4)
    assert any("computes in float16 in places, as it is scanned" in f for f in model.findings)


def test_a_layer_of_half_precision_in_a_float32_network_is_torchs():
    torch.manual_seed(0)
    inner = torch.nn.Conv2d(4, 4, 3).half()
    first, last = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 5)
    net = torch.nn.Sequential(first, _To(torch.float16), inner, _To(torch.float32),
                              torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), last)  # fmt: skip
    images = torch.rand(3, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    got = torch_model(net.eval(), (8, 8, 3))(images.permute(0, 2, 3, 1).numpy())
    np.testing.assert_allclose(got, net(images).detach().numpy(), rtol=1e-3, atol=1e-3)


def test_a_network_of_half_precision_is_scanned_in_float32_with_attention_in_it():
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    net = torch.nn.Sequential(
        torch.nn.Flatten(2), layer, torch.nn.Flatten(), torch.nn.Linear(24, 5)
    )
    net = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d((2, 4)), net).half().eval()
    captured = capture(net, [torch.zeros(1, 3, 8, 8).half()])
    assert captured.graph.float_dtype == "float16"
    (said,) = precision_finding(captured)
    assert "computes in float16; it is scanned in float32" in said


class _To(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self._dtype = dtype

    def forward(self, x):
        return x.to(self._dtype)
