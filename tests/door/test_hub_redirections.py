"""Folders that transformers loads otherwise than their usual files say: refused."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import load_file, save_file

from converters import open_model
from converters.errors import ConverterError, MismatchError
from tests.door.hub_folders import change


def _theirs(folder: Path) -> dict[str, np.ndarray]:
    """Weights that transformers computes with."""
    network = transformers.AutoModelForImageClassification.from_pretrained(folder)
    return {name: value.float().numpy() for name, value in network.state_dict().items()}


def test_a_config_may_not_name_other_weights_than_are_read(folder):
    """transformers loads the file that `transformers_weights` names."""
    clean = _theirs(folder)
    other = {name: np.array(value + 1) for name, value in clean.items()}
    save_file(other, folder / "other.safetensors", {"format": "pt"})
    change(folder, transformers_weights="other.safetensors")
    assert any(not np.array_equal(value, clean[name]) for name, value in _theirs(folder).items())
    with pytest.raises(ConverterError, match="'other.safetensors' loaded as weights"):
        open_model(folder)


@pytest.mark.parametrize("name", ["adapter_config.json", "MLmodel"])
def test_what_others_load_beside_the_weights_is_refused(folder, name):
    (folder / name).write_text("{}")
    with pytest.raises(ConverterError, match=f"{name} lies beside the weights"):
        open_model(folder)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_weights_of_the_type_that_is_said_are_read(folder, kind):
    """transformers rounds others to it, so that a network of other logits would be searched."""
    clean = _theirs(folder)
    change(folder, dtype=kind)
    rounded = _theirs(folder)
    assert any(not np.array_equal(value, clean[name]) for name, value in rounded.items())
    with pytest.raises(MismatchError, match=f"weights loaded as {kind}"):
        open_model(folder)
    save_file(rounded, folder / "model.safetensors", {"format": "pt"})
    for said in (kind, "float32", None):
        change(folder, dtype=said)
        assert open_model(folder).model.num_classes == 3


def test_without_a_type_weights_of_two_types_may_not_need_rounding(folder):
    """transformers then takes the type of the tensor that it meets first."""
    change(folder, dtype=None)
    tensors = load_file(folder / "model.safetensors")
    first = min(tensors)
    save_file(
        tensors | {first: tensors[first].astype(np.float16)},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    assert first == "classifier.bias"
    head = _theirs(folder)["classifier.weight"]
    assert not np.array_equal(head, tensors["classifier.weight"])
    with pytest.raises(MismatchError, match="weights loaded as float16"):
        open_model(folder)


def test_torch_files_keep_their_order_of_types(folder):
    """Where no type is said, that of the first tensor counts; a later one of 16 bits does not."""
    change(folder, dtype=None)
    tensors = {
        name: torch.from_numpy(v) for name, v in load_file(folder / "model.safetensors").items()
    }
    (folder / "model.safetensors").unlink()
    first, last = min(tensors), max(tensors)
    torch.save(tensors | {last: tensors[last].half()}, folder / "pytorch_model.bin")
    assert open_model(folder).model.num_classes == 3
    torch.save(tensors | {first: tensors[first].half()}, folder / "pytorch_model.bin")
    with pytest.raises(MismatchError, match="weights loaded as float16"):
        open_model(folder)


def test_weights_of_two_shards(folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    places = {}
    for number, part in enumerate((names[:20], names[20:])):
        file = f"model-{number}.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
        places |= dict.fromkeys(part, file)
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": places}))
    assert open_model(folder).model.num_classes == 3
    index.write_text(json.dumps({"weight_map": dict.fromkeys(places, "../../etc/passwd")}))
    with pytest.raises(ConverterError, match="expected the name of a file beside it"):
        open_model(folder)
    change(folder, dtype=None)
    about = {"total_size": 1, "dtype": "float16"}
    index.write_text(json.dumps({"metadata": about, "weight_map": places}))
    head = _theirs(folder)["classifier.weight"]
    assert not np.array_equal(head, tensors["classifier.weight"])
    with pytest.raises(ConverterError, match="the index of the weights has weights loaded as"):
        open_model(folder)
    change(folder, dtype="float32")  # outranks the index
    np.testing.assert_array_equal(
        _theirs(folder)["classifier.weight"], tensors["classifier.weight"]
    )
    assert open_model(folder).model.num_classes == 3
