"""Weights of a family beside which float32 rounds away what the image decides."""

import pytest
import torch
import torchvision

from converters.findings import SUSPICION, doubts
from converters.opening import open_model


def changed(**numbers: float) -> torch.nn.Module:
    """A ResNet18 whose first norm has these numbers in every channel."""
    torch.manual_seed(0)
    network = torchvision.models.resnet18(num_classes=5).eval()
    with torch.no_grad():
        for name, value in numbers.items():
            getattr(network.bn1, name).fill_(value)
    return network


@pytest.mark.parametrize(
    ("numbers", "named"),
    [
        ({"running_mean": 1e8, "bias": 1e8, "running_var": 1 - 1e-5}, ("bias", "mean")),
        ({"bias": -2e5}, ("bias",)),
        # In units of the norm's result this mean is 3.2e5.
        ({"running_mean": 1e3, "running_var": 0.0}, ("mean",)),
        ({"running_mean": 1e8, "running_var": 1e16}, ()),
        ({"running_mean": 10.0, "running_var": 0.0, "bias": 500.0}, ()),
    ],
)
def test_numbers_that_round_values_away_are_suspicious(tmp_path, numbers, named):
    for name, saved in (("net.pt", changed(**numbers)), ("w.pt", changed(**numbers).state_dict())):
        torch.save(saved, tmp_path / name)
        found = doubts(open_model(tmp_path / name).findings)
        assert [text.partition(" adds ")[0] for text in sorted(found)] == [
            f"{SUSPICION}: bn1.{part}" for part in named
        ]
