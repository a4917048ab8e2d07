"""Hugging Face folders that transformers 4 and 5 make two networks of: told, or refused."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from converters import open_model
from converters.errors import ConverterError, MismatchError
from tests.door.hub_folders import write_folder

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.mark.parametrize("kind", [torch.float32, torch.int32])
@pytest.mark.parametrize("family", ["swin", "vit", "deit", "beit", "resnet"])
def test_two_tensors_of_one_weight_are_refused(tmp_path, family, kind):
    """transformers 4 takes other ones of them than transformers 5, and both say nothing.

    Files have transformers 4's names, ResNet's those of all versions; it has them without a prefix
    too here, which both add.
    """
    folder = write_folder(tmp_path / family, family)
    path = folder / "model.safetensors"
    network = transformers.AutoModelForImageClassification.from_pretrained(folder)
    held, own = load_file(path), network.state_dict()
    other = {name.removeprefix("resnet."): 2 * value + 1 for name, value in own.items()}
    more = {name: value.to(kind) for name, value in other.items() if name not in held}
    assert more
    save_file(held | more, path)
    with pytest.raises(MismatchError, match=r"lack a tensor of their own\s+name, so that some"):
        open_model(folder)


@pytest.mark.parametrize("change", [lambda table: table, lambda table: table.flip(0)])
def test_positions_that_transformers_4_loads_are_the_networks_own(tmp_path, change):
    """Its Swin keeps them in its files, and computes with what stands there."""
    folder = write_folder(tmp_path / "swin", "swin")
    buffers = transformers.SwinForImageClassification.from_pretrained(folder).named_buffers()
    tables = {
        name.replace("relative_position_bias", "self"): change(value.reshape(16, 16))
        for name, value in buffers
        if name.endswith("relative_position_index")
    }
    held = load_file(folder / "model.safetensors")
    save_file(held | {n: t.contiguous() for n, t in tables.items()},
                    folder / "model.safetensors")  # fmt: skip
    assert len(tables) == 3
    if torch.equal(change(torch.eye(2)), torch.eye(2)):
        open_model(folder)
        return
    with pytest.raises(MismatchError, match="holds other positions than SwinForImage"):
        open_model(folder)


OF_BOTH = {
    "the same": ({}, {}),
    "no pictures": (None, {}),
    "other values": ({"image_mean": [0.9] * 3}, "ways, of other 'image_mean'"),
    "another class": ({"image_processor_type": "ConvNextImageProcessor"}, "'image_processor_type'"),
    "the same, of another make": ({"image_processor_type": "ViTImageProcessorFast"}, {}),
}


@pytest.mark.parametrize("name", OF_BOTH)
def test_configs_of_both_versions_must_prepare_alike(folder, name):
    """transformers 4 reads `preprocessor_config.json`, transformers 5 the other first."""
    changes, said = OF_BOTH[name]
    older = json.loads((folder / "preprocessor_config.json").read_text())
    newer = {"processor_class": "X"}
    if changes is not None:
        newer["image_processor"] = older | changes
    (folder / "processor_config.json").write_text(json.dumps(newer))
    if said:
        with pytest.raises(ConverterError, match=said):
            open_model(folder)
        return
    named = "preprocessor_config.json" if changes is None else "processor_config.json"
    form = open_model(folder).folder_form
    assert form.source == named and form.mean == (0.5, 0.5, 0.5)
