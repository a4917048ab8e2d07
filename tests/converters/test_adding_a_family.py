"""docs/adding-a-family.md: its family, added from outside, is read, checked and recognised."""

import numpy as np
import pytest
import torch
from flax import nnx

from converters import (
    InputForm,
    convert,
    families,
    load_checkpoint,
    open_artifact,
    open_model,
    save_checkpoint,
)
from converters.errors import MismatchError, UnsupportedArchitectureError
from converters.families.reference import empty_module
from converters.parity import check_parity
from tests.documented import first_example

SHAPES = ((2, 21, 33), (1, 16, 16))
WIDTHS = (5, 6, 7)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return first_example("adding-a-family.md", tmp_path_factory.mktemp("family"))


@pytest.fixture
def added(page, monkeypatch):
    """The page, with its row in the table."""
    monkeypatch.setitem(families.FAMILIES, page.FAMILY.name, page.FAMILY)
    return page


@pytest.fixture
def network(added, fill):
    """torch's network with random weights, narrower than the standard one."""
    return fill(lambda: added.torch_module(added.ChainConfig(WIDTHS, 4)))


@pytest.fixture
def whole(network, pickled, old_class):
    """A file that holds the whole network."""
    network.__class__ = old_class("model_factories.ChainNet", type(network))
    return lambda: pickled(network)


def test_it_is_unknown_without_its_row(page, fill, pickled):
    made = fill(lambda: page.torch_module(page.ChainConfig(WIDTHS, 4)))
    with pytest.raises(UnsupportedArchitectureError):
        open_model(pickled(made.state_dict()))


def test_parity_with_torch_as_it_is_and_folded(added, network, pickled):
    artifact = open_artifact(pickled(network.state_dict()))
    model = convert(artifact)
    assert model.config == added.ChainConfig(WIDTHS, 4) and model.architecture == "chain3"
    report = check_parity(artifact, model, SHAPES).require()
    exact = [c for c in report.comparisons if c.dtype == "float64"]
    assert {c.folded for c in exact} == {False, True}
    assert all(c.logits < 1e-10 and c.gradients < 1e-10 for c in exact)


def test_a_pickled_network_is_read_and_its_hyperparameters_count(added, network, whole):
    for norm in network.norms:
        norm.eps = 1e-3
    model = open_model(whole()).model
    assert model.config == added.ChainConfig(WIDTHS, 4, eps=1e-3)
    network.convs[1].stride = (1, 1)
    with pytest.raises(MismatchError, match=r"convs\.1\.stride"):
        open_model(whole())


def test_the_last_layer_is_known(network, pickled):
    model = open_model(pickled(network.state_dict())).model
    rows = network.head.weight.detach().numpy()
    np.testing.assert_array_equal(model.last_layer(), rows)


def test_checkpoints_hold_it(network, pickled, tmp_path):
    model = open_model(pickled(network.state_dict())).model
    again = load_checkpoint(save_checkpoint(model, tmp_path / "checkpoint"))
    assert (again.config, again.architecture) == (model.config, "chain3")


def test_an_exported_program_is_recognised(added, network, tmp_path):
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(network, (torch.zeros(1, 3, 16, 16),)), path)
    model = open_model(path, InputForm(bounds=(0, 1))).model
    assert model.config.inner == added.ChainConfig(WIDTHS, 4)  # pyright: ignore


@pytest.mark.filterwarnings("ignore")
def test_an_onnx_file_with_folded_norms_is_recognised(added, network, tmp_path):
    path = tmp_path / "net.onnx"
    torch.onnx.export(network, (torch.zeros(1, 3, 16, 16),), path, dynamo=False)
    opened = open_model(path, InputForm(bounds=(0, 1)))
    config = opened.model.config.inner  # pyright: ignore
    assert config == added.ChainConfig(WIDTHS, 4, folded=True)
    images = np.random.default_rng(0).random((2, 16, 16, 3)).astype(np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(opened.model(images), expected, rtol=1e-3, atol=1e-4)


def test_its_standard_network_is_built(added):
    config, module = families.build("chain3", 3, nnx.Rngs(0))
    standard = families.standards()["chain3"].standard
    assert standard is not None and config == standard("chain3", 3)
    assert module(np.zeros((1, 16, 16, 3), np.float32)).shape == (1, 3)
    assert empty_module(config).head.weight.shape == (3, 64)
