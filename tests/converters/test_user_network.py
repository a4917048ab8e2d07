"""Weights put into networks of users' code: torch's own reader gives the same answers."""

import numpy as np
import pytest
import torch

from converters.errors import ConversionError, MismatchError
from converters.input_form import InputForm
from converters.opening import convert_file, read_model
from converters.user_code import network_code
from tests.converters import user_networks

_FORM = InputForm(image_size=(16, 16))


def _opened(name, path):
    code = network_code(f"{user_networks.__file__}:{name}")
    return convert_file(read_model(path), _FORM, None, code).model


def _state(name, seed=5):
    torch.manual_seed(seed)
    return getattr(user_networks, name)().eval().state_dict()


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [
        ("ListReference", 1e-5),
        ("Closure", 1e-5),
        ("BufferViews", 1e-5),
        ("SmallNumbers", 1e-5),
        ("Tied", 1e-5),
        ("HalfInside", 1e-3),
    ],
)
def test_weights_reach_all_that_refers_to_them(tmp_path, name, tolerance):
    state = _state(name)
    torch.save(state, tmp_path / "weights.pth")
    network = getattr(user_networks, name)().eval()
    network.load_state_dict(state)
    images = torch.rand(2, 3, 16, 16)
    expected = network(images).detach().numpy()
    got = np.asarray(_opened(name, tmp_path / "weights.pth")(images.permute(0, 2, 3, 1).numpy()))
    np.testing.assert_allclose(got, expected, tolerance, tolerance)


def test_two_values_of_one_tensor_are_refused(tmp_path):
    state = dict(_state("Tied"))
    state["third.weight"] = state["third.weight"] * 2
    torch.save(state, tmp_path / "weights.pth")
    said = "keeps again.weight and third.weight in one tensor.* gives again.weight other values"
    with pytest.raises(MismatchError, match=said):
        _opened("Tied", tmp_path / "weights.pth")


def test_code_that_stays_in_training_is_told_so(tmp_path):
    torch.save(_state("AlwaysTraining"), tmp_path / "weights.pth")
    with pytest.raises(ConversionError, match="stays in training mode when eval.. is called"):
        _opened("AlwaysTraining", tmp_path / "weights.pth")
