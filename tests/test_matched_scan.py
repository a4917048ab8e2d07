"""A scan of a network whose examples went another way than its training pictures."""

import re

import numpy as np
import pytest
import torch
from torch import nn

import jaxtroj
from jaxtroj.evidence.images.labelled_examples import shows_classes, weight_of
from jaxtroj.evidence.images.look import Look
from tests.evidence.test_matched import SIDE, scenes

pytestmark = pytest.mark.usefixtures("unguarded")

SAID = "the examples are not as light, coloured or sharp as what the network was trained on"


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


@pytest.mark.parametrize("light", [0.0, -0.5])
def test_the_record_says_what_was_done_to_the_examples(network, light):
    own = scenes(2, 60)
    with torch.no_grad():
        labels = network(torch.tensor(own).permute(0, 3, 1, 2)).argmax(dim=1).numpy()
    settings = jaxtroj.Settings(
        stages=("weights", "statistics"), channel_order="RGB", normalization="unit"
    )
    verdict = jaxtroj.detect(network, Look(light=light).of(own), labels, settings=settings)
    record = verdict.record
    assert record.status == "ok" and "match" in record.seconds
    said = [text for text in (*record.findings, *record.caveats) if text.startswith(SAID)]
    assert len(said) == (0 if light == 0.0 else 2)
    assert light == 0.0 or re.search(r"which explains (9\d|100)% of the difference", said[0])
    assert np.isfinite(verdict.probability)


@pytest.mark.parametrize("absent", [None, 0])
def test_norms_are_not_compared_with_examples_of_some_classes(network, absent):
    """Another mixture of classes than in training looks as if triggers were remembered."""
    own = scenes(2, 60)
    with torch.no_grad():
        labels = network(torch.tensor(own).permute(0, 3, 1, 2)).argmax(dim=1).numpy()
    assert set(labels) == {0, 1, 2}
    kept = labels != absent
    settings = jaxtroj.Settings(
        stages=("weights", "statistics"), channel_order="RGB", normalization="unit"
    )
    record = jaxtroj.detect(network, own[kept], labels[kept], settings=settings).record
    compared = absent is None
    assert record.status == "ok" and ("norm_shift" in record.evidence) is compared
    said = [text for text in record.findings if text.startswith("what batch norms remember")]
    assert len(said) == (0 if compared else 1)
    assert any("1 of 3 classes have no" in text for text in record.caveats) is not compared


@pytest.mark.parametrize(
    ("labels", "classes", "shown"),
    [
        ([0, 1, 2, 0], 3, True),
        ([0, 1, 1, 1, 0], 3, False),
        ([0, 1], 2, False),
        ([-1] * 10, 10, True),
        ([-1] * 8, 10, False),
        ([*range(39)], 43, True),
        ([*range(38)], 43, False),
        ([*range(9)], 10, True),
        ([*range(8)], 10, False),
        ([], 2, False),
    ],
)
def test_how_many_classes_examples_must_show(labels, classes, shown):
    assert shows_classes(np.array(labels, np.int32), classes) is shown


@pytest.mark.parametrize(
    ("labels", "classes", "weight"),
    [
        ([*range(6)], 6, 1.0),
        ([0] * 20, 6, 1 / 6),
        ([0, 1, 1, 1], 6, 2 / 6),
        ([0], 2, 0.25),
        ([*range(20)], 1000, 1.0),
        ([*range(10)], 1000, 0.5),
    ],
)
def test_evidence_counts_by_the_classes_that_examples_show(labels, classes, weight):
    assert weight_of(np.array(labels, np.int32), classes) == pytest.approx(weight)
