"""What is said of files that are refused: what works first, and formats by their names."""

import pickle

import pytest
import torch

from converters.errors import ConverterError
from converters.opening import open_model
from tests.hostile.second_readings import saved, zip_of


class _Elsewhere:
    """A class that no allow-list knows."""


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"some.weight": torch.ones(2, 2)}, "no family has tensors named like these"),
        (_Elsewhere(), "nothing was executed"),
    ],
)
def test_what_works_comes_before_the_detail(value, said, tmp_path):
    """Records keep 400 characters of a reason: the remedy must be among them."""
    path = tmp_path / "model.pt"
    path.write_bytes(saved(value))
    with pytest.raises(ConverterError) as caught:
        open_model(path)
    kept = str(caught.value).removeprefix(f"{path} ")[:360]
    assert said in kept
    assert "torch.onnx.export(network.eval(), example, 'model.onnx')" in kept


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89HDF\r\n\x1a\n", "tf2onnx.convert --keras model.h5 --output model.onnx"),
        (pickle.dumps({"w": 1}, 0), r"\(pickle\): the file holds a dict without weights"),
        (zip_of({"model.weights.h5": b"", "config.json": b"{}"}), "format='onnx'"),
        (zip_of({"m/data.pkl": b"P1\n."}), "a pickle of protocol 0"),
    ],
)
def test_other_formats_are_called_by_their_names(content, said, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(content)
    with pytest.raises(ConverterError, match=said):
        open_model(path)
