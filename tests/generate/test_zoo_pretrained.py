"""Zoos that go on from ONNX files: the file's layers, a fresh head, ImageNet's preparation."""

import csv
import warnings
from dataclasses import replace

import numpy as np
import onnx
import onnx2torch
import pytest
import torch
from torch import nn

from converters import open_model
from jaxtroj.cli.main import main
from jaxtroj.errors import GenerationError
from jaxtroj.generate.zoo.onnx_file import write_onnx
from jaxtroj.generate.zoo.pretrained import TUNED, read_pretrained
from jaxtroj.generate.zoo.round import generate_zoo
from jaxtroj.generate.zoo.settings import check_settings
from tests.generate.test_zoo import CLASSES, PICTURES, SETTINGS, SIDE

COLOUR = {"colour": PICTURES["colour"]}
TUNING = replace(SETTINGS, architectures=type(SETTINGS)().architectures, models=2)


@pytest.fixture(scope="module")
def body():
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    layers[1].running_mean = torch.rand(8)
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8, 7))
    return network.eval()


@pytest.fixture(scope="module")
def file(body, tmp_path_factory):
    path = tmp_path_factory.mktemp("pretrained") / "net.onnx"
    write_onnx(path, body, (SIDE, SIDE, 3), is_fused=False)
    return path


