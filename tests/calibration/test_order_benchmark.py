"""The benchmark of the order of stages, on made-up networks."""

from functools import partial

import numpy as np
import pytest

from benchmarks.accuracy.order import (
    Expected,
    Judged,
    any_order,
    curves,
    fixed_order,
    near_enough,
    spent,
)

SLOW_FIRST = {
    ("weights",): 0.0, ("fixed",): 0.0, ("whole",): 3.0, ("weights", "fixed"): 0.0,
    ("weights", "whole"): 3.0, ("fixed", "whole"): 3.0, ("weights", "fixed", "whole"): 3.0,
}  # fmt: skip
SECONDS = {"weights": 0.1, "fixed": 9.0, "whole": 1.0}
POISONED = Judged(True, True, SECONDS, SLOW_FIRST)
CLEAN = Judged(False, True, SECONDS, {made: -odds for made, odds in SLOW_FIRST.items()})


def test_the_stage_that_gains_most_for_each_second_comes_first():
    expected = Expected([POISONED, CLEAN] * 5)
    assert any_order(0.0, expected, POISONED, ("weights",)) == "whole"
    assert any_order(0.0, expected, POISONED, ("weights", "whole")) is None, "nothing more to gain"
    loss, seconds = spent(partial(any_order, 0.0), expected, POISONED)
    assert loss == pytest.approx(np.log1p(np.exp(-3))) and seconds == pytest.approx(1.1)


def test_the_fixed_order_pays_for_what_lies_between():
    expected = Expected([POISONED, CLEAN] * 5)
    _, seconds = spent(partial(fixed_order, 0.0), expected, POISONED)
    assert seconds == pytest.approx(10.1)
    gain = np.log(2) - np.log1p(np.exp(-3))
    _, seconds = spent(partial(fixed_order, gain / 9), expected, POISONED)
    assert seconds == pytest.approx(0.1), "less than the rate for each second"


def test_a_probability_that_is_near_enough_ends_after_a_search():
    sure = Judged(True, True, SECONDS, dict.fromkeys(SLOW_FIRST, 3.0))
    expected = Expected([sure])
    assert near_enough(0.1, expected, sure, ("weights",)) == "fixed", "nothing was searched yet"
    assert near_enough(0.1, expected, sure, ("weights", "fixed")) is None
    assert near_enough(0.01, expected, sure, ("weights", "fixed")) == "whole"


def test_stages_that_count_what_others_found_come_after_them():
    stages = ("memory", "fixed", "agreement")
    one = Judged(True, True, {}, {stages: 1.0})
    assert one.possible(()) == ("memory", "fixed")
    assert one.possible(("memory",)) == ("fixed",)
    assert one.possible(("memory", "fixed")) == ("agreement",)


def test_gains_are_learnt_on_other_folders():
    """A folder alone knows nothing, and the way ends with its first stage."""
    found = list(curves(["a", "a"], [POISONED, CLEAN]))
    by_gain = [one for one in found if one["way"].startswith("any order") and one["limit"] == 0.0]
    assert by_gain[0]["log_score"] == pytest.approx(np.log(2), abs=1e-4)
    apart = list(curves(["a", "b"], [POISONED, CLEAN]))
    by_gain = [one for one in apart if one["way"].startswith("any order") and one["limit"] == 0.0]
    assert by_gain[0]["log_score"] == pytest.approx(np.log1p(np.exp(-3)), abs=1e-4)
