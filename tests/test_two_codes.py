"""Weights that fit two public codes are scanned as the one that examples tell, or not at all."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from converters.findings import doubts
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan import scan_model
from jaxtroj.settings import Settings
from tests.converters.public_networks import LeakyWide, Wide, small_stem

SETTINGS = Settings(calibrator=None, text_calibrator=None, early_stop=False, stages=("weights",))
SIDE, COUNT = 16, 60
CODES = {
    "relu": (lambda: Wide(2, 2), "xternalz"),
    "leaky": (lambda: LeakyWide(2, 2), "MixMatch-pytorch"),
    "no pool": (small_stem, "no pool is taken"),
    "pool": (lambda: small_stem(True), "pool is kept"),
}


def network_of(name: str) -> torch.nn.Module:
    """Random weights, scaled so that its answers to random pictures are of many classes."""
    torch.manual_seed(0)
    network = CODES[name][0]().train()
    with torch.inference_mode():
        for _ in range(20):  # norms that have met such pictures
            network(torch.rand(32, 3, SIDE, SIDE))
    network = network.eval()
    pixels = pictures()
    with torch.inference_mode():
        network.fc.bias -= network(as_taken(pixels)).mean(dim=0)
    return network


def pictures() -> np.ndarray:
    """Uint8 `[n, h, w, 3]`."""
    return np.random.default_rng(1).integers(0, 256, (COUNT, SIDE, SIDE, 3), np.uint8)


def as_taken(pixels: np.ndarray) -> torch.Tensor:
    """As a network takes them that was trained on values from 0 to 1."""
    return torch.from_numpy(pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255)


def entry_for(folder, network: torch.nn.Module, labels) -> ModelEntry:
    """A state dict beside labelled pictures."""
    torch.save(network.state_dict(), folder / "model.pt")
    examples = folder / "examples"
    examples.mkdir()
    for n, (label, pixels) in enumerate(zip(labels, pictures(), strict=True)):
        name = f"picture_{n}.png" if label is None else f"class_{label}_example_{n}.png"
        Image.fromarray(pixels).save(examples / name)
    return ModelEntry("id-1", folder / "model.pt", examples, None)


def answers(network: torch.nn.Module) -> list[int]:
    with torch.inference_mode():
        return network(as_taken(pictures())).argmax(dim=1).tolist()


@pytest.mark.parametrize("form", ["unit", None])
@pytest.mark.parametrize("name", CODES)
def test_the_examples_tell_whose_code_it_is(name, form, tmp_path):
    network = network_of(name)
    labels = answers(network)
    assert len(set(labels)) > 2
    settings = SETTINGS if form is None else replace(
        SETTINGS, channel_order="RGB", normalization=form
    )  # fmt: skip
    record = scan_model(entry_for(tmp_path, network, labels), settings)
    assert record.status == "ok", record.reason
    told = [finding for finding in record.findings if finding.startswith("told by")]
    assert len(told) == 1 and f"told by {COUNT} labelled examples (1.00 right" in told[0]
    assert CODES[name][1] in told[0].split(":")[1].split(", where")[0]
    assert not doubts(record.findings)


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        ([n % 5 for n in range(COUNT)], f"{COUNT} labelled examples do not tell which: 0."),
        ([None] * COUNT, "do not tell which: unlabelled"),
    ],
)
@pytest.mark.parametrize("name", ["leaky", "no pool"])
def test_what_examples_do_not_tell_is_refused(name, labels, reason, tmp_path):
    record = scan_model(entry_for(tmp_path, network_of(name), labels), SETTINGS)
    assert record.status == "failed" and record.probability == 0.5
    assert "fit two public codes" in record.reason and reason in record.reason
    assert "--network FILE.py:CLASS" in record.reason


def test_a_reference_that_fits_two_codes_is_refused_too(tmp_path):
    for name in ("model", "reference"):
        (tmp_path / name).mkdir()
    network = network_of("no pool")
    entry = entry_for(tmp_path / "model", network, answers(network))
    beside = entry_for(tmp_path / "reference", network_of("leaky"), [0] * COUNT)
    record = scan_model(entry, replace(SETTINGS, reference=beside.model_path))
    assert record.status == "failed"
    assert "reference" in record.reason and "fit two public codes" in record.reason
