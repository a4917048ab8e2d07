"""What stage memory shows: a window of what the norms remember, where it works for its class."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.anchors import anchor
from jaxtroj.evidence.gather import gather
from jaxtroj.evidence.images.context import image_context
from jaxtroj.evidence.images.fixed import FixedBudget, placed
from jaxtroj.evidence.images.memory_fields import carried_class
from jaxtroj.evidence.images.stages import memory
from jaxtroj.evidence.images.stages.memory import MEMORY
from jaxtroj.network import Network
from jaxtroj.triggers.measure import best_of
from jaxtroj.triggers.window import Window

from .taught import SIDE, TARGET, examples, trained
from .test_fixed import GRID, corner
from .test_memory import found_of

pytestmark = pytest.mark.usefixtures("small_batches")


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    return trained(corner(), tmp_path_factory.mktemp("network"))


def window(pattern: np.ndarray, row: int, column: int) -> Window:
    mask, whole = np.zeros((SIDE, SIDE, 1), np.float32), np.zeros((SIDE, SIDE, 3), np.float32)
    here = slice(row, row + 3), slice(column, column + 3)
    mask[here], whole[here] = 1.0, pattern[..., None]
    return Window(jnp.asarray(mask), jnp.asarray(whole))


def test_a_window_that_works_is_shown_and_may_end_a_scan(poisoned):
    asked = []

    def stop(stage, fields, has_trigger):
        asked.append((stage, has_trigger))
        return has_trigger

    evidence = gather(image_context(poisoned, examples(60)), (MEMORY,), stop)
    assert asked == [("memory", True)]
    (shown,) = evidence.triggers
    assert shown.trigger.kind == "window" and shown.target_class == TARGET
    assert shown.attack_success_rate >= 0.9
    mask = np.asarray(shown.trigger.drawn(shown.shape, shown.offset).mask)
    assert 0 < mask.sum() <= 36 and set(np.unique(mask).tolist()) == {0.0, 1.0}


def test_a_window_that_flips_too_few_is_not_shown(poisoned, monkeypatch):
    monkeypatch.setattr(memory, "_WORKS", 1.01)
    assert gather(image_context(poisoned, examples(60)), (MEMORY,)).triggers == ()


def test_a_pattern_from_elsewhere_goes_where_it_works(poisoned):
    caller = Network(poisoned)
    anchored = anchor(caller, examples(), 18)
    # Without steps of its own, what it reaches is what the place does.
    budget = FixedBudget(moved_steps=0)
    for pattern, works in ((GRID, True), (np.zeros((3, 3), np.float32), False)):
        found = placed(caller, anchored, window(pattern, 2, 2), TARGET, budget)
        assert (best_of(found, anchored).attack_success_rate >= 0.9) == works
        assert found.targets.tolist() == [TARGET]


def test_only_a_trigger_that_carries_many_names_a_class():
    before = np.array([0, 0, 0, 1, 1, 1, 2, 2, 2])
    clean = np.eye(3)[before]
    all_to_two = np.full(9, 2)
    for match, after, expected in (
        (0.9, all_to_two, 2),
        (0.2, all_to_two, None),
        (0.9, before, None),
    ):
        assert carried_class(clean, (found_of(match, after),)) == expected
