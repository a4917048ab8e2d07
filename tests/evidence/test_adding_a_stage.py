"""docs/adding-a-stage.md: its stage, added from outside, is gathered and tabled like our own."""

import re
from pathlib import Path

import numpy as np
import pytest

from jaxtroj.evidence.stage import StageTable, Subject, stages_for
from jaxtroj.evidence.stages import IMAGE_STAGES

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-stage.md"


@pytest.fixture(scope="module")
def page() -> dict:
    """What the page's code defines."""
    names: dict = {}
    for block in re.findall(r"<!-- (?:stage|use) -->\n```python\n(.*?)```", PAGE.read_text(), re.S):
        exec(compile(block, str(PAGE), "exec"), names)
    return names


def test_the_stage_is_gathered(page, make_model, make_pictures):
    found = page["with_dimming"](make_model(), make_pictures([0, 1, 2, 0, 1, 2]))
    assert found.stages == ("weights", "dimming")
    assert list(found.fields)[-2:] == ["dimmed_margin", "dimming_loss"]
    assert np.isfinite(list(found.fields.values())).all() and found.seconds["dimming"] > 0
    assert found.triggers == () and found.searched == ()


def test_tables_are_made_from_it(page):
    table = StageTable("image", 3, (*IMAGE_STAGES, page["DIMMING"]))
    assert table.judged_fields["dimming"] == ("dimmed_margin", "dimming_loss")
    assert table.directions["dimming_loss"] == -1 and table.holds(("weights", "dimming"))
    chosen = stages_for(table.stages, Subject(side=224))
    assert chosen[-1] is page["DIMMING"] and "fixed" not in [stage.name for stage in chosen]
