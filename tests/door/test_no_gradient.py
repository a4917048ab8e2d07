"""Networks whose gradients are zero, or lead nowhere, are not searched by them: records say so."""

import pytest
import torch

import jaxtroj
from jaxtroj import Settings
from jaxtroj.evidence.stages import IMAGE_STAGES

from .conftest import Colours, cheap

pytestmark = pytest.mark.usefixtures("unguarded")

BY_GRADIENTS = {stage.name for stage in IMAGE_STAGES if stage.needs.gradient}
LEVELS = (torch.arange(32) + 0.5) / 32


class Signs(Colours):
    """The same over pixels of which only signs are left: no small change of a pixel counts."""

    def forward(self, x):
        return super().forward(torch.sign(x - 0.5))


class Masked(Colours):
    """Pixels in 32 steps made of comparisons, whose gradient is nothing but a weak wrong one."""

    def forward(self, x):
        steps = (x.unsqueeze(-1) > LEVELS.to(x)).to(x.dtype).mean(-1)
        return super().forward(steps - 0.01 * x)


def test_searches_that_need_gradients_are_named():
    assert BY_GRADIENTS == {
        "sensitivity", "inversion", "fixed", "whole", "pairs", "memory", "recall", "agreement",
        "all_to_all",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("network", "flag"), [(Signs, "gradients-zero"), (Masked, "gradients-mislead")]
)
def test_what_was_not_searched_is_no_evidence(colours, pixels, labels, network, flag):
    usual, blind = (jaxtroj.detect(net, pixels, labels).record for net in (colours, network()))
    made = {field.name for stage in IMAGE_STAGES for field in stage.fields}
    assert set(blind.evidence) < set(usual.evidence) <= made
    assert not set(blind.seconds) & BY_GRADIENTS and set(usual.seconds) & BY_GRADIENTS
    assert usual.searched and not blind.searched and not blind.found
    assert any(finding.startswith(f"{flag}: ") for finding in blind.findings)
    assert not any(finding.startswith("gradients-") for finding in usual.findings)
    assert blind.status == "ok" and not blind.poisoned
    said = f"did not search for {', '.join(usual.searched)}"
    assert blind.caveats[0] == said and said in blind.reason


def test_patches_are_tried_without_gradients(pixels, labels):
    record = jaxtroj.detect(Signs(), pixels, labels, cheap("probes", "inversion")).record
    assert "probe_score" in record.evidence and "patch_score" not in record.evidence
    assert record.searched == ("patch",) and record.status == "ok"


@pytest.mark.parametrize("stages", [("fixed",), ("fixed", "whole")])
def test_nothing_but_searches_by_gradients_ends_at_the_base_rate(pixels, labels, stages):
    record = jaxtroj.detect(Signs(), pixels, labels, Settings(stages=stages, base_rate=0.3)).record
    assert record.status == "ok" and record.probability == pytest.approx(0.3)
    assert "evidence only" in record.reason
