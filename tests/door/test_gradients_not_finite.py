"""Pictures whose gradients are no numbers: told by a flag, and no search ends by them."""

import numpy as np
import pytest
import torch

import jaxtroj

from .conftest import Colours, cheap


class Broken(Colours):
    """The same logits, with a gradient of 0 / 0 where the mean of all pixels is below a limit."""

    def __init__(self, limit: float):
        super().__init__()
        self.limit = limit

    def forward(self, x):
        mean = x.mean((1, 2, 3))[:, None]
        dead = torch.relu(mean - self.limit)
        quotient = dead * dead / (dead + 0 * mean)
        return super().forward(x) + 1e-6 * torch.where(dead > 0, quotient, dead)


def _share(pixels, limit: float) -> float:
    return float((pixels.mean((1, 2, 3)) / 255 < limit).mean())


@pytest.fixture
def some(pixels) -> float:
    """A limit that a few of the pictures lie below."""
    return float(np.quantile(pixels.mean((1, 2, 3)) / 255, 0.2))


def _flags(record) -> list[str]:
    return [found for found in record.findings if found.startswith("gradients-")]


def test_the_other_pictures_are_searched_and_the_share_is_told(colours, pixels, labels, some):
    settings = cheap("all_to_all", "fixed")
    records = [
        jaxtroj.detect(net, pixels, labels, settings).record for net in (colours, Broken(some))
    ]
    usual, broken = records
    (flag,) = _flags(broken)
    assert flag.startswith(f"gradients-not-finite: the gradients of {_share(pixels, some):.0%} of")
    assert not _flags(usual) and broken.searched == usual.searched
    assert all(np.isfinite(list(broken.evidence.values())))
    expected = pytest.approx(usual.evidence["fixed_pull"], rel=0.5)
    assert broken.evidence["fixed_pull"] == expected


def test_where_no_picture_has_another_nothing_is_searched(pixels, labels):
    record = jaxtroj.detect(Broken(2.0), pixels, labels, cheap("probes", "fixed")).record
    (flag,) = _flags(record)
    assert flag.startswith("gradients-not-finite: the gradients of 100% of")
    assert "fixed" not in record.seconds and record.searched == ("patch",)
