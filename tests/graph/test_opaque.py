"""What XLA's simplifier would count as on paper comes out as torch counts it, step by step."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from converters.graph.replay import run
from converters.graph.tape import capture

BIG = 2.0**24
IMAGES = np.random.default_rng(0).uniform(0.1, 2.9, (4, 50)).astype(np.float32)


class Steps(torch.nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.steps = steps
        self.register_buffer("big", torch.tensor(BIG))

    def forward(self, x):
        return self.steps(x, self)


CASES = {
    "numbers added and taken": lambda x, _: (x + BIG) - BIG,
    "whole numbers": lambda x, _: (x + 2**24) - 2**24,
    "a number from which it is taken": lambda x, _: BIG - (BIG - x),
    "scaled numbers": lambda x, _: torch.sub(torch.add(x, 1.0, alpha=BIG), 1.0, alpha=BIG),
    "a buffer": lambda x, own: (x + own.big) - own.big,
    "a tensor that is made": lambda x, _: (x + torch.full((), BIG)) - torch.full((), BIG),
    "one in the image's shape": lambda x, _: (
        (x + torch.full_like(x, BIG)) - torch.full_like(x, BIG)
    ),
    "one that is computed": lambda x, _: (x + torch.ones(4).sum() * 2**22) - torch.full((), BIG),
    "factors beyond the range": lambda x, _: x * 1e30 * 1e30 * 1e-30 * 1e-30,
    "quotients beyond the range": lambda x, _: x * 1e8 / 1e-25 / 1e-25 * 1e-25 * 1e-25,
    "a logarithm of exp": lambda x, _: torch.log(torch.exp(60 * x)).clamp(max=1e3),
    "a product of exps": lambda x, _: torch.exp(40 * x) * torch.exp(1 - 20 * x),
    "a power of a power": lambda x, _: ((x * 1e15) ** 3) ** 0.5,
    "a truth times infinity": lambda x, _: ((x / 0.0) * (x > 1).float()).isnan().float(),
    "a truth as it is": lambda x, _: ((x / 0.0) * (x > 1)).isnan().float(),
}


@pytest.mark.parametrize("name", CASES)
def test_steps_are_counted_one_by_one(name):
    module = Steps(CASES[name]).eval()
    expected = module(torch.from_numpy(IMAGES)).numpy()
    graph = capture(module, (torch.from_numpy(IMAGES),)).graph
    params = {"big": jnp.float32(BIG)} if graph.params else {}
    found = jax.jit(lambda params, x: run(graph, params, [x])[0])(params, IMAGES)
    np.testing.assert_allclose(found, expected, rtol=2e-6)


@pytest.mark.parametrize("name", list(CASES)[:4])
def test_gradients_and_batches_pass_barriers(name):
    graph = capture(Steps(CASES[name]).eval(), (torch.from_numpy(IMAGES),)).graph

    def total(x):
        return run(graph, {}, [x])[0].sum()

    gradient = jax.jit(jax.vmap(jax.grad(total)))(np.stack([IMAGES, IMAGES]))
    assert gradient.shape == (2, *IMAGES.shape) and (gradient == 1).all()
