"""What holds arrays is compared by identity: by content, `==` would raise and `hash` too."""

import copy

import jax.numpy as jnp
import numpy as np
import pytest

from converters.families.resnet import ResNetConfig
from converters.model import Model
from converters.weights import Weights
from jaxtroj.record import Record
from jaxtroj.rounds.examples import Pictures
from jaxtroj.verdict import FoundTrigger, Verdict

PANELS = (np.zeros((4, 4, 3), np.float32),) * 4
TRIGGER = FoundTrigger(PANELS, {"kind": "patch", "score": 0.5})
VERDICT = Verdict(Record("m", "", 0.9, True, 1, (), "ok", "x"), TRIGGER)
PICTURES = Pictures(np.zeros((2, 4, 4, 3), np.uint8), np.zeros(2, np.int32), ("a", "b"))
MODEL = Model(ResNetConfig(8, (), 1, 2), {"a": jnp.zeros(2)}, "resnet10")
WEIGHTS = Weights({"a": np.zeros(2)}, {}, {})


@pytest.mark.parametrize(
    "value", [TRIGGER, VERDICT, PICTURES, MODEL, WEIGHTS], ids=lambda v: type(v).__name__
)
def test_what_holds_arrays_is_equal_to_itself_alone(value):
    other = copy.deepcopy(value)
    assert value == value and value != other and value in [other, value]
    assert len({value, other}) == 2
