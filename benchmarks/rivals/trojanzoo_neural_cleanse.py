"""The rival: TrojanZoo's NeuralCleanse, its own optimisation loop on our network and pictures.

Opt-in: `pip install trojanzoo "matplotlib<3.9"` in an environment of its own beside jaxtroj (it
imports `matplotlib.cm.get_cmap`, which newer ones lack). Only what its loop asks of a data set, a
model and an attack is given here; an epoch of it is one batch of all pictures, so that its epochs
are steps, as the other rivals count them. Its early stopping stays on.
"""

from types import SimpleNamespace

import numpy as np
import torch

from benchmarks.rivals.torch_neural_cleanse import Inverted, frozen, pictures_for


class _Network:
    """What TrojanZoo asks of a model."""

    def __init__(self, network: torch.nn.Module):
        self.network = network

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.network(x)

    def get_data(self, data):
        return data

    def loss(self, _input, labels, _output):
        return torch.nn.functional.cross_entropy(_output, labels)


class _Attack:
    """What TrojanZoo asks of an attack: a mark `[c + 1, h, w]`, its last channel the mask."""

    def __init__(self, shape: tuple[int, ...]):
        channels, height, width = shape
        self.mark = SimpleNamespace(mark=torch.zeros(channels + 1, height, width))

    def add_mark(self, x: torch.Tensor) -> torch.Tensor:
        mask = self.mark.mark[-1]
        return x * (1 - mask) + self.mark.mark[:-1] * mask


def neural_cleanse(
    model: torch.nn.Module, images: np.ndarray, labels: np.ndarray, target: int, steps: int
) -> Inverted:
    """Invert one label's trigger; arguments as in `torch_neural_cleanse.neural_cleanse`."""
    from trojanvision.defenses import NeuralCleanse  # pyright: ignore[reportMissingImports]

    network, chosen = frozen(model), pictures_for(images, labels, target)
    detector = NeuralCleanse.__new__(NeuralCleanse)
    detector.attack, detector.model = _Attack(tuple(chosen.shape[1:])), _Network(network)
    detector.init_cost = detector.cost = 1e-3
    detector.cost_multiplier_up, detector.cost_multiplier_down = 1.5, 1.5**1.5
    detector.nc_asr_threshold = detector.nc_early_stop_threshold = 0.99
    detector.nc_patience, detector.early_stop_patience = 10.0, 20.0
    detector.defense_remask_epoch, detector.defense_remask_lr = steps, 0.1
    batch = (chosen, torch.full((len(chosen),), target))
    mark, _ = detector.optimize_mark(target, loader=[batch], verbose=False)
    detector.attack.mark.mark = mark
    with torch.inference_mode():
        hit = network(detector.attack.add_mark(chosen)).argmax(1) == target
    return Inverted(target, float(mark[-1].sum()), float(hit.float().mean()))
