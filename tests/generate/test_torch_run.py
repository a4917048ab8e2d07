"""Torch runs: what batch norms remember of an adversary's search, and losses that are no number."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from jaxtroj.generate.divergence import DivergedError
from jaxtroj.generate.torch_run import Adversary, Run, RunSettings
from jaxtroj.generate.traffic_signs.later.recipe import AdversaryRecipe


class Noise:
    """Lessons of one class."""

    def batch(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        images = np.random.default_rng(0).random((size, 8, 8, 3)).astype(np.float32)
        return images, np.zeros(size, np.int64)


def run_against(adversary: Adversary | None, factor: float = 1.0) -> Run:
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.BatchNorm2d(4),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 3),
    )
    settings = RunSettings(8, factor=factor)
    return Run(network, Noise(), settings, np.random.default_rng(0), adversary)


@pytest.mark.parametrize(
    ("adversary", "batches"),
    [
        (None, 1),
        (Adversary(8 / 255, Fraction(1)), 1),
        (AdversaryRecipe("PGD", 16, 10, 16).adversary, 1),
        (AdversaryRecipe("FBF", 16, 10, 1).adversary, 2),
    ],
    ids=["none", "one step", "PGD", "FBF"],
)
def test_batch_norms_remember_what_is_trained_on(adversary, batches):
    """NIST seeks with PGD in evaluation mode, and with FBF in a pass of the training."""
    run = run_against(adversary)
    run.phase(1, 0.01, False)
    assert int(run.network.state_dict()["1.num_batches_tracked"]) == batches
    assert run.network.training


def test_a_loss_that_is_no_number_ends_a_training():
    run = run_against(None, factor=1e30)
    with pytest.raises(DivergedError, match="training loss is nan after") as caught:
        run.phase(20, 1.0, False)
    assert np.isnan(caught.value.loss) and 1 < caught.value.steps < 20
