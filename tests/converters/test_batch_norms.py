"""Batch norms by the batch's statistics: as torch has them in training, in families and graphs."""

import copy
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import torchvision
from flax import nnx

from converters.batch_norms import by_batch, has_batch_norms, moments
from converters.families.densenet import DenseNetConfig
from converters.families.folding import fold
from converters.graph.module import graph_model
from converters.graph.recognition import family_model
from converters.graph.tape import capture
from converters.model import Model, params_of
from converters.norm_moments import moments_of
from converters.preparation import prepared

SIZE = 40
NORMS = (torch.nn.BatchNorm1d, torch.nn.BatchNorm2d)


class Head(torch.nn.Module):
    """A norm over maps, one over features, and one without weights."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(3, 6, 3, 2), torch.nn.BatchNorm2d(6)
        self.fc, self.last = torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4, affine=False)

    def forward(self, x):
        return self.last(self.fc(torch.relu(self.norm(self.conv(x))).mean((2, 3))))


def taught(module: torch.nn.Module) -> torch.nn.Module:
    """Running statistics and weights that differ from one channel to the next."""
    draw = torch.Generator().manual_seed(1)
    for part in module.modules():
        if isinstance(part, NORMS):
            part.running_mean.copy_(torch.randn(part.num_features, generator=draw) * 0.2)
            part.running_var.copy_(torch.rand(part.num_features, generator=draw) + 0.5)
    return module.eval()


def in_training(module: torch.nn.Module, images: np.ndarray):
    """Logits of torch in training, and the statistics that it leaves at a momentum of 1.

    Of a copy, since torch writes them into the module's memory, which a captured graph shares.
    """
    module = copy.deepcopy(module)
    norms = [p for p in module.modules() if isinstance(p, NORMS)]
    usual = [(p.running_mean.numpy().copy(), p.running_var.numpy().copy()) for p in norms]
    for part in norms:
        part.momentum = 1.0
    module.train()
    with torch.no_grad():
        logits = module(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()
    module.eval()
    means = [p.running_mean.numpy() for p in norms]
    return logits, means, usual


def pictures(count: int = 6) -> np.ndarray:
    return np.random.default_rng(0).random((count, SIZE, SIZE, 3), np.float32)


def test_a_graph_does_as_torch_in_training():
    torch.manual_seed(0)
    module = taught(Head())
    model = graph_model(capture(module, [torch.zeros(1, 3, SIZE, SIZE)]))
    assert has_batch_norms(model)
    logits, found = by_batch(model, pictures())
    expected, means, usual = in_training(module, pictures())
    np.testing.assert_allclose(logits, expected, rtol=2e-3, atol=2e-3)
    for norm, mean, (running, spread) in zip(found, means, usual, strict=True):
        np.testing.assert_allclose(norm.mean, mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(norm.running_mean, running)
        np.testing.assert_array_equal(norm.running_var, spread)


def test_a_family_does_as_its_graph():
    torch.manual_seed(0)
    module = taught(torchvision.models.resnet18(num_classes=5))
    captured = capture(module, [torch.zeros(1, 3, SIZE, SIZE)])
    family, graph = family_model(captured), graph_model(captured)
    assert family is not None and has_batch_norms(family)
    (a, found), (b, others) = by_batch(family, pictures()), by_batch(graph, pictures())
    np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)
    assert len(found) == len(others) == 20
    means = [sorted(float(norm.mean.sum()) for norm in norms) for norms in (found, others)]
    np.testing.assert_allclose(*means, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(family(pictures()), graph(pictures()), rtol=1e-3, atol=1e-3)


def test_what_was_folded_has_none():
    config = DenseNetConfig(8, (((8, 4),), ((8, 4),)), (6,), 3)
    params = params_of(config.build(nnx.Rngs(0)))
    model = Model(config, {k: jnp.asarray(v) for k, v in params.items()}, "densenet")
    assert len(by_batch(model, pictures())[1]) == 7
    # Norms before a relu and a convolution stay.
    assert 0 < len(by_batch(fold(model), pictures())[1]) < 7
    bare = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2)).eval()
    assert not has_batch_norms(graph_model(capture(bare, [torch.zeros(1, 3, 2, 2)])))


def test_pixels_are_prepared_first():
    model = graph_model(capture(taught(Head()), [torch.zeros(1, 3, SIZE, SIZE)]))
    shifted = prepared(model, mean=(0.5,), std=(0.25,))
    images = pictures()
    a, b = by_batch(shifted, images)[0], by_batch(model, (images - 0.5) / 0.25)[0]
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_a_norm_whose_statistics_pixels_decide_is_left_as_it_is():
    class Decided(torch.nn.Module):
        def forward(self, x):
            mean = x.mean((0, 2, 3))
            y = torch.nn.functional.batch_norm(x, mean, mean * 0 + 1.0)
            return y.mean((2, 3))

    model = graph_model(capture(Decided().eval(), [torch.zeros(1, 3, 4, 4)]))
    assert not has_batch_norms(model)
    logits, found = by_batch(model, pictures()[:, :4, :4])
    assert found == () and np.isfinite(logits).all()


def seen_by(module: torch.nn.Module, images: np.ndarray):
    """Torch's logits in inference, and what its norms see of each image, in running deviations."""
    found = []

    def watch(part, inputs):
        x = inputs[0].numpy()
        shape = (1, -1) + (1,) * (x.ndim - 2)
        mean, var = (v.numpy().reshape(shape) for v in (part.running_mean, part.running_var))
        apart, axes = (x - mean) / np.sqrt(var), tuple(range(2, x.ndim))
        found.append((apart.mean(axes), (apart**2).mean(axes)))

    hooks = [
        part.register_forward_pre_hook(watch)
        for part in module.modules()
        if isinstance(part, NORMS)
    ]
    with torch.no_grad():
        logits = module(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()
    for hook in hooks:
        hook.remove()
    return logits, found


def test_what_norms_see_of_each_picture_is_what_torchs_norms_see():
    torch.manual_seed(0)
    for module in (taught(Head()), taught(torchvision.models.resnet18(num_classes=5))):
        captured = capture(module, [torch.zeros(1, 3, SIZE, SIZE)])
        expected, seen = seen_by(module, pictures())
        for model in (graph_model(captured), family_model(captured)):
            if model is None:
                continue
            logits, found = jax.jit(moments, static_argnums=0)(
                model.config, model.params, pictures()
            )
            np.testing.assert_allclose(logits, expected, rtol=2e-3, atol=2e-3)
            assert len(found) == len(seen)
            for own, (mean, square) in zip(found, seen, strict=True):
                np.testing.assert_allclose(own.mean, mean, rtol=2e-3, atol=2e-3)
                np.testing.assert_allclose(own.square, square, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("pixels", [0, 1, 2, 3])
def test_gradients_of_moments_are_those_of_the_formula(pixels):
    def formula(values, mean, var):
        apart = (values - mean) / jnp.sqrt(var)
        axes = tuple(range(-1 - pixels, -1))
        return apart.mean(axes), jnp.square(apart).mean(axes)

    def weighted(moments):
        return lambda *args: sum(jnp.sin(3 * part).sum() for part in moments(*args))

    draw = np.random.default_rng(0)
    with jax.enable_x64(True):
        values = jnp.asarray(draw.normal(size=(5, *range(2, 2 + pixels), 6)))
        mean, var = (jnp.asarray(draw.random(6) + add) for add in (0, 0.5))
        own = partial(moments_of, pixels=pixels)
        pulls = [jax.jit(jax.grad(weighted(each), (0, 1, 2))) for each in (own, formula)]
        for found, expected in zip(*(pull(values, mean, var) for pull in pulls), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_moments_of_numbers_whose_squares_overflow_are_those_of_training():
    values = np.array([[[1e25], [3e25]]], np.float32)
    mean, var = np.array([2e25], np.float32), np.array([1e37], np.float32)
    found = moments_of(jnp.asarray(values), jnp.asarray(mean), jnp.asarray(var), 1)
    scaled = (values.astype(np.float64) - mean) / np.sqrt(var.astype(np.float64))
    np.testing.assert_allclose(found.square, (scaled**2).mean(1), rtol=1e-4)
