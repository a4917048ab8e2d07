"""State dicts whose network stands behind first names: read as that network, or refused."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load
from torchvision import models

from converters import convert, open_artifact, open_model
from converters.errors import ConversionError, UnsupportedArchitectureError
from converters.inner_network import inner_network
from converters.input_form import InputForm
from converters.parity import check_parity
from converters.rewriting import open_rewritable
from tests.converters.graph_parity import check_graph
from tests.converters.public_networks import NETWORKS, pictures

FIRST_NAMES = (
    *("encoder.", "resnet.", "classifier.", "student.", "base_model.", "0.", "features."),
    *("model.encoder.", "lit.module.net.encoder_q."),
)
COUNTS = {"step": torch.tensor(3), "ema.initted": torch.tensor(True)}
CLASS_WEIGHTS = {"criterion.weight": torch.ones(5), "val_loss.ce.pos_weight": torch.ones(5)}


def _resnet(classes: int = 5):
    return models.ResNet(models.resnet.BasicBlock, [1, 1, 1, 1], num_classes=classes)


@pytest.fixture(scope="module")
def state(fill):
    return dict(fill(_resnet).state_dict())


def _behind(first: str, state: dict, but: str = "nothing") -> dict:
    return {name if name.startswith(but) else f"{first}{name}": v for name, v in state.items()}


def _check(path, state, remark: str) -> None:
    """The file's network is the one without first names."""
    model = convert(open_artifact(path))
    assert remark in model.findings
    torch.save(state, path)
    bare = convert(open_artifact(path))
    assert model.config == bare.config
    for name, value in bare.params.items():
        np.testing.assert_array_equal(model.params[name], value)


@pytest.mark.parametrize("first", FIRST_NAMES)
def test_any_first_name_that_all_weights_have(first, state, pickled):
    remark = f"the weights' names begin with {first}, which was left out"
    _check(pickled(_behind(first, state)), state, remark)


def test_logits_and_gradients_are_those_of_torch(state, pickled):
    artifact = open_artifact(
        pickled(COUNTS | _behind("model.", _behind("encoder.", state, but="fc.")))
    )
    assert check_parity(artifact, convert(artifact), ((2, 40, 48),)).passed


@pytest.mark.parametrize("beside", [COUNTS, CLASS_WEIGHTS], ids=["counts", "weights of classes"])
def test_what_no_network_computes_with_is_left_out(beside, state, pickled):
    said = ", ".join(map(repr, beside))
    remark = (
        f"the weights' names begin with encoder., which was left out; of no network, and left out:"
        f" {said}"
    )
    _check(pickled(beside | _behind("encoder.", state)), state, remark)


@pytest.mark.parametrize("within", ["", "model."])
def test_a_last_layer_beside_the_rest_of_its_network(within, state, pickled):
    """As `self.encoder = resnet; self.encoder.fc = Identity(); self.fc = Linear` writes it."""
    remark = (
        f"the weights' names begin with {within}encoder., which was left out; a state dict does not"
        f" say what lies between these and '{within}fc.weight', '{within}fc.bias' beside them,"
        " taken as the network's last layer"
    )
    _check(pickled(_behind(within, _behind("encoder.", state, but="fc."))), state, remark)


def test_a_network_that_is_rebuilt(fill, pickled):
    network = fill(NETWORKS["PreActResNet"][0])
    state = _behind("student.", network.state_dict()) | COUNTS
    opened = open_model(pickled(state), InputForm(image_size=(32, 32), bounds=(0, 1)))
    check_graph(opened.model, network, pictures(32))


def test_files_written_again_keep_what_is_left_out(state, pickled):
    given = CLASS_WEIGHTS | _behind("encoder.", state, but="fc.")
    rewritable = open_rewritable(pickled(given))
    changed = {name: np.asarray(value) + 1 for name, value in rewritable.model.params.items()}
    written = load(rewritable.contents(changed))
    assert written.keys() == given.keys()
    for name in ("encoder.conv1.weight", "fc.bias"):
        np.testing.assert_allclose(written[name], given[name].numpy() + 1, atol=1e-6)
    assert (written["criterion.weight"] == 1).all()


def _other(state: dict) -> dict:
    return {name: value + 1 for name, value in state.items()}


def _headless(first: str, state: dict) -> dict:
    return {f"{first}{name}": v for name, v in state.items() if not name.startswith("fc.")}


def _head(state: dict) -> dict:
    return {name: value for name, value in state.items() if name.startswith("fc.")}


# What files hold, and what is said of them.
REFUSED = {
    "student and teacher": (
        lambda s: _behind("student.", s) | _behind("teacher.", _other(s)),
        "under student. and teacher. are a known network's each",
    ),
    "a network and its average": (
        lambda s: _behind("m.net.", s) | _behind("m.ema.net.", _other(s)),
        "under m.net. and m.ema. are a known network's each",
    ),
    "two with the same weights": (
        lambda s: _behind("a.", s) | _behind("b.", s),
        "under a. and b. are a known network's each",
    ),
    "one under its own names and another": (
        lambda s: s | _behind("ema.", _other(s)),
        "unused: ema.conv1.weight",
    ),
    "a second head": (
        lambda s: _behind("encoder.", s) | _head(_other(s)),
        "under encoder. are a known network's, and 2 others",
    ),
    "one head of two": (
        lambda s: _headless("a.", s) | _headless("b.", _other(s)) | _head(s),
        "no family has tensors named like these",
    ),
    "a head of two layers": (
        lambda s: _headless("a.", s) | _head(s) | {"head.weight": torch.ones(5, 5)},
        "no family has tensors named like these",
    ),
    "no head": (lambda s: _headless("encoder.", s), "like resnet, but fc.weight, fc.bias are miss"),
    "a first layer beside the rest": (
        lambda s: _behind("body.", s, but="conv1."),
        "no family has tensors named like these",
    ),
    "a temperature": (
        lambda s: _behind("model.", s) | {"temperature": torch.tensor(2.0)},
        "others stand beside them: 'temperature'",
    ),
    "a matrix in the loss": (
        lambda s: _behind("model.", s) | {"loss.weight": torch.ones(5, 512)},
        "others stand beside them: 'loss.weight'",
    ),
    "what prepares pictures": (
        lambda s: _behind("1.", s) | {"0.mean": torch.ones(3), "0.std": torch.ones(3)},
        "others stand beside them: '0.mean', '0.std'.* --mean A,B,C",
    ),
    "five first names": (lambda s: _behind("a.b.c.d.e.", s), "no family has"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_networks_that_are_not_chosen_or_guessed(name, state, pickled):
    make, said = REFUSED[name]
    with pytest.raises(ConversionError, match=said):
        open_model(pickled(make(state)))


def test_a_matrix_is_a_sentiment_head_behind_plain_names_only(pickled):
    head = {"linear.weight": torch.ones(2, 768), "linear.bias": torch.zeros(2)}
    assert open_model(pickled(_behind("model.", head))).model.architecture == "Linear"
    with pytest.raises(UnsupportedArchitectureError, match="no family has tensors named like"):
        open_model(pickled(_behind("image.", head)))


def test_a_thousand_first_names_cost_little():
    tensors = {f"{n}.conv1.weight": np.ones((1, 1, 1, 1), np.float32) for n in range(9000)}
    assert not inner_network(tensors, {}).findings
