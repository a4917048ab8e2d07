"""A scan of a network whose examples went another way than its training pictures."""

import numpy as np
import pytest
import torch
from torch import nn

import jaxtroj
from jaxtroj.evidence.images.matched import Look
from tests.evidence.test_matched import SIDE, scenes

SAID = "the examples are not as light or sharp as what the network was trained on"


@pytest.fixture(scope="module")
def network() -> nn.Module:
    """Its batch norms remember pictures as they are."""
    torch.manual_seed(0)
    norms = [nn.BatchNorm2d(8, momentum=None) for _ in range(2)]
    layers = [nn.Conv2d(3, 8, 3), norms[0], nn.ReLU(), nn.Conv2d(8, 8, 3), norms[1], nn.ReLU()]
    made = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * (SIDE - 4) ** 2, 3))
    with torch.no_grad():
        made(torch.tensor(scenes(1, 128)).permute(0, 3, 1, 2))
    return made.eval()


@pytest.mark.parametrize("gain", [1.0, 0.6])
def test_the_record_says_what_was_done_to_the_examples(network, gain):
    own = scenes(2, 60)
    with torch.no_grad():
        labels = network(torch.tensor(own).permute(0, 3, 1, 2)).argmax(dim=1).numpy()
    settings = jaxtroj.Settings(
        stages=("weights", "statistics"), channel_order="RGB", normalization="unit"
    )
    verdict = jaxtroj.detect(network, Look(gain).of(own), labels, settings=settings)
    record = verdict.record
    assert record.status == "ok" and "match" in record.seconds
    said = [text for text in (*record.findings, *record.caveats) if text.startswith(SAID)]
    assert len(said) == (0 if gain == 1.0 else 2)
    assert gain == 1.0 or "1.7" in said[0] or "1.6" in said[0]
    assert np.isfinite(verdict.probability)
