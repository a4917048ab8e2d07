"""Several devices: the same evidence bit for bit, and nothing exchanged within a step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SCRIPT = """
import json, re, sys
from pathlib import Path

import jax

import jaxtroj
from converters.user_code import network_code
from jaxtroj.inversion import driver
from jaxtroj.scan.model import scan_model

texts, spread = [], driver._spread_step

def watched(*given):
    if not texts:
        texts.append(spread.lower(*given).compile().as_text())
    return spread(*given)

driver._spread_step = watched
stages = ("weights", "probes", "sensitivity", "inversion")
settings = jaxtroj.Settings(calibrator=None, early_stop=False, stages=stages)
code = network_code("net.py:network", None)
entry = jaxtroj.ModelEntry("m", Path("net.pth"), Path("pictures"), None, code=code)
record = scan_model(entry, settings)
assert record.status == "ok", record.reason
exchanged = r"all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"
print(json.dumps({
    "devices": jax.local_device_count(), "is_spread": bool(texts),
    "exchanges": re.findall(exchanged, " ".join(texts)),
    "evidence": dict(record.evidence),
    "recovered": record.recovered,
}))
"""
NETWORK = """
from torch import nn


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5),
    )
"""


@pytest.fixture(autouse=True)
def _compiled_quickly():
    """Not here: what is compared bit for bit is compiled as users compile it."""


def scanned(folder: Path, devices: int) -> dict:
    """What a scan says in a process that has so many devices."""
    flags = f"--xla_force_host_platform_device_count={devices}"
    path = os.pathsep.join(filter(None, sys.path))
    environment = {**os.environ, "XLA_FLAGS": flags, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A network of five classes with random weights, its code, and pictures."""
    import torch

    folder = tmp_path_factory.mktemp("spread")
    (folder / "net.py").write_text(NETWORK)
    made: dict = {}
    exec(NETWORK, made)
    torch.manual_seed(0)
    state = made["network"]().state_dict()
    for name in ("8.weight", "8.bias"):
        state[name] *= 64  # margins as trained networks have them: near 0 scores hide all rounding
    torch.save(state, folder / "net.pth")
    (folder / "pictures").mkdir()
    draw = np.random.default_rng(0)
    for number in range(20):
        pixels = draw.integers(0, 255, (16, 16, 3)).astype(np.uint8)
        path = folder / "pictures" / f"class_{number % 5}_example_{number}.png"
        Image.fromarray(pixels).save(path)
    return folder


@pytest.fixture(scope="module")
def alone(folder) -> dict:
    return scanned(folder, 1)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_any_number_of_devices_gives_the_same_evidence(folder, alone, devices):
    """But for the order in which XLA's programs of other batches add, 1e-8 of a score here."""
    found = scanned(folder, devices)
    assert (alone["devices"], alone["is_spread"]) == (1, False)
    assert (found["devices"], found["is_spread"]) == (devices, True)
    assert found["exchanges"] == []
    assert len(found["evidence"]) > 10
    assert found["evidence"] == pytest.approx(alone["evidence"], rel=1e-6, abs=1e-9)
    for name in ("kind", "target_class"):
        assert found["recovered"].get(name) == alone["recovered"].get(name)
