"""Networks without any input gradient: searches by gradients are not made, and no record says so."""

import pytest
import torch

import jaxtroj
from jaxtroj import Settings
from jaxtroj.evidence.stages import IMAGE_STAGES

from .conftest import Colours, cheap


class Signs(Colours):
    """The same over pixels of which only signs are left: no small change of a pixel counts."""

    def forward(self, x):
        return super().forward(torch.sign(x - 0.5))


BY_GRADIENTS = {stage.name for stage in IMAGE_STAGES if stage.needs.gradient}


def test_searches_that_need_a_gradient_are_named():
    assert BY_GRADIENTS == {
        "sensitivity", "inversion", "fixed", "whole", "pairs", "memory", "recall", "agreement",
    }  # fmt: skip


def test_what_was_not_searched_is_no_evidence(colours, pixels, labels):
    usual, blind = (jaxtroj.detect(net, pixels, labels).record for net in (colours, Signs()))
    made = {field.name for stage in IMAGE_STAGES for field in stage.fields}
    assert set(blind.evidence) < set(usual.evidence) <= made
    assert not set(blind.seconds) & BY_GRADIENTS and set(usual.seconds) & BY_GRADIENTS
    assert usual.searched and not blind.searched and not blind.found
    assert any(finding.startswith("gradients-zero") for finding in blind.findings)
    assert blind.status == "ok" and not blind.poisoned
    said = f"did not search for {', '.join(usual.searched)}"
    assert blind.caveats[0] == said and said in blind.reason


def test_patches_are_tried_without_a_gradient(pixels, labels):
    record = jaxtroj.detect(Signs(), pixels, labels, cheap("probes", "inversion")).record
    assert "probe_score" in record.evidence and "patch_score" not in record.evidence
    assert record.searched == ("patch",) and record.status == "ok"


@pytest.mark.parametrize("stages", [("fixed",), ("fixed", "whole")])
def test_nothing_but_searches_by_gradients_ends_at_the_base_rate(pixels, labels, stages):
    record = jaxtroj.detect(Signs(), pixels, labels, Settings(stages=stages, base_rate=0.3)).record
    assert record.status == "ok" and record.probability == pytest.approx(0.3)
    assert "evidence only" in record.reason
