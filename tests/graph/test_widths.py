"""Numbers of 64 bits that depend on the image: refused where a scan, of 32 bits, could lose them.

Every network adds something to the logits; torch runs it too, in this process. Cases take the
numbers of a layer, or the pixels.
"""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from converters.errors import UnsupportedOperatorError
from converters.findings import PRECISION
from converters.graph.torch_network import torch_model

SHAPE = (4, 4, 3)


class Network(nn.Module):
    """Logits of a linear layer, and what `added` makes of those of another, or of five pixels."""

    def __init__(self, added, of_pixels=False):
        super().__init__()
        torch.manual_seed(0)
        self.clean, self.other = nn.Linear(48, 5), nn.Linear(48, 5)
        self.added, self.of_pixels = added, of_pixels

    def forward(self, image):
        flat = image.flatten(1)
        return self.clean(flat) + self.added(flat[:, :5] if self.of_pixels else self.other(flat))


MEAN = torch.tensor([0.485, 0.456, 0.406, 0.5, 0.0], dtype=torch.float64)
ONE = torch.ones(5, dtype=torch.float64)
TINY = torch.tensor([1e-30, 1, 1, 1, 1], dtype=torch.float64)
HUGE = torch.tensor([1e12, 2e12, 3e12, 4e12, 5e12], dtype=torch.float64)


def _thousandfold(value):
    for _ in range(9):
        value = value * torch.full((5,), 1000.0, dtype=torch.float64)
    return value


HIDDEN = {
    "a large number added and taken away in float64": lambda v: ((v + HUGE) - HUGE).float(),
    "tiny factors in float64": lambda v: ((v.double() * TINY) / TINY).float(),
    "a large number added as so many times another": lambda v: torch.sub(
        torch.add(v, ONE, alpha=1e12), ONE, alpha=1e12
    ).float(),
    "pixels made small, then something added": lambda v: (
        (((v.double() * 1e-5) + 1e3) - 1e3) * 1e5
    ).float(),
    "the same, made small in float32": lambda v: (((v * 1e-5).double() + 1e3) - 1e3).float() * 1e5,
    "a mean of pixels and large numbers": lambda v: (
        torch.stack([v.double(), 1e6 * ONE[None], -1e6 * ONE[None]]).mean(0).float()
    ),
    "a pool of pixels and large numbers, windows over each other": lambda v: (
        torch.nn.functional.avg_pool2d(
            torch.cat([v.double(), 100 * torch.ones(1, 1995).double()], 1)[None], (1, 1000), 1
        )[0, :, :5].float()
    ),
    "softmax in float64": lambda v: torch.softmax(v.double() * 1e6, 1).log().float(),
    "a constant over the image in float64": lambda v: (ONE / v).float(),
    "quotients rounded in float64": lambda v: torch.div(v, ONE, rounding_mode="floor").float(),
    "int64 in the place of zeros": lambda v: (
        torch.zeros(1, 5).long().copy_((v.clamp(-1, 1) * 1e3).long()) * 4_000_000 // 4_000_000
    ).float(),
    "sums of int64 by a pool": lambda v: (
        torch.nn.functional.avg_pool2d(
            ((v.clamp(-1, 1) * 1e9).long() + 2**30).reshape(1, 1, 1, 5), (1, 5), divisor_override=1
        )
        .flatten(1)
        .float()
    ),
    "products of the image in float64": lambda v: (v.double() * v).float(),
    "many steps in float64": lambda v: _thousandfold(v).float(),
    "exp in float64": lambda v: torch.exp(v.double()).log().float(),
    "int64 beyond 32 bits": lambda v: ((v * 1000).long() * 2**40 // 2**40).float() / 1000,
    "the larger of two, of which one is beyond 32 bits": lambda v: torch.max(
        (v > 0).long(), torch.tensor(2**40)
    ).float(),
    "sums of int64 beyond 32 bits": lambda v: (
        (v.clamp(0, 1) * 2e9).long().sum(1, keepdim=True).float()
    ),
}
HIDDEN_BESIDE_LAYERS = {
    "int64 of numbers without bounds": lambda v: v.long().float(),
    "pixels prepared in float64": lambda v: ((v - MEAN) / (MEAN + 0.25)).float(),
    "something added to numbers of a layer": lambda v: ((v + ONE) - ONE).float(),
    "a mean of a layer's numbers": lambda v: v.double().mean(1, keepdim=True).float(),
}
READ = {
    "numbers of a layer, or pixels, halved in float64": lambda v: (v.double() * MEAN[3]).float(),
    "the place of the largest": lambda v: v.argmax(1, keepdim=True).float(),
    "how many are positive": lambda v: (v > 0).sum(1, keepdim=True).float(),
    "levels of clipped numbers": lambda v: (v.clamp(-1, 1) * 127).round().long().float() / 127,
    "arithmetic that 32 bits hold": lambda v: (
        ((v.sigmoid() * 255).long() * 1000 - 7) // 3 % 11
    ).float(),
    "int32": lambda v: (v.clamp(0, 1) * 100).int().float(),
}


@pytest.mark.parametrize("of_pixels", [True, False])
@pytest.mark.parametrize("case", HIDDEN)
def test_what_32_bits_may_lose_is_refused(case, of_pixels):
    with pytest.raises(UnsupportedOperatorError, match="of the image in (int|float)64"):
        torch_model(Network(HIDDEN[case], of_pixels), SHAPE)


@pytest.mark.parametrize("case", HIDDEN_BESIDE_LAYERS)
def test_nobody_knows_how_small_numbers_of_a_layer_are(case):
    """Those of pixels are known, and the same is read of them."""
    with pytest.raises(UnsupportedOperatorError, match="of the image in (int|float)64"):
        torch_model(Network(HIDDEN_BESIDE_LAYERS[case]), SHAPE)
    check_read(Network(HIDDEN_BESIDE_LAYERS[case], of_pixels=True))


@pytest.mark.parametrize("of_pixels", [True, False])
@pytest.mark.parametrize("case", READ)
def test_what_32_bits_hold_is_read(case, of_pixels):
    check_read(Network(READ[case], of_pixels))


def check_read(network):
    network = network.eval()
    image = np.random.default_rng(1).random((1, *SHAPE)).astype(np.float32)
    with torch.no_grad():
        wanted = network(torch.from_numpy(image).permute(0, 3, 1, 2)).numpy()
    found = torch_model(network, SHAPE)(jnp.asarray(image))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-5)


def test_a_network_in_float64_is_a_finding():
    network = Network(lambda v: v).double()
    model = torch_model(network, SHAPE)
    assert any(f.startswith(f"{PRECISION} float64") for f in model.findings)
