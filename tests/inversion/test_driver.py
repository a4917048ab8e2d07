"""Successive halving: who goes on, for how long, and that chunks cannot be seen.

A method of one number makes the bookkeeping visible: each step adds the arm's speed to its rank.
"""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.inversion import driver
from jaxtroj.inversion.driver import Arms, Rung, invert
from jaxtroj.triggers.blend import Blend


@dataclass(frozen=True)
class Race:
    """State `[3]`: number of the arm, its speed, how far it is."""

    name: ClassVar[str] = "race"

    def init(self, start, shape):
        return start

    def trigger(self, state):
        return Blend(jnp.zeros(()), state)

    def step(self, state, forward, task):
        return state.at[2].add(state[1])

    def rank(self, state):
        return state[2]


def racers(speeds, starts=None) -> Arms:
    count = len(speeds)
    starts = np.zeros(count) if starts is None else starts
    states = jnp.asarray(np.stack([np.arange(count), speeds, starts], axis=1), jnp.float32)
    return Arms(states, np.arange(count) % 3, np.arange(count) % 2 == 0)


def numbers(arms: Arms) -> list[int]:
    return np.asarray(arms.states[:, 0]).astype(int).tolist()


@pytest.mark.parametrize("chunk", [1, 2, 3, 5, 7, 100])
def test_chunks_cannot_be_seen(chunk, network, examples, monkeypatch):
    monkeypatch.setattr(driver, "_chunk", lambda *_: chunk)
    found = invert(Race(), network, examples, racers([3, 1, 4, 2, 5]), (Rung(5, 2),))
    assert numbers(found) == [4, 2, 0, 3, 1]
    assert np.asarray(found.states[:, 2]).tolist() == [10, 8, 6, 4, 2]
    assert found.targets.tolist() == [4 % 3, 2, 0, 0, 1]
    assert found.anchored.tolist() == [True, True, True, False, False]


def test_the_best_go_on_and_all_come_back_in_order(network, examples):
    arms = racers(speeds=[1, 2, 3, 4, 5, 6], starts=[0, 0, 0, 0, -100, -200])
    found = invert(Race(), network, examples, arms, (Rung(4, 1), Rung(2, 10)))
    # Arms 4 and 5 never start; 0 and 1 stop after one step; 3 beats 2 in the end.
    assert numbers(found) == [3, 2, 1, 0, 4, 5]
    assert np.asarray(found.states[:, 2]).tolist() == [44, 33, 2, 1, -100, -200]


def test_ties_keep_their_order(network, examples):
    found = invert(Race(), network, examples, racers([1, 1, 1, 1]), (Rung(2, 1),))
    assert numbers(found) == [0, 1, 2, 3]


def test_an_arm_without_a_rank_is_the_worst(network, examples):
    arms = racers([1, 1, 1], starts=[np.nan, 0, 1])
    found = invert(Race(), network, examples, arms, (Rung(2, 1),))
    assert numbers(found) == [2, 1, 0]


@pytest.mark.parametrize("steps", [0, 1, 17])
def test_steps_are_honoured(steps, network, examples):
    found = invert(Race(), network, examples, racers([1, 2]), (Rung(2, steps),))
    assert np.asarray(found.states[:, 2]).tolist() == [2 * steps, steps]


def test_a_rung_larger_than_the_arms_takes_all(network, examples):
    found = invert(Race(), network, examples, racers([1, 2]), (Rung(50, 3), Rung(50, 3)))
    assert np.asarray(found.states[:, 2]).tolist() == [12, 6]


def test_no_rungs_only_sort(network, examples):
    assert numbers(invert(Race(), network, examples, racers([1, 1], [0, 5]), ())) == [1, 0]


def test_arms_are_taken_together_with_their_labels():
    arms = racers([1, 2, 3, 4]).take(np.array([3, 0]))
    assert len(arms) == 2 and numbers(arms) == [3, 0]
    assert arms.targets.tolist() == [0, 0] and arms.anchored.tolist() == [False, True]


@dataclass(frozen=True)
class Watch:
    """State `[2, n, 2]` and its rank: what the driver tells a step."""

    name: ClassVar[str] = "watch"

    def init(self, start, shape):
        return start

    def trigger(self, state):
        return Blend(jnp.zeros(()), state)

    def step(self, state, forward, task):
        labels = jnp.stack([task.sources, task.sources * 0 + task.target], axis=-1)
        told = jnp.stack([task.offsets, labels])
        return told.astype(jnp.float32)

    def rank(self, state):
        return -state[1, 0, 1]


def test_only_anchored_arms_are_told_to_move(network, examples):
    """Sources are 0, 1, 2, 0, 1, 2: each arm sees the four examples that are not of its class."""
    arms = Arms(jnp.zeros((2, 2, 4, 2)), np.array([1, 2]), np.array([True, False]))
    moving, fixed = invert(Watch(), network, examples, arms, (Rung(2, 1),)).states
    np.testing.assert_array_equal(moving[0], examples.offsets()[jnp.asarray([0, 2, 3, 5])])
    np.testing.assert_array_equal(fixed[0], np.zeros((4, 2)))
    np.testing.assert_array_equal(moving[1, :, 0], [0, 2, 0, 2])
    np.testing.assert_array_equal(fixed[1, :, 0], [0, 1, 0, 1])
    assert set(np.asarray(moving[1, :, 1])) == {1.0} and set(np.asarray(fixed[1, :, 1])) == {2.0}


@pytest.mark.parametrize(
    "sources, expected",
    [([0, 1, 2], [1, 2]), ([1, 1, 2], [0, 1]), ([0, 0, 0], [0, 1]), ([0, 0, 1], [2, 0])],
)
def test_an_arm_s_examples_are_of_other_classes_where_there_are_any(sources, expected, examples):
    few = dataclasses.replace(examples.first(3), sources=jnp.asarray(sources))
    assert driver._rows(few, np.array([0])).tolist() == [expected]


@pytest.mark.parametrize(
    "side, n, arms, expected",
    [
        (64, 6, (8, 4), 4),
        (64, 6, (20, 20), 10),
        (64, 6, (20, 18), 9),
        (64, 100, (8, 4), 1),
        (224, 24, (16, 4), 1),
    ],
)
def test_chunk_fits_a_batch_and_deals_the_narrowest_rung_evenly(
    side, n, arms, expected, network, examples
):
    """Sizes for a CPU; larger elsewhere, never empty, never wider than any rung."""
    pictures = dataclasses.replace(examples, images=np.zeros((n, side, side, 3), np.float32))
    chunk = driver._chunk(network, pictures, tuple(Rung(a, 1) for a in arms))
    assert 1 <= chunk <= min(arms)
    if jax.default_backend() == "cpu":
        assert chunk == expected
