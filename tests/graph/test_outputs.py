"""Which of several outputs is scanned: one rule for torch modules, `.pt2` and ONNX files."""

import re

import numpy as np
import pytest
import torch

from converters.errors import ConversionError
from converters.graph.captured_folder import load_captured, save_captured
from converters.graph.classifier import classifier
from converters.graph.outputs import output_number
from converters.graph.torch_network import captured_module
from converters.input_form import InputForm
from converters.opening import open_model

RETURNS = {
    "features first": (lambda f, y: (f, y), 0, "'(mean|0)' was taken for the logits; others"),
    "a label first": (lambda f, y: (y.argmax(1), y), 1, "'(linear|1)' was taken for the logits"),
    "called logits": (lambda f, y: {"hidden": f, "logits": y}, 1, "'logits' was .* 'hidden'"),
    "a loss of None": (lambda f, y: {"loss": None, "logits": y}, 1, None),
    "None behind": (lambda f, y: (y, None), 1, None),
    "None in front": (lambda f, y: (None, y, f), 1, "'(linear|1)' was taken for the logits"),
    "one in a list": (lambda f, y: [y], 1, None),
}


class Net(torch.nn.Module):
    def __init__(self, returned):
        super().__init__()
        self.conv, self.last = torch.nn.Conv2d(3, 4, 3), torch.nn.Linear(4, 3)
        self.returned = returned

    def forward(self, x):
        features = self.conv(x).mean((2, 3))
        return self.returned(features, self.last(features))


def _network(returned):
    torch.manual_seed(0)
    return Net(returned).eval()


def _memory(network, form, folder):
    save_captured(captured_module(network, (16, 16, 3)), folder)
    return classifier(load_captured(folder), form)


def _file(network, form, folder):
    program = torch.export.export(network, (torch.zeros(1, 3, 16, 16),), strict=False)
    folder.mkdir()
    torch.export.save(program, folder / "net.pt2")
    return open_model(folder / "net.pt2", form).model


@pytest.mark.parametrize("opened", [_memory, _file])
@pytest.mark.parametrize("case", RETURNS)
def test_the_logits_are_found(tmp_path, opened, case):
    returned, number, said = RETURNS[case]
    model = opened(_network(returned), InputForm(), tmp_path / "net")
    images = torch.rand(2, 3, 16, 16)
    expected = _network(lambda f, y: (f, y)[number])(images).detach().numpy()
    got = np.asarray(model(images.permute(0, 2, 3, 1).numpy()))
    np.testing.assert_allclose(got, expected, 1e-4, 1e-5)
    found = [finding for finding in model.findings if "was taken for the logits" in finding]
    assert len(found) == (said is not None)
    assert said is None or re.search(said, found[0])


@pytest.mark.parametrize("opened", [_memory, _file])
def test_an_output_is_named_by_its_key(tmp_path, opened):
    network = _network(lambda f, y: {"hidden": f, "logits": y})
    model = opened(network, InputForm(output="hidden"), tmp_path / "net")
    assert model.config.num_classes == 4
    with pytest.raises(ConversionError, match="no output 'x'; the outputs are 'hidden', 'logits'"):
        opened(network, InputForm(output="x"), tmp_path / "other")


@pytest.mark.parametrize(
    ("names", "whole", "number"),
    [
        (["a", "b"], [False, False], 0),
        (["a", "b"], [True, False], 1),
        (["a", "Logits", "c"], [False, False, False], 1),
        (["a", "logits"], [False, True], 0),
        (["logits", "LOGITS"], [False, False], 0),
        (["a", "logits", "c"], [True, False, False], 1),
    ],
)
def test_the_rule(names, whole, number):
    assert output_number(names, whole, None) == number


@pytest.mark.parametrize("whole", [[True], [True, True], [True, False, False]])
def test_whole_numbers_are_no_logits(whole):
    names = ["label", "b", "c"][: len(whole)]
    with pytest.raises(ConversionError, match="'label' holds whole numbers, expected logits"):
        output_number(names, whole, None)
