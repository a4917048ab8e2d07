"""All 23 architectures of Rounds 1 to 4: files as NIST wrote them, read and searchable."""

import jax
import numpy as np
import pytest
import torch

from converters import open_model
from converters.families.folding import fold
from converters.input_form import InputForm
from jaxtroj.generate import torch_file
from jaxtroj.generate.traffic_signs.later.architectures import ARCHITECTURES, ROUND1, build
from jaxtroj.network import Network

CLASSES = 7


@pytest.mark.slow
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_logits_and_gradients_are_torchs(name, tmp_path):
    side = max(64, ARCHITECTURES[name].least_pixels)
    network, path = build(name, CLASSES, 0), tmp_path / "model.pt"
    draw = torch.Generator().manual_seed(1)
    network.train()(torch.rand(4, 3, side, side, generator=draw))  # statistics of its own
    torch_file.save_module(path, network, name in ROUND1)
    images = np.random.default_rng(2).uniform(size=(2, side, side, 3)).astype(np.float32)
    x = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).requires_grad_(True)
    logits = network(x)
    weights = np.random.default_rng(3).standard_normal((2, CLASSES)).astype(np.float32)
    (gradient,) = torch.autograd.grad((logits * torch.from_numpy(weights)).sum(), x)
    model = fold(open_model(path, InputForm(image_size=(side, side))).model)
    assert model.num_classes == CLASSES
    found, answers = Network(model).gradients(jax.numpy.asarray(images), weights)
    wanted = logits.detach().numpy()
    np.testing.assert_allclose(answers, wanted, atol=2e-3 * np.abs(wanted).max())
    expected = gradient.numpy().transpose(0, 2, 3, 1)
    # Where two values tie or a relu is at its bend, float32 may take another side.
    apart = np.linalg.norm(np.asarray(found) - expected) / np.linalg.norm(expected)
    assert apart < 0.02 and np.isfinite(found).all() and np.abs(expected).max() > 0
