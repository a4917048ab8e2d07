"""The cost schedule: a table of what each history does, and what holds for every history."""

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxtroj.inversion.cost import CostSchedule, update_cost

SCHEDULE = CostSchedule(initial=2.0, goal=0.9, patience=3, factor=1.5)
WORKS, FAILS = 1.0, 0.5
DOWN = 1.5**1.5

CASES = {
    "nothing yet": ([], 2.0, 0, 0),
    "one short of patience": ([WORKS] * 2, 2.0, 2, 0),
    "patience successes raise": ([WORKS] * 3, 2.0 * 1.5, 0, 0),
    "twice patience raises twice": ([WORKS] * 6, 2.0 * 1.5**2, 0, 0),
    "patience failures lower": ([FAILS] * 3, 2.0 / DOWN, 0, 0),
    "failures one short": ([FAILS] * 2, 2.0, 0, 2),
    "a failure resets successes": ([WORKS, WORKS, FAILS, WORKS, WORKS], 2.0, 2, 0),
    "alternating never moves": ([WORKS, FAILS] * 10, 2.0, 0, 1),
    "exactly the goal works": ([0.9] * 3, 2.0 * 1.5, 0, 0),
    "up then down": ([WORKS] * 3 + [FAILS] * 3, 2.0 * 1.5 / DOWN, 0, 0),
    "not a number is a failure": ([float("nan")] * 3, 2.0 / DOWN, 0, 0),
}


def run(schedule, successes):
    state = schedule.init()
    for success in successes:
        state = update_cost(schedule, state, jnp.asarray(success, jnp.float32))
    return state


@pytest.mark.parametrize("successes, cost, up, down", CASES.values(), ids=CASES)
def test_table(successes, cost, up, down):
    state = run(SCHEDULE, successes)
    assert float(state.cost) == pytest.approx(cost, rel=1e-6)
    assert (int(state.up), int(state.down)) == (up, down)


# The first call compiles, which no deadline allows for.
property_test = settings(deadline=None, max_examples=40)
histories = st.lists(st.sampled_from([WORKS, FAILS]), max_size=24)
patiences = st.integers(1, 5)


@property_test
@given(histories, patiences)
def test_cost_stays_positive_and_counters_below_patience(history, patience):
    schedule = CostSchedule(patience=patience)
    state = run(schedule, history)
    assert float(state.cost) > 0
    assert 0 <= int(state.up) < patience and 0 <= int(state.down) < patience
    assert int(state.up) * int(state.down) == 0


@property_test
@given(histories, patiences)
def test_a_success_never_costs_less_than_a_failure(history, patience):
    schedule = CostSchedule(patience=patience)
    worked, failed = run(schedule, [*history, WORKS]), run(schedule, [*history, FAILS])
    before = run(schedule, history)
    assert float(failed.cost) <= float(before.cost) <= float(worked.cost)


@pytest.mark.parametrize("first, then", [(FAILS, WORKS), (WORKS, FAILS)])
def test_a_long_search_can_still_turn(first, then):
    """5000 equal steps leave a cost that is finite, positive and moves the other way."""
    advance = jax.jit(lambda state, success: update_cost(SCHEDULE, state, success))
    loop = jax.jit(lambda state: jax.lax.fori_loop(0, 5000, lambda _, s: advance(s, first), state))
    stuck = loop(SCHEDULE.init())
    assert 0 < float(stuck.cost) < float("inf")
    turned = stuck
    for _ in range(SCHEDULE.patience):
        turned = advance(turned, then)
    moved = float(turned.cost) / float(stuck.cost)
    assert moved > 1.4 if then is WORKS else moved < 0.6


def test_steps_change_no_types():
    before, after = SCHEDULE.init(), run(SCHEDULE, [WORKS])
    for old, new in zip(vars(before).values(), vars(after).values(), strict=True):
        assert (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, new.weak_type)
