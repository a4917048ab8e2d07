"""Whole pickled heads that are other networks than their classes make: refused."""

import pytest
import torch

from converters import open_model
from converters.errors import (
    CorruptFileError,
    LoadError,
    MismatchError,
    UnsupportedArchitectureError,
)
from tests.converters.head_models import HIDDEN, WIDTH, dense, recurrent

nn = torch.nn


def _attribute(path, name, value):
    return lambda head: setattr(head.get_submodule(path), name, value)


def _shadow(path, name, value):
    """An attribute that hides a parameter or module of that name."""
    return lambda head: head.get_submodule(path).__dict__.__setitem__(name, value)


def _replaced(name, value):
    """An attribute in the place of a module that the file lacks."""

    def changed(head):
        del head._modules[name]
        head.__dict__[name] = value

    return changed


relu = torch.nn.functional.relu


def _other_flat_weights(head):
    head.rnn._flat_weights[0] = nn.Parameter(head.rnn._flat_weights[0] + 1)


def _swapped_names(head):
    names = head.rnn._flat_weights_names
    names[0], names[4] = names[4], names[0]


MODULES = {
    "projections": (MismatchError, "proj_size is 3", _attribute("rnn", "proj_size", 3)),
    "mode": (MismatchError, "mode is LSTM", _attribute("rnn", "mode", "LSTM")),
    "layers": (MismatchError, "num_layers is 1", _attribute("rnn", "num_layers", 1)),
    "one way": (MismatchError, "bidirectional is False", _attribute("rnn", "bidirectional", False)),
    "no bias": (MismatchError, "bias is False", _attribute("rnn", "bias", False)),
    "layout": (MismatchError, "batch_first is 1", _attribute("rnn", "batch_first", 1)),
    "dropout": (MismatchError, "dropout is a .*Tanh", _attribute("", "dropout", nn.Tanh())),
    "more": (MismatchError, "expected no such module", _attribute("", "last", nn.Softmax(1))),
    "flat weights": (LoadError, "_flat_weights, which torch", _other_flat_weights),
    "fewer": (LoadError, "_flat_weights, which", lambda head: head.rnn._flat_weights.pop()),
    "flat names": (LoadError, "_flat_weights_names, which torch", _swapped_names),
    "a number for a module": (MismatchError, "dropout is an attribute", _replaced("dropout", 0.25)),
    "a function for a module": (LoadError, "'dropout', which its code", _replaced("dropout", relu)),
    "hidden layer": (LoadError, "attribute and in its", _shadow("", "linear", nn.Linear(12, 2))),
    "hidden bias": (LoadError, "attribute and in its", _shadow("linear", "bias", 0.0)),
}


@pytest.mark.parametrize("what", MODULES)
def test_changed_module_is_refused(what, factories, written):
    error, named, change = MODULES[what]
    head = recurrent(factories)
    change(head)
    with pytest.raises(error, match=named):
        open_model(written(head))


def test_activation_is_not_taken_for_granted(factories, written):
    head = dense(factories)
    head.relu = nn.GELU()
    with pytest.raises(MismatchError, match="relu is a .*GELU"):
        open_model(written(head))


@pytest.mark.parametrize(
    ("in_its_place", "error", "message"),
    [
        (None, MismatchError, "relu is missing"),
        (torch.nn.functional.gelu, LoadError, "'relu', which its code may run"),
    ],
)
def test_missing_activation_is_refused(in_its_place, error, message, factories, written):
    head = dense(factories)
    _replaced("relu", in_its_place)(head)
    with pytest.raises(error, match=message):
        open_model(written(head))


@pytest.mark.parametrize(("listed", "error", "message"), [
    (list, CorruptFileError, "Linear inside its attribute 'fc_layers'"),
    (len, MismatchError, "fc_layers is an attribute, expected a module"),
])  # fmt: skip
def test_a_list_of_layers_that_the_state_dict_does_not_show_is_refused(
    listed, error, message, factories, written
):
    """The class runs them before `linear`, which alone has weights."""
    head = dense(factories, (WIDTH,))
    _replaced("fc_layers", listed(head.fc_layers))(head)
    with pytest.raises(error, match=message):
        open_model(written(head))


def test_class_of_the_other_cell_is_refused(factories, written):
    head = recurrent(factories)
    with pytest.raises(MismatchError, match="LstmLinearModel, expected .*GruLinearModel"):
        open_model(written(factories.LstmLinearModel(head.rnn, head.linear, 0.1)))


@pytest.mark.parametrize("whole", [False, True])
def test_projections_are_refused(whole, factories, written):
    rnn = nn.LSTM(WIDTH, HIDDEN, proj_size=3, batch_first=True)
    head = factories.LstmLinearModel(rnn, nn.Linear(3, 2), 0.1).eval()
    with pytest.raises(UnsupportedArchitectureError, match="proj_size"):
        open_model(written(head if whole else head.state_dict()))


def test_plain_recurrence_is_refused(factories, written):
    head = factories.GruLinearModel(nn.RNN(WIDTH, HIDDEN), nn.Linear(HIDDEN, 2), 0.1)
    with pytest.raises(UnsupportedArchitectureError, match="GRU"):
        open_model(written(head))
