"""Weights of a file put into a torch module."""

import numpy as np
import pytest
import torch

from converters.errors import ConversionError
from converters.torch_weights import fill
from converters.weights import single_precision


class Shared(torch.nn.Module):
    """One norm under two names, with an epsilon of its own."""

    def __init__(self):
        super().__init__()
        self.first = torch.nn.BatchNorm2d(3, eps=1e-3)
        self.again = self.first


@pytest.mark.parametrize("make", [lambda: torch.nn.BatchNorm2d(3, eps=1e-3), Shared])
@pytest.mark.parametrize(("variance", "is_finite"), [(0.0, True), (-5e-4, True), (-2e-3, False)])
def test_a_variance_is_refused_where_the_network_computes_nan(make, variance, is_finite):
    """Channels that no picture reaches have a variance of 0, as in EfficientNet-Lite's files."""
    module = make().eval()
    tensors = {name: value.numpy().copy() for name, value in module.state_dict().items()}
    for name in tensors:
        if name.endswith("running_var"):
            tensors[name][1] = variance
    if not is_finite:
        with pytest.raises(ConversionError, match="variances are negative, the first is"):
            fill(module, tensors)
        return
    fill(module, tensors)
    norm = module.first if isinstance(module, Shared) else module
    assert torch.isfinite(norm(torch.ones(1, 3, 2, 2))).all()


def test_a_variance_of_nothing_passes_where_the_epsilon_is_not_known():
    assert single_precision({"n.running_var": np.zeros(2)})["n.running_var"].tolist() == [0, 0]
    with pytest.raises(ConversionError, match="negative"):
        single_precision({"n.running_var": np.array([0, -1e-30])})


@pytest.mark.parametrize(
    ("small", "large", "is_read"),
    [
        (1e-39, 1e3, True),
        (0.0, 1e38, True),
        (1e-3, 1e38, True),
        (1e-39, 1e13, False),
        (-1e-20, -1e30, False),
    ],
)
def test_weights_that_leave_the_range_of_normal_floats_and_come_back_are_refused(
    small, large, is_read
):
    """torch computes with subnormal products, XLA takes them for 0."""
    weights = {"first": np.array([1.0, small]), "last": np.array([large, 1.0])}
    if is_read:
        assert single_precision(weights)["last"][1] == 1
        return
    with pytest.raises(ConversionError, match="leave the range of normal floats"):
        single_precision(weights)
