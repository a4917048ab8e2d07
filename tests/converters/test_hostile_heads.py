"""Sentiment heads from hostile state dicts: lying shapes, absurd sizes, missing tensors."""

import jax
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from converters import convert
from converters.errors import ConversionError, MismatchError
from converters.model import apply

nn = torch.nn

WIDTH, HIDDEN = 12, 6
every_head = pytest.mark.parametrize("name", ["GruLinear", "LstmLinear", "FCLinear", "Linear"])


def _named(**parts) -> dict[str, np.ndarray]:
    """The state of modules under one root: part name -> module."""
    return {
        f"{part}.{name}": value.detach().numpy()
        for part, module in parts.items()
        for name, value in module.state_dict().items()
    }


@pytest.fixture(scope="module")
def states():
    made = {"num_layers": 2, "bidirectional": True, "batch_first": True}
    layers = nn.ModuleList([nn.Linear(WIDTH, 9), nn.Linear(9, 7)])
    return {
        "GruLinear": _named(rnn=nn.GRU(WIDTH, HIDDEN, **made), linear=nn.Linear(2 * HIDDEN, 2)),
        "LstmLinear": _named(rnn=nn.LSTM(WIDTH, HIDDEN, **made), linear=nn.Linear(2 * HIDDEN, 2)),
        "FCLinear": _named(fc_layers=layers, linear=nn.Linear(7, 2)),
        "Linear": _named(linear=nn.Linear(WIDTH, 2)),
    }


@every_head
def test_each_missing_tensor_is_named_or_makes_another_network(name, states, artifact_of):
    state = states[name]
    for missing in state:
        with pytest.raises(ConversionError):
            convert(artifact_of({n: v for n, v in state.items() if n != missing}))


def _lying(shape) -> np.ndarray:
    """An array of any shape that takes no memory."""
    return np.broadcast_to(np.float32(0.5), shape)


HOSTILE = [(), (0,), (7,), (0, 0), (3, 4), (2**20, 2**10), (1, 2**30), (2, 2, 2), (1, 1), (0, 12)]


@pytest.mark.parametrize("shape", HOSTILE, ids=str)
@every_head
def test_hostile_shapes_raise_conversion_errors_only(name, shape, states, artifact_of):
    for tensor, value in states[name].items():
        if value.shape != shape:
            with pytest.raises(ConversionError):
                convert(artifact_of(states[name] | {tensor: _lying(shape)}))


ABSURD = {
    "linear": {"linear.weight": (2**20, 2**18), "linear.bias": (2**20,)},
    "few but huge": {"linear.weight": (2**15, 2**16), "linear.bias": (2**15,)},
    "gru": {
        "rnn.weight_ih_l0": (3 * 2**16, 2**16),
        "rnn.weight_hh_l0": (3 * 2**16, 2**16),
        "linear.weight": (2, 2**16),
        "linear.bias": (2,),
    },
    "deep": {"linear.weight": (2, 2), "linear.bias": (2,)}
    | {f"fc_layers.{i}.{k}": s for i in range(99) for k, s in (("weight", (2, 2)), ("bias", (2,)))},
}


@pytest.mark.parametrize("what", ABSURD)
def test_absurd_sizes_are_refused_before_allocation(what, artifact_of):
    with pytest.raises(MismatchError, match="a head with widths"):
        convert(artifact_of({n: _lying(shape) for n, shape in ABSURD[what].items()}))


def test_numbers_in_names_are_not_counted_up_to(states, artifact_of):
    state = states["GruLinear"] | {"rnn.weight_ih_l9999": _lying((18, 12))}
    with pytest.raises(MismatchError, match=r"unused: .*l9999"):
        convert(artifact_of(state))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_converts_also_runs(data, states, artifact_of):
    name = data.draw(st.sampled_from(sorted(states)))
    wrong = dict(states[name])
    for tensor in data.draw(st.lists(st.sampled_from(sorted(wrong)), min_size=1, max_size=3)):
        shape = list(wrong[tensor].shape)
        shape[data.draw(st.integers(0, len(shape) - 1))] = data.draw(st.integers(0, 40))
        wrong[tensor] = _lying(tuple(shape))
    try:
        model = convert(artifact_of(wrong))
    except ConversionError:
        return
    x = jax.ShapeDtypeStruct((3, model.config.input_size), np.float32)
    logits = jax.eval_shape(lambda x: apply(model.config, model.params, x), x)
    assert logits.shape == (3, model.num_classes)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(value, states, artifact_of):
    wrong = states["LstmLinear"]["rnn.bias_hh_l0"].copy()
    wrong[0] = value
    with pytest.raises(ConversionError, match="NaN or infinite"):
        convert(artifact_of(states["LstmLinear"] | {"rnn.bias_hh_l0": wrong}))
