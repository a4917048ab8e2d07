"""Accelerators: every program that a scan compiles lowers for them, though none is here."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

import jaxtroj
import jaxtroj.network  # noqa: F401
from benchmarks.speed.programs import PLATFORMS, Program, faults, record
from benchmarks.speed.roofline import CHIPS, Cost, cost_of, table

EXAMPLE = Path(jaxtroj.__file__).parent / "data" / "examples" / "poisoned"
CODE = """
from torch import nn


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )
"""


def program(function, *shapes, calls: int = 1) -> Program:
    arguments = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes)
    return Program("here.function", jax.jit(function), arguments, {}, calls)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_callback_is_a_fault_and_plain_operations_are_none(platform):
    assert list(faults(program(lambda x: jnp.sort(x) @ x, (4,)), platform)) == []
    asking = program(lambda x: jax.pure_callback(np.sin, x, x), (4,))
    assert len(list(faults(asking, platform))) == 1
    counted = program(lambda x: jax.lax.top_k(x, 2)[0], (4,))
    assert list(faults(counted, platform)) == []
    printing = program(lambda x: (jax.debug.callback(print, x), x + 1)[1], (4,))
    assert len(list(faults(printing, platform))) == 1


def test_what_was_imported_before_is_not_recorded():
    with pytest.raises(RuntimeError, match="before the scanner is imported"):
        record()


def test_a_matrix_product_costs_what_it_must():
    cost = cost_of(program(jnp.matmul, (64, 128), (128, 32), calls=3))
    assert cost.operations == pytest.approx(3 * 2 * 64 * 128 * 32, rel=0.01)
    assert cost.bytes >= 3 * 4 * (64 * 128 + 128 * 32 + 64 * 32)
    assert cost.kernels >= 3


def test_a_verdict_is_the_sum_of_what_bounds_each_program():
    chip = CHIPS["A100"]
    long, small = program(jnp.sin, (4,)), program(jnp.cos, (4,), calls=2)
    told = table([(small, Cost(1, 1, 2)), (long, Cost(19.5e12, 1, 1))], chip, "float32")
    assert told["seconds"] == pytest.approx(1 + 2 * 5e-6, abs=1e-5)
    assert [row["bound"] for row in told["longest"]] == ["compute", "launch"]
    assert told["longest"][0]["milliseconds"] == pytest.approx(1000)


def test_every_program_of_a_graph_lowers_for_accelerators(tmp_path, lowered):
    import torch

    (tmp_path / "net.py").write_text(CODE)
    made: dict = {}
    exec(CODE, made)
    torch.manual_seed(0)
    torch.save(made["network"]().state_dict(), tmp_path / "net.pth")
    draw = np.random.default_rng(0)
    (tmp_path / "pictures").mkdir()
    for number in range(12):
        pixels = draw.integers(0, 255, (16, 16, 3)).astype(np.uint8)
        path = tmp_path / "pictures" / f"class_{number % 3}_example_{number}.png"
        Image.fromarray(pixels).save(path)
    found = lowered(
        tmp_path / "net.pth", "--network", f"{tmp_path / 'net.py'}:network", "--examples",
        tmp_path / "pictures", "--stages", "weights,statistics,memory,probes,sensitivity,inversion",
    )  # fmt: skip
    names = {row["name"] for row in found}
    assert {"jaxtroj.network._logits", "jaxtroj.network._gradients"} < names
    assert {"converters.batch_norms._by_batch", "jaxtroj.inversion.driver._step"} < names
    assert {"jaxtroj.norm_memory._pulled", "jaxtroj.inversion.memory_search._stepped"} < names
    assert [row for row in found if any(row[platform] for platform in PLATFORMS)] == []


@pytest.mark.slow
def test_every_program_of_a_family_lowers_for_accelerators(lowered):
    found = lowered(EXAMPLE)
    assert len(found) > 20
    assert [row for row in found if any(row[platform] for platform in PLATFORMS)] == []
