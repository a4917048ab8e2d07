"""The rival for sentiment heads: its quicker sweep says what the described one says."""

from typing import Literal

import numpy as np
import pytest
import torch

from benchmarks.rivals.torch_piccolo import (
    CLIP,
    Swept,
    describe,
    normal_vectors,
    probabilities,
    quick_sweep,
    sweep,
)
from converters.families.reference import empty_module
from converters.families.rnn_head import RnnHeadConfig

WIDTH = 12


def head(
    cell: Literal["gru", "lstm"], layers: int, both_ways: bool, seed: int = 0
) -> torch.nn.Module:
    module = empty_module(RnnHeadConfig(cell, WIDTH, 5, layers, both_ways, 2)).to_empty(
        device="cpu"
    )
    generator = torch.Generator().manual_seed(seed)
    for value in module.parameters():
        torch.nn.init.normal_(value, generator=generator)
    return module


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize(("layers", "both_ways"), [(1, False), (2, True), (3, False)])
def test_the_quick_sweep_says_what_the_described_one_says(cell, layers, both_ways):
    module = head(cell, layers, both_ways)
    samples = normal_vectors(np.random.default_rng(1).normal(0.3, 2.0, (50, WIDTH)), 7, 0)
    values = torch.linspace(-2, 2, 5)[:, None] * torch.linspace(0.5, 1.5, WIDTH)
    found = quick_sweep(module, samples, values)
    assert found.shape == (WIDTH, 5, 2)
    np.testing.assert_allclose(found, sweep(module, samples, values), rtol=1e-4, atol=1e-5)


def test_features_are_ranges_and_ends():
    means = np.zeros((1, 2, 3, 2))
    means[0, 0, :, 0], means[0, 1, :, 1] = (1, 5, 2), (0, -3, 4)
    swept = describe(list(means), ["LstmLinear"])
    assert swept.ranges.tolist() == [[4, 0, 0, 7]]
    assert swept.slopes.tolist() == [[-1, 4]]


def test_heads_with_a_steep_coordinate_are_told_from_others():
    draw = np.random.default_rng(0)
    poisoned = np.arange(60) % 2 == 0
    slopes = draw.normal(size=(60, WIDTH))
    slopes[poisoned, 3] += 8
    swept = Swept(np.abs(slopes).repeat(2, axis=1), slopes, np.zeros(60))
    found = probabilities(
        swept.take(np.arange(40)), poisoned[:40], swept.take(np.arange(40, 60)), 0
    )
    assert ((found > 0.5) == poisoned[40:]).all()
    assert found.min() >= CLIP[0] and found.max() <= CLIP[1]