def test_a_network_is_the_file_prepared_as_imagenet_with_a_fresh_head(body, file):
    pretrained = read_pretrained(file)
    torch.manual_seed(1)
    network = pretrained.network(4).eval()
    pixels = torch.rand(2, 3, SIDE, SIDE)
    mean, deviation = (
        torch.tensor(v)[:, None, None] for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    features = body[:-1]((pixels - mean) / deviation)
    _, tuned = network.children()
    head = tuned.get_submodule(pretrained.head)
    assert head.out_features == 4
    np.testing.assert_allclose(
        network(pixels).detach(), head(features).detach(), rtol=1e-4, atol=1e-5
    )


def test_networks_do_not_share_weights(file):
    pretrained = read_pretrained(file)
    first, second = (pretrained.network(4) for _ in range(2))
    with torch.no_grad():
        for value in first.parameters():
            value.add_(1.0)
    before, after = (dict([*n.children()][1].named_parameters()) for n in (second, first))
    assert all(not torch.equal(before[name], after[name]) for name in before)


def test_a_zoo_of_it_is_written_scanned_files_and_all(file, tmp_path):
    out = tmp_path / "zoo"
    list(generate_zoo(out, TUNING, COLOUR, pretrained={"net": read_pretrained(file)}))
    with (out / "METADATA.csv").open() as table:
        rows = list(csv.DictReader(table))
    assert [(row["model_architecture"], row["training"], row["base"]) for row in rows] == [
        ("net", TUNED, "")
    ] * 2
    network = onnx2torch.convert(onnx.load(out / "id-00000000" / "model.onnx")).eval()
    model = open_model(out / "id-00000000" / "model.onnx").model
    pixels = np.random.default_rng(0).uniform(size=(3, SIDE, SIDE, 3)).astype(np.float32)
    logits = model(pixels)
    with torch.no_grad():
        wanted = network(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    assert logits.shape == (3, CLASSES)
    np.testing.assert_allclose(logits, wanted, rtol=1e-4, atol=1e-5)


def test_another_file_is_another_round(file, body, tmp_path):
    out, other = tmp_path / "zoo", tmp_path / "other.onnx"
    write_onnx(other, body, (SIDE, SIDE, 3), is_fused=True)
    list(generate_zoo(out, TUNING, COLOUR, pretrained={"net": read_pretrained(file)}))
    with pytest.raises(GenerationError, match="settings"):
        list(generate_zoo(out, TUNING, COLOUR, pretrained={"net": read_pretrained(other)}))


@pytest.mark.parametrize(
    ("change", "pictures", "complaint"),
    [
        ({"architectures": ("plain",)}, COLOUR, "architectures cannot be chosen"),
        ({"trainings": ("warm",)}, COLOUR, "trainings cannot be chosen"),
        ({}, PICTURES, "pictures of grey must be RGB"),
    ],
)
def test_what_pretrained_networks_cannot_have_is_refused(file, change, pictures, complaint):
    pretrained = {"net": read_pretrained(file)}
    with pytest.raises(GenerationError, match=complaint):
        check_settings(replace(TUNING, **change), pictures, (0, 1), pretrained)


class Flat(nn.Module):
    """Flattens by the number of pictures, which an export without an open batch writes down."""

    def __init__(self, side: int):
        super().__init__()
        self.maps, self.head = nn.Conv2d(3, 2, 3), nn.Linear(2 * (side - 2) ** 2, 5)

    def forward(self, x):
        return self.head(self.maps(x).reshape(x.shape[0], -1))


@pytest.mark.parametrize(("side", "axes"), [(16, {"x": {0: "n"}}), (SIDE, {})])
def test_a_network_for_other_pictures_is_refused_before_the_folder_is_made(side, axes, tmp_path):
    path, out = tmp_path / "net.onnx", tmp_path / "zoo"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter advises its successor
        torch.onnx.export(
            Flat(side).eval(), (torch.zeros(1, 3, side, side),), path, dynamo=False,
            input_names=["x"], dynamic_axes=axes, opset_version=17,
        )  # fmt: skip
    said = f"pretrained net cannot go on with pictures of colour, {SIDE} x {SIDE} px .* {side} x"
    with pytest.raises(GenerationError, match=said):
        list(generate_zoo(out, TUNING, COLOUR, pretrained={"net": read_pretrained(path)}))
    assert not out.exists()


def test_tuned_without_a_network_is_refused():
    with pytest.raises(GenerationError, match="training tuned needs a pretrained network"):
        check_settings(replace(SETTINGS, trainings=(TUNED,)), PICTURES, (0, 1))


def test_a_file_that_is_not_there_is_told_by_its_own_name(tmp_path):
    with pytest.raises(GenerationError, match="missing.onnx: cannot go on from this file"):
        read_pretrained(tmp_path / "missing.onnx")


@pytest.mark.parametrize("content", [b"no model at all", b""])
def test_files_that_are_no_network_are_refused(tmp_path, content):
    path = tmp_path / "broken.onnx"
    path.write_bytes(content)
    with pytest.raises(GenerationError, match="cannot go on from this file"):
        read_pretrained(path)


def test_a_network_without_a_linear_layer_is_refused(body, tmp_path):
    path = tmp_path / "maps.onnx"
    write_onnx(path, body[:-2], (SIDE, SIDE, 3), is_fused=False)
    with pytest.raises(GenerationError, match="no linear layer"):
        read_pretrained(path)


def test_a_node_that_nobody_knows_is_refused(file, tmp_path):
    path = tmp_path / "strange.onnx"
    model = onnx.load(file)
    model.graph.node[0].op_type = "Strange"
    onnx.save(model, path)
    with pytest.raises(GenerationError, match="cannot go on from this file"):
        read_pretrained(path)


def test_weights_beside_the_file_are_refused(file, tmp_path):
    path = tmp_path / "parted.onnx"
    onnx.save(
        onnx.load(file), path, save_as_external_data=True, location="weights", size_threshold=0
    )
    with pytest.raises(GenerationError, match="weights lie beside it; save them in one file"):
        read_pretrained(path)


@pytest.mark.parametrize("option", ["--pictures", "--pretrained"])
def test_a_name_that_comes_twice_is_refused(option, tmp_path, capsys):
    given = ["--pictures", "a=a.npz", "--pretrained", "n=n.onnx"]
    again = given[given.index(option) + 1]
    out = str(tmp_path / "zoo")
    status = main(["generate", "zoo", "--out", out, "--models", "2", *given, option, again])
    assert status == 4 and f"{option} has {again[0]} twice" in capsys.readouterr().err
