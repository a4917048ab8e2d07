"""The fixed stage finds a many-coloured patch that a network was taught, and its class.

Two networks are trained on pictures that differ in a bright channel: one with a patch in a corner
that means class 2, one without.
"""

import jax
import numpy as np
import pytest

from jaxtroj.anchors import anchor
from jaxtroj.evidence.images.fixed import FixedBudget, fixed_fields, ranks_within, search_fixed
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.generate.small.recipe import SmallTrigger
from jaxtroj.network import Network

from .conftest import gather_images as gather
from .taught import CLASSES, SIDE, TARGET, examples, trained

GRID = np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1]], np.float32)
pytestmark = pytest.mark.usefixtures("small_batches")


def corner() -> SmallTrigger:
    mask, pattern = np.zeros((SIDE, SIDE, 1), np.float32), np.zeros((SIDE, SIDE, 3), np.float32)
    mask[-3:, -3:], pattern[-3:, -3:] = 1.0, GRID[..., None]
    return SmallTrigger("patch", "grid", TARGET, 0.25, mask, pattern)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The poisoned network and the clean one."""
    folder = tmp_path_factory.mktemp("networks")
    return trained(corner(), folder), trained(None, folder)


@pytest.fixture(scope="module")
def found(models):
    """Fields and windows of the poisoned network, and of the clean one."""
    results = []
    for model in models:
        caller = Network(model)
        anchored = anchor(caller, examples(), 18)
        windows, blends, scale = search_fixed(
            caller, anchored, jax.random.key(0), FixedBudget(window=0.19)
        )
        results.append((fixed_fields(windows, blends, scale), windows))
    return results


def test_the_taught_class_stands_out(found):
    (fields, windows), (twin, _) = found
    assert windows.targets[windows.scores.argmax()] == TARGET
    assert fields["fixed_score"] > 0.9 and fields["fixed_lead"] > twin["fixed_lead"] + 0.5
    assert fields["fixed_gap"] > twin["fixed_gap"]


def test_a_window_is_a_square_with_a_pattern_inside(found):
    (_, windows), _ = found
    best = int(windows.scores.argmax())
    found = windows.found.triggers
    mask, pattern = (np.asarray(x[best]) for x in (found.mask, found.pattern))
    rows, columns = np.nonzero(mask[..., 0])
    assert mask.sum() == 9 and np.ptp(rows) == np.ptp(columns) == 2
    assert not pattern[mask[..., 0] == 0].any()
    assert len(windows.targets) == len(set(windows.targets.tolist())) == CLASSES


def test_fields_are_those_of_the_schema_and_the_same_again(models):
    first, again = (gather(models[0], examples(), ("fixed",)) for _ in range(2))
    assert tuple(first.fields) == IMAGES.stage_fields["fixed"] and first.fields == again.fields
    assert {t.method for t in first.triggers} == {"window search", "blend search"}
    best = first.triggers[0]
    assert best.target_class == TARGET and best.attack_success_rate > 0.9
    assert {t.trigger.kind for t in first.triggers} == {"window", "blend"}
    rows, columns = np.nonzero(best.trigger.drawn(best.shape, best.offset).mask[..., 0])
    assert min(rows.min(), columns.min()) >= SIDE // 2, "expected the lower right corner"
    assert np.isfinite(list(first.fields.values())).all()


@pytest.mark.parametrize("count", [2, 3])
def test_a_handful_of_examples_is_enough(count, models):
    fields = gather(models[0], examples(count), ("fixed",)).fields
    assert np.isfinite(list(fields.values())).all()


def test_ranks_count_earlier_ones_of_the_same_group():
    assert ranks_within(np.array([3, 3, 1, 3, 1])).tolist() == [0, 1, 0, 2, 1]
