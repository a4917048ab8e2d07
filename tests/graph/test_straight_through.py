"""Networks that round: the same answers to the bit, and gradients for the searches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from converters.graph.module import graph_model
from converters.graph.straight_through import passing_gradients
from converters.graph.tape import capture
from converters.model import Model, apply


class Rounded(torch.nn.Module):
    """A small network over pixels that some function prepares."""

    def __init__(self, prepare):
        super().__init__()
        torch.manual_seed(0)
        self.prepare = prepare
        self.body = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(144, 3)
        )

    def forward(self, x):
        return self.body(self.prepare(x))


def _eight_bits(x):
    whole = torch.clamp(torch.round(x * 255) - 100, -128, 127).to(torch.int8)
    return (whole.to(torch.int64) + 100).to(torch.float32) / 255


ROUNDINGS = {
    "round": lambda x: torch.round(x * 255) / 255,
    "decimals": lambda x: torch.round(x, decimals=2),
    "floor": lambda x: torch.floor(x * 255) / 255,
    "ceil": lambda x: torch.ceil(x * 255) / 255,
    "trunc": lambda x: torch.trunc(x * 255) / 255,
    "bytes": lambda x: (x * 255).to(torch.uint8).to(torch.float32) / 255,
    "bytes that overflow": lambda x: (x * 999).to(torch.uint8).float() / 255,
    "whole numbers": lambda x: (x * 255).to(torch.int64).float() / 255,
    "eight bits around a zero point": _eight_bits,
    "bytes in another order": lambda x: (x * 255).to(torch.uint8).flip(1).permute(0, 1, 3, 2)
    .contiguous().float() / 255,
}  # fmt: skip
LEFT = {"bytes in another order"}
"""Whose whole numbers meet a call (flip) that is not known to take floating ones."""


def _model(prepare) -> Model:
    captured = capture(Rounded(prepare).eval(), (torch.zeros(1, 3, 8, 8),))
    return graph_model(captured, layout="NCHW")


def _gradient(model: Model, images):
    return jax.grad(lambda x: apply(model.config, model.params, x)[:, 0].sum())(images)


@pytest.mark.parametrize("name", ROUNDINGS)
def test_answers_stay_and_gradients_pass(name):
    images = jnp.asarray(np.random.default_rng(1).random((2, 8, 8, 3)), jnp.float32)
    model = _model(ROUNDINGS[name])
    changed, found = passing_gradients(model)
    assert not np.any(_gradient(model, images)), "torch's rounding has no gradient"
    if name in LEFT:
        assert (changed, found) == (model, ())
        return
    assert found and "round" in found[0] and changed.architecture == model.architecture
    before, after = (apply(m.config, m.params, images) for m in (model, changed))
    np.testing.assert_array_equal(after, before)
    smooth = _gradient(_model(lambda x: x), images)
    cosine = np.vdot(_gradient(changed, images), smooth)
    cosine /= np.linalg.norm(_gradient(changed, images)) * np.linalg.norm(smooth)
    assert cosine > (0.5 if name == "bytes that overflow" else 0.95)


def _quantised(zero: int):
    """Pixels to bytes around a zero point."""
    return lambda x: (
        (
            torch.clamp(torch.round(x * 255) + zero, 0, 255).to(torch.uint8).to(torch.int64) - zero
        ).float()
        / 255
    )


@pytest.mark.parametrize(("zero", "below"), [(0, 0.0), (64, 1.0)])
def test_gradients_pass_clips_but_no_relu(zero, below):
    model, _ = passing_gradients(_model(_quantised(zero)))
    found = []
    for pixel in (-0.5, 0.0, 0.5, 1.0, 1.5):
        images = jnp.full((1, 8, 8, 3), pixel)
        cut = jnp.clip(jnp.round(images * 255), -zero, 255 - zero) / 255
        smooth = _gradient(_model(lambda x: x), cut)
        found.append(float(np.vdot(_gradient(model, images), smooth) / np.vdot(smooth, smooth)))
    np.testing.assert_allclose(found, [below, 1, 1, 1, 1], atol=0.02)


def test_whole_numbers_of_unknown_use_keep_no_others_from_passing():
    def both(x):
        whole = (x * 255).to(torch.uint8).permute(0, 1, 3, 2)
        return whole.float() / 255 + (x * 9).to(torch.int64).flip(1).float()

    images = jnp.asarray(np.random.default_rng(1).random((2, 8, 8, 3)), jnp.float32)
    model = _model(both)
    changed, found = passing_gradients(model)
    assert found == (
        "the network rounds values in one place; searches take gradients straight through",
    )
    before, after = (apply(m.config, m.params, images) for m in (model, changed))
    np.testing.assert_array_equal(after, before)
    assert np.any(_gradient(changed, images))


def test_a_network_that_rounds_nothing_stays_as_it_is():
    model = _model(lambda x: x * 2)
    assert passing_gradients(model) == (model, ())
