"""Factors that take values below normal floats and back, which torch keeps and a scan loses."""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch import nn

from converters.errors import ConversionError
from converters.graph.torch_network import torch_model

SHAPE = (4, 4, 3)


class Network(nn.Module):
    """Logits of a linear layer, and what `added` makes of those of another."""

    def __init__(self, added):
        super().__init__()
        torch.manual_seed(0)
        self.clean, self.other = nn.Linear(48, 5), nn.Linear(48, 5)
        self.small, self.large = (
            nn.Parameter(torch.tensor([size])) for size in (1e-38, 1e37)
        )  # fmt: skip
        self.added = added

    def forward(self, image):
        flat = image.flatten(1)
        return self.clean(flat) + self.added(self, self.other(flat))


HIDDEN = {
    "plain numbers": lambda net, v: v * 1e-20 * 1e-20 * 1e20 * 1e20,
    "whole numbers": lambda net, v: v / 10**18 / 10**18 * 10**18 * 10**18,
    "quotients": lambda net, v: v / 1e20 / 1e20 / 1e-20 / 1e-20,
    "weights": lambda net, v: v * net.small * net.large,
    "weights that are moved": lambda net, v: v * net.small.view(1, 1) * net.large.expand(5),
    "quotients of weights": lambda net, v: v / net.large / net.small,
    "constants": lambda net, v: v * torch.tensor([1e-38]) * torch.tensor([1e37]),
}
READ = {
    "the least number, added": lambda net, v: v * 1e-16 + v.new_full((5,), -3.4e38).clamp(min=0),
    "the least number in the place of others": lambda net, v: torch.softmax(
        torch.where(v > 100, torch.tensor(-3.4028235e38), v), 1
    ) * 1e-16,
    "a mask of least numbers": lambda net, v: torch.softmax(
        v + (1 - torch.ones(5)) * torch.finfo(torch.float32).min, 1
    ) * 1e-16,
    "small numbers alone": lambda net, v: v * net.small,
}  # fmt: skip


@pytest.mark.parametrize("case", HIDDEN)
def test_factors_of_both_sizes_are_refused(case):
    with pytest.raises(ConversionError, match="leave the range of normal floats"):
        torch_model(Network(HIDDEN[case]), SHAPE)


@pytest.mark.parametrize("case", READ)
def test_what_takes_no_value_there_is_read(case):
    network = Network(READ[case]).eval()
    image = np.random.default_rng(1).random((1, *SHAPE)).astype(np.float32)
    with torch.no_grad():
        wanted = network(torch.from_numpy(image).permute(0, 3, 1, 2)).numpy()
    found = torch_model(network, SHAPE)(jnp.asarray(image))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-5)
