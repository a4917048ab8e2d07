"""What is said of files that are refused: what works first, and formats by their names."""

import hashlib
import io
import pickle
import zipfile

import pytest
import torch

from converters.errors import (
    ConverterError,
    CorruptFileError,
    TooLargeError,
    UnknownFormatError,
    UnsafeConfigError,
    UnsafePickleError,
)
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


@pytest.mark.parametrize("name", ["bert.embeddings.word_embeddings.weight", "wte.weight"])
def test_weights_of_a_network_of_texts_ask_for_its_folder(name, tmp_path):
    (tmp_path / "model.pt").write_bytes(saved({name: torch.ones(2, 2)}))
    with pytest.raises(ConverterError) as caught:
        open_model(tmp_path / "model.pt")
    assert f"a network of texts ('{name}' is a table of words)" in str(caught.value)
    assert "Expected the Hugging Face folder, with config.json and the tok" in str(caught.value)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x89HDF\r\n\x1a\n", "tf2onnx.convert --keras model.h5 --output model.onnx"),
        (b"\x18\0\0\0TFL3\0\0", "tf2onnx.convert --tflite model.tflite --output model.onnx"),
        (
            b"\x08\x01\x12\xe6\x95B\n\xc8$\x12",
            "tf2onnx.convert --saved-model FOLDER --output model.onnx",
        ),
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


@pytest.mark.parametrize(
    ("inside", "said"),
    [
        ("saved_model.pb", "a SavedModel of TensorFlow.*--saved-model FOLDER.*; expected a model"),
        ("Data/com.apple.CoreML/model.mlmodel", "a package of Core ML.*; expected a model"),
        ("other", "is a folder; expected a model file"),
    ],
)
def test_folders_of_other_frameworks_are_called_by_their_names(inside, said, tmp_path):
    file = tmp_path / "net" / inside
    file.parent.mkdir(parents=True)
    file.write_bytes(b"1")
    with pytest.raises(ConverterError, match=said):
        open_model(tmp_path / "net")


@pytest.mark.parametrize(
    "content",
    [b"\x08\x07\xff\xff", b"\x89HDF\r\n\x1a\n", b"\x1f\x8b\x08", b"version https://git-lfs"],
)
def test_all_formats_are_named_where_none_fits(content, tmp_path):
    (tmp_path / "model").write_bytes(content)
    with pytest.raises(UnknownFormatError, match=r"safetensors, ONNX, or an exported program"):
        open_model(tmp_path / "model")


def _bomb() -> bytes:
    """A zip that expands to more than is read of it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/data.pkl", bytes(2**25))
    return out.getvalue()


def _without_members() -> bytes:
    """The start of a member, and a directory that names none."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("m/data.pkl", b"")
    start = out.getvalue()[: out.getvalue().index(b"PK\x01\x02")]
    return start + b"PK\x05\x06" + bytes(12) + len(start).to_bytes(4, "little") + bytes(2)


@pytest.mark.parametrize(
    ("content", "kind", "said"),
    [
        (lambda: saved({"w": torch.ones(3)})[:-30], CorruptFileError, "the zip has no end record"),
        (_bomb, TooLargeError, "the zip of [0-9]+ bytes expands to"),
        (_without_members, CorruptFileError, "the zip has no members"),
    ],
)
def test_damaged_zips_are_named(content, kind, said, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(content())
    with pytest.raises(kind, match=rf"{path} \(torch zip\): {said}") as caught:
        open_model(path)
    assert caught.value.digest == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("kind", [UnsafePickleError, UnsafeConfigError])
def test_every_refusal_of_code_says_that_none_was_run(kind):
    """Reports tell such files from damaged ones by it."""
    assert str(kind("the pickle uses the operation INST")).endswith("; nothing was executed")
    assert str(kind("nothing was executed; export it")) == "nothing was executed; export it"
