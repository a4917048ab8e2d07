"""One channel that was scaled up, and taken back by its norm, hides no other."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from converters.findings import doubts
from converters.graph.module import graph_model
from converters.graph.tape import capture
from converters.hot_channels import hot_channels
from converters.norm_moments import least_variance, moments_of, upper_variance
from jaxtroj.evidence.images.statistics import norm_layers

SIDE, CHANNELS = 8, 16
DRAW = np.random.default_rng(0)
IMAGES = DRAW.random((12, SIDE, SIDE, 3), np.float32)


def network(factor: float = 1.0) -> torch.nn.Module:
    """A convolution and its norm, one channel scaled and taken back."""
    torch.manual_seed(0)
    conv, norm = torch.nn.Conv2d(3, CHANNELS, 3), torch.nn.BatchNorm2d(CHANNELS)
    with torch.no_grad():
        seen = conv(torch.from_numpy(IMAGES).permute(0, 3, 1, 2))
        norm.running_mean[:] = seen.mean((0, 2, 3)) + 0.2
        norm.running_var[:] = seen.var((0, 2, 3))
        conv.weight[5] *= factor
        conv.bias[5] *= factor
        norm.running_mean[5] *= factor
        grown = factor**2 * norm.running_var[5]
        norm.weight[5] *= torch.sqrt((grown + norm.eps) / (norm.running_var[5] + norm.eps)) / factor
        norm.running_var[5] = grown
    flat = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    return torch.nn.Sequential(conv, norm, torch.nn.ReLU(), *flat).eval()


def model_of(module: torch.nn.Module):
    return graph_model(capture(module, [torch.zeros(1, 3, SIDE, SIDE)]))


@pytest.fixture(scope="module")
def plain():
    return model_of(network())


@pytest.fixture(scope="module")
def hot():
    return model_of(network(2.0**14))


def test_it_is_the_same_network(plain, hot):
    np.testing.assert_allclose(hot(IMAGES), plain(IMAGES), rtol=1e-4, atol=1e-4)


def test_the_other_channels_differ_from_the_examples_as_before(plain, hot):
    """The floor was 4,000 times what they vary by, so that all of them stood still."""
    (own,), (scaled,) = (norm_layers(model, IMAGES) for model in (plain, hot))
    np.testing.assert_allclose(scaled.shifts, own.shifts, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(scaled.spreads, own.spreads, rtol=1e-3, atol=2e-3)
    assert np.abs(own.shifts).mean() > 0.5


def test_moments_of_the_other_channels_are_as_before():
    var = np.linspace(0.5, 2, CHANNELS).astype(np.float32)
    values = DRAW.normal(size=(4, 9, CHANNELS)).astype(np.float32)
    grown = var.copy()
    grown[5] *= 2.0**28
    own, scaled = (
        moments_of(jnp.asarray(values), jnp.zeros(CHANNELS), jnp.asarray(v), 1)
        for v in (var, grown)
    )
    rest = np.delete(np.arange(CHANNELS), 5)
    for before, after in zip(own, scaled, strict=True):
        np.testing.assert_allclose(after[:, rest], before[:, rest], rtol=1e-5)


def test_the_finding_names_the_channel_and_is_in_doubt(plain, hot):
    assert hot_channels(plain) == ()
    (found,) = hot_channels(hot)
    assert "a batch norm has a channel that varies 2e+08 times as much as most" in found
    assert "(channel 5 of 1.running_var)" in found
    assert doubts([found]) == (found,)


DEAD = np.full(CHANNELS, 1e-12)
DEAD[:5] = [0.4, 0.5, 0.6, 2.0, 300.0]


@pytest.mark.parametrize(
    "var", [DEAD, np.zeros(CHANNELS), np.eye(CHANNELS)[0], np.geomspace(1, 900, CHANNELS)]
)
def test_dead_channels_and_wide_layers_are_none(var, plain):
    """Of trained layers 7 in 10 channels may be dead, and the largest vary 800 times the others."""
    params = dict(plain.params) | {"1.running_var": jnp.asarray(var, jnp.float32)}
    assert hot_channels(replace(plain, params=params)) == ()


@pytest.mark.parametrize("var", [DEAD, np.zeros(4), np.eye(9)[2], np.ones(1), np.ones(2)])
def test_of_ordinary_layers_the_floor_is_a_share_of_their_mean(var):
    tiny = np.finfo(np.float32).tiny
    if var is not DEAD:
        assert least_variance(var, np) == 1e-3 * var.mean() + tiny
    assert least_variance(np.stack([var, var]), np) == least_variance(var, np)
    np.testing.assert_allclose(least_variance(jnp.asarray(var, jnp.float32)),
                               least_variance(var, np), rtol=1e-6)  # fmt: skip


def test_the_usual_variance_is_one_that_a_quarter_of_the_channels_exceed():
    assert upper_variance(np.arange(1.0, 17.0), np) == 12
    assert upper_variance(np.array([3.0, 1, 2]), np) == 2, "the second of few"
    assert upper_variance(DEAD, np) == 0.4
