"""Constants beside which float32 rounds away what the image decides."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from converters.findings import SUSPICION
from converters.graph.torch_network import torch_model

SHAPE = (8, 8, 3)


class Network(nn.Module):
    """A small classifier; `made` gets it and the feature maps of a second convolution."""

    def __init__(self, made):
        super().__init__()
        torch.manual_seed(0)
        self.clean, self.other = nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3)
        self.fc = nn.Linear(4, 5)
        self.many = nn.Parameter(torch.tensor([1.0, 2e5, 3.0, 4.0]).view(1, 4, 1, 1))
        self.made = made

    def forward(self, image):
        v = self.clean(image) + self.made(self, self.other(image))
        return self.fc(torch.relu(v).mean((2, 3)))


def _norm(mean=0.0, var=1.0, weight=1.0, bias=0.0):
    m, s, w, b = (torch.full((4,), number) for number in (mean, var, weight, bias))
    return lambda net, v: F.batch_norm(v, m, s, w, b)


def _mask(size):
    mask = torch.zeros(6, 6)
    mask[0, 1:] = size
    return mask


HIDDEN = {
    "plain numbers": lambda net, v: (v + 1e8) - 1e8,
    "weights": lambda net, v: v - net.many,
    "what is made of weights": lambda net, v: v + net.many.sum() * 2 - net.many.mean() * 8,
    "a layer's bias": lambda net, v: torch.conv2d(
        v, net.many.expand(4, 4, 1, 1), net.many.flatten()
    ),
    "a mean of a batch norm": _norm(mean=1e6),
    "a bias of a batch norm": _norm(bias=-1e6),
    "a mean in small deviations": _norm(mean=1.0, weight=1e6),
    "a sum beside it": lambda net, v: torch.stack(
        [v, torch.full_like(v, 1e9), torch.full_like(v, -1e9)]
    ).sum(0),
    "an edge of a large number": lambda net, v: F.pad(v, [0, 1], value=-1e9).sum(
        3, keepdim=True
    ),
    "a mask that raises": lambda net, v: torch.softmax(v - _mask(-1e9), 3),
    "a mask without softmax": lambda net, v: v + _mask(-1e9),
    "factors": lambda net, v: ((v * 1e-9 + 1) - 1) * 1e9,
    "factors in two": lambda net, v: torch.relu((v * 1e-9) * 1e5) / 1e-4,
}  # fmt: skip
READ = {
    "numbers of pictures": lambda net, v: (v * 255 - 123.7) / 58.4 + 65_535,
    "a mask": lambda net, v: torch.softmax(v + _mask(-3.4e38), 3),
    "a mask that is taken away": lambda net, v: torch.softmax(v - _mask(1e9), 3),
    "a mask that is shaped": lambda net, v: torch.softmax(
        (v + _mask(-1e9)).view(4, 6, 6) + 1, -1
    ).view(1, 4, 6, 6),
    "a mask that is placed": lambda net, v: torch.softmax(
        v.masked_fill(_mask(1) > 0, float("-inf")), 3
    ) + torch.softmax(torch.where(_mask(1) > 0, torch.tensor(-1e9), v), 3),
    "an edge of least numbers": lambda net, v: torch.max_pool2d(
        F.pad(v, [1, 1, 1, 1], value=-3.4e38), 3, 1
    ),
    "an infinite edge": lambda net, v: F.pad(v, [0, 1], value=float("-inf")).amax(
        3, keepdim=True
    ),
    "a dead channel": _norm(mean=3.0, var=0.0),
    "scales of a layer": lambda net, v: v * 1e-6 + v,
    "steps of quantised values": lambda net, v: torch.round(v / 1e-7).clamp(-128, 127) * 1e-7,
}  # fmt: skip


def _suspicions(case):
    torch.manual_seed(0)
    return [f for f in torch_model(Network(case).eval(), SHAPE).findings if SUSPICION in f]


@pytest.mark.parametrize("case", HIDDEN)
def test_what_is_rounded_away_is_a_suspicion(case):
    found = _suspicions(HIDDEN[case])
    assert any("float32 round" in f for f in found), found


@pytest.mark.parametrize("case", READ)
def test_masks_and_ordinary_numbers_are_none(case):
    assert not [f for f in _suspicions(READ[case]) if "float32 round" in f]


HALF_HIDDEN = {
    "plain numbers": lambda net, v: (v + 2048) - 2048 - v,
    "a small number": lambda net, v: (v + 16) - 16,
    "a layer's bias": lambda net, v: torch.conv2d(
        v, torch.eye(4).view(4, 4, 1, 1).to(v), torch.full((4,), 500.0).to(v)
    ),
    "a mean of a batch norm": _norm(mean=300.0),
    "factors": lambda net, v: (v * 1.1 / 1.1 - v) * 1000,
    "factors in two": lambda net, v: torch.relu((v - 1) * 30) * 30,
}
HALF_READ = {
    "pixels": lambda net, v: (v * 255).round() / 255 * 4.4 - 2.1,
    "a norm": _norm(mean=8.0, var=0.5, weight=2.0, bias=-3.0),
    "a mask": lambda net, v: torch.softmax(v + _mask(-65504).to(v), 3),
    "a mask of Swin's": lambda net, v: torch.softmax(v + _mask(-100).to(v), 3),
    "an edge of least numbers": lambda net, v: torch.max_pool2d(
        F.pad(v, [1, 1, 1, 1], value=-65504), 3, 1
    ),
    "a scale of cosines": lambda net, v: torch.softmax(v * 100, 1),
}


class _Half(nn.Module):
    """A network of half precision, pixels and logits of float32."""

    def __init__(self, case, dtype):
        super().__init__()
        self.net, self._dtype = Network(_cast(case)).to(dtype), dtype

    def forward(self, image):
        return self.net(image.to(self._dtype)).float()


def _cast(case):
    """Norms of tests have numbers of float32; those of networks have the network's."""
    return lambda net, v: case(net, v).to(v)


def _of_half(case, dtype):
    model = torch_model(_Half(case, dtype).eval(), SHAPE)
    return [f for f in model.findings if SUSPICION in f and "rounded away" in f or "rounds" in f]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", HALF_HIDDEN)
def test_what_half_precision_rounds_away_is_a_suspicion(case, dtype):
    name = str(dtype).removeprefix("torch.")
    found = _of_half(HALF_HIDDEN[case], dtype)
    assert any(f"{name} round" in f for f in found), found


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", HALF_READ)
def test_ordinary_numbers_of_half_precision_are_none(case, dtype):
    assert not _of_half(HALF_READ[case], dtype)
