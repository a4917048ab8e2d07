"""timm's folders of the hub: rebuilt by timm where it is installed, refused where it is not."""

import json

import numpy as np
import pytest
import torch

from converters import open_model
from converters.errors import ConverterError
from tests.door.hub_folders import NAMES, change, values

pytestmark = pytest.mark.usefixtures("quick_compilation")

TIMM = {"architecture": "resnet10t", "num_classes": 3, "pretrained_cfg": {
    "input_size": [3, 64, 64], "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}}  # fmt: skip


def test_timm_may_not_be_sent_to_another_file(folder):
    named = TIMM["pretrained_cfg"] | {"hf_hub_filename": "other.bin"}
    (folder / "config.json").write_text(json.dumps(TIMM | {"pretrained_cfg": named}))
    with pytest.raises(ConverterError, match="'other.bin' loaded as weights .hf_hub_filename of"):
        open_model(folder)


def test_without_timm_its_folders_say_so(folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (folder / "config.json").write_text(json.dumps(TIMM))
    with pytest.raises(ConverterError, match="timm's 'resnet10t', and timm is not installed"):
        open_model(folder)


TIMM_FAMILIES = {
    "test_resnet": {},
    "test_convnext": {},
    "test_efficientnet": {},
    "test_vit": {"img_size": 64},
}


@pytest.mark.parametrize("name", TIMM_FAMILIES)
def test_with_timm_its_folders_are_rebuilt(tmp_path, name):
    timm = pytest.importorskip("timm", reason="an optional library")
    arguments = TIMM_FAMILIES[name]
    torch.manual_seed(0)
    network = timm.create_model(name, num_classes=3, **arguments).eval()
    side = 64 if arguments else network.pretrained_cfg["input_size"][1]
    # timm's own writer, as its models on the hub are written.
    timm.models.save_for_hf(network, str(tmp_path), model_args=arguments, safe_serialization=True)
    change(tmp_path, label_names=list(NAMES.values()))
    images = np.random.default_rng(0).random((2, side, side, 3), np.float32)
    mean, std = (np.array(network.pretrained_cfg[key], np.float32) for key in ("mean", "std"))
    with torch.no_grad():
        pixels = torch.tensor((images - mean) / std).permute(0, 3, 1, 2)
        expected = network(pixels).numpy()
    opened = open_model(tmp_path)
    assert opened.folder_form.size == (side, side) and np.abs(expected).max() > 1e-3
    assert "classes of the folder: 0 'cat', 1 'dog', 2 'owl'" in opened.findings
    logits, gradients = values(opened.model, images)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    assert np.isfinite(gradients).all() and np.abs(gradients).max() > 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"architecture": "none_such"}, "timm has no architecture 'none_such'"),
        ({"architecture": None}, "timm has no architecture None"),
        ({"num_classes": 4}, "weights do not fit timm's test_resnet|4, and 3 in model_args"),
        ({"pretrained_cfg": {}}, "cannot be made of config.json"),
        ({"model_args": {"checkpoint_path": "/etc/passwd"}}, "expected plain arguments"),
        ({"model_args": {"img_size": 10**9}}, "expected numbers up to"),
        ({"model_args": {"no_such": 1}}, "cannot be made of config.json"),
    ],
)
def test_timm_folders_that_do_not_fit_say_why(tmp_path, changes, said):
    timm = pytest.importorskip("timm", reason="an optional library")
    network = timm.create_model("test_resnet", num_classes=3)
    timm.models.save_for_hf(network, str(tmp_path), safe_serialization=True)
    change(tmp_path, **changes)
    with pytest.raises(ConverterError, match=said):
        open_model(tmp_path)
