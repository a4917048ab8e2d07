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
