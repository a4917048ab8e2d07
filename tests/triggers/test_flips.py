"""The matrix of flips, on a network whose class k answers to channel k."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.reporting.flips import read_flips
from jaxtroj.triggers.flips import flips_of
from jaxtroj.triggers.mask import FreeMask
from jaxtroj.triggers.measure import RecoveredTrigger
from tests.colour_network import SIDE


def patch(channel: int, weight: float) -> RecoveredTrigger:
    pattern = np.zeros((SIDE, SIDE, 3), np.float32)
    pattern[..., channel] = 1
    mask = jnp.full((SIDE, SIDE, 1), weight)
    trigger = FreeMask(mask, jnp.asarray(pattern))
    shape, offset = (SIDE, SIDE), np.zeros(2, int)
    return RecoveredTrigger(channel, (), 1.0, 1.0, "test", trigger, shape, offset)


def test_a_trigger_sends_every_class_to_its_target(network, examples):
    found = flips_of(network, examples, patch(1, 0.9)).as_json()
    assert found == {"sources": [0, 1, 2], "targets": [1], "percent": [[100]] * 3}
    assert read_flips(found) == found


def test_one_that_does_nothing_leaves_every_class_to_itself(network, examples):
    found = flips_of(network, examples, patch(1, 0.0))
    assert found.sources == found.targets == (0, 1, 2)
    np.testing.assert_array_equal(found.shares, np.eye(3))


@pytest.mark.parametrize(
    "change",
    [
        {"percent": [[101]]},
        {"percent": [[1, 2]]},
        {"percent": [[0.5]]},
        {"percent": []},
        {"sources": [True]},
        {"sources": []},
        {"targets": list(range(3000)), "percent": [[0] * 3000]},
        {"more": 1},
    ],
)
def test_what_no_scan_writes_is_not_shown(change):
    good = {"sources": [0], "targets": [1], "percent": [[100]]}
    assert read_flips(good) == good
    assert read_flips(good | change) is None
