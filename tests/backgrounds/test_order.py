"""What is tried next: full batches, free pairs only, promising ones first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxtroj.backgrounds.order import OrderTally, as_sorted, best_free, shared_out


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 30), st.integers(1, 9))
def test_only_free_pairs_are_chosen_and_as_many_as_there_are(seed, many, backgrounds, most):
    random = np.random.default_rng(seed)
    taken = random.random((many, backgrounds)) < random.random()
    shares = random.integers(1, most + 1, many)
    promise = random.random((2, 3, backgrounds), np.float32)
    labels = random.integers(0, 3, many)
    chosen = best_free((promise[0], promise[1]), labels, taken, shares, random)
    for row, share, mine in zip(taken, shares, chosen, strict=True):
        assert len(set(mine.tolist())) == len(mine) == min(share, int((~row).sum()))
        assert not row[mine].any()


@given(st.lists(st.integers(0, 50), min_size=1, max_size=20), st.integers(1, 64))
def test_a_batch_is_shared_out_whole_and_evenly(tries, count):
    live = np.arange(len(tries))
    shares = shared_out(live, np.array(tries), count)
    assert shares.sum() == count and shares.max() - shares.min() <= 1
    fewer = np.array(tries)[shares == shares.max()].max(initial=0)
    assert all(t >= fewer for t, s in zip(tries, shares, strict=True) if s < shares.max())


def test_nothing_live_gets_nothing():
    assert not len(shared_out(np.zeros(0, int), np.zeros(3, int), 8))


def test_sorted_means_sorted():
    random = np.random.default_rng(0)
    taken = np.zeros((2, 6), bool)
    taken[1, :3] = True
    chosen = best_free(as_sorted(9, 6), np.array([0, 8]), taken, np.array([2, 2]), random)
    assert [c.tolist() for c in chosen] == [[0, 1], [3, 4]]


def test_what_fooled_a_class_is_promising_for_it_and_somewhat_for_others():
    tally = OrderTally(3, 4)
    pairs = np.array([0, 1, 2, 3] * 20)
    tally.add(np.zeros(80, int), pairs, pairs == 2)
    share, doubt = tally.promise()
    assert share[0].argmax() == share[1].argmax() == 2
    assert share[0, 2] > share[1, 2] > share[1, 0] > share[0, 0]
    assert (doubt[1] > doubt[0]).all() and (share >= 0).all() and (share <= 1).all()
    assert share[0, 2] == pytest.approx(1, abs=0.1)
