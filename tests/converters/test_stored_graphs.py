"""Graphs in checkpoints: round trips, and what is no graph refused."""

import copy
import json

import numpy as np
import pytest
import torch
from torchvision import models

from converters import load_checkpoint, save_checkpoint
from converters.errors import ConversionError, CorruptFileError
from converters.graph.module import graph_model
from converters.graph.stored import config_of, plain_of
from converters.graph.tape import capture
from converters.preparation import prepared
from jaxtroj.cli.main import main

pytestmark = pytest.mark.usefixtures("unguarded")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.fc = torch.nn.Linear(4, 5)

    def forward(self, x):
        y = torch.relu(self.conv(x))[:, torch.tensor([3, 2, 1, 0])]
        return self.fc(y.mean((2, 3)))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return graph_model(capture(Net().eval(), [torch.zeros(1, 3, 8, 8)]), architecture="own")


def test_round_trip(model, tmp_path):
    loaded = load_checkpoint(save_checkpoint(model, tmp_path, "ab" * 32))
    assert (loaded.config, loaded.architecture) == (model.config, "own")
    images = np.random.default_rng(0).random((2, 8, 8, 3)).astype(np.float32)
    np.testing.assert_array_equal(loaded(images), model(images))


def test_preparation_is_not_lost_in_silence(model, tmp_path):
    ready = prepared(model, bounds=(0, 255))
    assert ready.config.inner is model.config  # pyright: ignore
    with pytest.raises(ConversionError, match="without bounds"):
        save_checkpoint(ready, tmp_path)


def _first_call(plain, change):
    change(plain["graph"]["nodes"][0])


HOSTILE = {
    "no graph": lambda p: p.pop("graph"),
    "a further field": lambda p: p.update(more=1),
    "no calls": lambda p: p["graph"].update(nodes=[]),
    "an unknown operator": lambda p: _first_call(p, lambda n: n.__setitem__(0, "os.system")),
    "an unknown value": lambda p: p["graph"].update(outputs=["%999"]),
    "two outputs": lambda p: p["graph"]["outputs"].append("in:0"),
    "a huge input": lambda p: p["graph"]["inputs"][0].__setitem__(0, [1, 3, 2**20, 2**20]),
    "a negative shape": lambda p: p["graph"]["inputs"][0].__setitem__(0, [1, 3, -8, 8]),
    "another shape": lambda p: p["graph"]["nodes"][0][4].__setitem__(0, [[1, 4, 7, 7], "float32"]),
    "no number": lambda p: p.update(num_classes="5"),
    "other classes": lambda p: p.update(num_classes=6),
    "another size": lambda p: p.update(image_size=[9, 8]),
    "another layout": lambda p: p.update(layout="NXYZ"),
    "a text for a list": lambda p: p["graph"].update(params="conv.weight"),
    "a constant cut short": lambda p: p["graph"]["constants"][0].__setitem__(2, "AAAA"),
    "deep arguments": lambda p: _first_call(p, lambda n: n.__setitem__(1, [[[[[{"x": 1}]]]]])),
    "an unknown type": lambda p: p["graph"]["params"][0].__setitem__(2, "float999"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_is_no_graph_is_refused(case, model):
    plain = json.loads(json.dumps(plain_of(model.config)))
    assert config_of(copy.deepcopy(plain)) == model.config
    HOSTILE[case](plain)
    with pytest.raises(CorruptFileError, match="none that runs"):
        config_of(plain)


def test_convert_writes_rebuilt_networks_and_compares_them(fill, pickled, tmp_path, capsys):
    network = fill(lambda: models.VisionTransformer(16, 8, 1, 2, 8, 16, num_classes=3))
    path = pickled(network.requires_grad_(False))
    assert main(["convert", str(path), "--out", str(tmp_path / "out"), "--check"]) == 0
    assert "vit, 3 classes" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "parity.json").read_text())
    assert report["passed"] and {c["dtype"] for c in report["comparisons"]} == {
        "float64",
        "float32",
    }
    loaded = load_checkpoint(tmp_path / "out")
    images = np.random.default_rng(0).random((2, 16, 16, 3)).astype(np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(loaded(images), expected, rtol=1e-4, atol=1e-5)
