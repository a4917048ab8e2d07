"""Networks of one output as networks of two classes: logits, gradients, last layer, batch norms."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torchvision import models

from converters import convert, fold
from converters.batch_norms import by_batch, has_batch_norms, moments
from converters.graph.logits import with_logits
from converters.graph.module import graph_model
from converters.graph.tape import capture
from converters.model import Model
from converters.one_output import AS_LOGIT, BY_SIGMOID, two_classes
from converters.parity import logits_and_gradients, relative_error
from converters.preparation import prepared
from jaxtroj.evidence.images.weights import head_lead, weight_fields

DenseNet: Any = models.DenseNet  # typed for four blocks; it takes as many as there are
SIDE, WIDTH = 8, 6
SIGMOID = torch.nn.Sigmoid()


class Network(torch.nn.Module):
    """Gives z, `[n, 1]`, and what `tail` makes of it."""

    def __init__(self, tail: Any = SIGMOID, head=lambda: torch.nn.Linear(WIDTH, 1)):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm = torch.nn.Conv2d(3, WIDTH, 3), torch.nn.BatchNorm2d(WIDTH)
        self.head, self.tail = head(), tail

    def features(self, x):
        return torch.relu(self.norm(self.conv(x))).mean((2, 3))

    def forward(self, x):
        return self.tail(8 * self.head(self.features(x)))


class Convolved(Network):
    """The same with a convolution last, `[n, 1, 1, 1]`."""

    def __init__(self, tail: Any = SIGMOID):
        super().__init__(tail, lambda: torch.nn.Conv2d(WIDTH, 1, 1))

    def features(self, x):
        return super().features(x)[:, :, None, None]


def captured_model(network: torch.nn.Module, dtype=torch.float32) -> Model:
    image = torch.zeros(1, 3, SIDE, SIDE, dtype=dtype)
    return graph_model(capture(network.to(dtype).eval(), [image]))


def searched(network: torch.nn.Module, dtype=torch.float32) -> tuple[Model, tuple[str, ...]]:
    """As a scan takes it."""
    model, cut = with_logits(captured_model(network, dtype))
    model, found = two_classes(model, by_sigmoid=bool(cut))
    return model, (*cut, *found)


def of_torch(network: torch.nn.Module, images, weights):
    """The logits [0, z] and the input gradient of their weighted sum, by torch."""
    x = torch.from_numpy(images.transpose(0, 3, 1, 2).copy()).requires_grad_(True)
    z = network(x).reshape(-1, 1)
    logits = torch.cat([torch.zeros_like(z), z], 1)
    (gradients,) = torch.autograd.grad((logits * torch.from_numpy(weights)).sum(), x)
    return logits.detach().numpy(), gradients.numpy().transpose(0, 2, 3, 1)


def assert_parity(model: Model, network: torch.nn.Module, side: int, change=lambda model: model):
    """Within rounding of float64; `network` gives z."""
    random = np.random.default_rng(0)
    images, weights = random.random((3, side, side, 3)), random.standard_normal((3, 2))
    expected = of_torch(network.double().eval(), images, weights)
    with jax.enable_x64(True):
        model = change(model.astype(jnp.float64))
        given = jnp.asarray(images), jnp.asarray(weights)
        got = logits_and_gradients(model.config, model.params, *given)
    for mine, theirs in zip(got, expected, strict=True):
        error = relative_error(np.asarray(mine), theirs)
        assert error is not None and error < 1e-10


TAILS = {
    "[n, 1]": SIGMOID,
    "[n]": lambda z: torch.sigmoid(z).squeeze(1),
    "[n] of a column": lambda z: torch.sigmoid(z)[:, 0],
    "[n] before the sigmoid": lambda z: torch.sigmoid(z.flatten()),
    "no axis for one image": lambda z: torch.sigmoid(z).squeeze(),
    "[n, 1, 1, 1]": lambda z: torch.sigmoid(z)[:, :, None, None],
    "clipped as Keras does": lambda z: torch.sigmoid(z).clip(1e-7, 1 - 1e-7),
    "clipped below": lambda z: torch.clamp(torch.sigmoid(z), min=0.01),
    "clipped by tensors": lambda z: torch.clamp(
        torch.sigmoid(z), torch.tensor(0.1), torch.tensor(0.9)
    ),
    "clipped as ONNX does": lambda z: torch.minimum(
        torch.tensor(0.9), torch.maximum(torch.sigmoid(z), torch.tensor(0.1))
    ),
    "hardtanh": lambda z: torch.nn.functional.hardtanh(torch.sigmoid(z), 0.0, 1.0),
    "rounded": lambda z: torch.round(torch.sigmoid(z)),
}


@pytest.mark.parametrize("name", TAILS)
def test_what_goes_into_the_sigmoid_is_the_logit_of_class_1(name):
    model, found = searched(Network(TAILS[name]), torch.float64)
    assert found == (
        "the network ends in a sigmoid; what goes into it was taken for the logits",
        BY_SIGMOID,
    )
    assert model.num_classes == 2
    assert_parity(model, Network(torch.nn.Identity()), SIDE)


def test_a_convolution_can_be_last():
    model, _ = searched(Convolved(), torch.float64)
    assert_parity(model, Convolved(torch.nn.Identity()), SIDE)


def test_the_answers_are_those_of_the_network():
    images = np.random.default_rng(0).random((40, SIDE, SIDE, 3), np.float32)
    centre = float(np.median(np.asarray(searched(Network())[0](images))[:, 1]))
    network = Network(lambda z: torch.round(torch.sigmoid(z - centre)))
    model, _ = searched(network)
    with torch.no_grad():
        said = network(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()[:, 0]
    assert 0.4 < said.mean() < 0.6
    np.testing.assert_array_equal(np.asarray(model(images)).argmax(1), said)


@pytest.mark.parametrize(
    "tail",
    [
        torch.nn.Identity(),
        torch.nn.Tanh(),
        torch.nn.Softmax(1),
        lambda z: 1 - torch.sigmoid(z),
        lambda z: 100 * torch.sigmoid(z),
        lambda z: (torch.sigmoid(z) > 0.5).float(),
        lambda z: torch.sigmoid(z).clamp(0.6, 1.0),
        lambda z: torch.maximum(torch.sigmoid(z), torch.tensor(0.5)),
        lambda z: torch.maximum(torch.sigmoid(z), 0.1 * z),
        lambda z: torch.sigmoid(z).clamp(0.0, 0.5),
        lambda z: torch.sigmoid(z).log().clamp(-3.0, 1.0),
        lambda z: torch.cat([z, -z], 1).softmax(1)[:, 1],
    ],
)
def test_any_other_output_is_taken_as_it_is(tail):
    network = Network(tail)
    model, found = searched(network)
    assert found == (AS_LOGIT,)
    images = np.random.default_rng(0).random((3, SIDE, SIDE, 3), np.float32)
    with torch.no_grad():
        z = network(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy().reshape(3, 1)
    expected = np.concatenate([np.zeros_like(z), z], 1)
    np.testing.assert_allclose(model(images), expected, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def dense(fill, artifact_of):
    """A DenseNet of one output, by torch and as its family's."""
    network = fill(lambda: DenseNet(8, (2, 2), 16, num_classes=1))
    return network, convert(artifact_of(network))


@pytest.mark.parametrize("change", [lambda m: m, fold, lambda m: prepared(m, (0.0, 1.0))])
def test_a_family_s_network(dense, change):
    network, plain = dense
    model, found = two_classes(plain)
    assert found == (AS_LOGIT,) and model.params is plain.params
    assert_parity(model, network, 40, change)


def test_batch_norms_are_seen_as_in_the_network_itself(dense):
    images = np.random.default_rng(0).random((4, 40, 40, 3), np.float32)
    for plain in (dense[1], captured_model(Network(torch.nn.Identity()))):
        size = plain.image_size or (40, 40)
        pictures = images[:, : size[0], : size[1]]
        given = jnp.asarray(pictures)
        model, _ = two_classes(plain)
        assert has_batch_norms(model)
        for one, two in (
            (by_batch(plain, pictures), by_batch(model, pictures)),
            (moments(*_parts(plain), given), moments(*_parts(model), given)),
        ):
            np.testing.assert_array_equal(np.asarray(two[0])[:, 1:], one[0])
            assert not np.asarray(two[0])[:, 0].any()
            jax.tree.map(np.testing.assert_array_equal, two[1], one[1])


def _parts(model: Model):
    return model.config, model.params


def test_the_last_layer_has_a_row_of_zeros_beside_that_of_the_output(dense):
    row = dense[0].classifier.weight.detach().numpy()
    convolved = Convolved().head.weight.detach().numpy().reshape(1, -1)
    for model, expected in (
        (two_classes(dense[1])[0], row),
        (searched(Network())[0], Network().head.weight.detach().numpy()),
        (searched(Convolved())[0], convolved),
    ):
        rows = model.last_layer()
        assert rows is not None and rows.shape == (2, expected.shape[1])
        assert not rows[0].any()
        np.testing.assert_array_equal(rows[1:], expected)
        fields = weight_fields({"fc.kernel": expected}, rows)
        assert np.isfinite(list(fields.values())).all()
        assert head_lead(rows)[1] == float(expected.sum() > 0)


def test_a_bias_of_an_earlier_layer_is_no_last_layer():
    class Biased(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = torch.nn.Parameter(torch.ones(1, 3))

        def forward(self, x):
            return (x.mean((2, 3)) + self.bias).sum(1, keepdim=True)

    assert searched(Biased())[0].last_layer() is None


def test_equal_networks_share_programs_and_others_stay():
    one, two = (searched(Network())[0] for _ in range(2))
    assert one.config == two.config and hash(one.config) == hash(two.config)
    assert two_classes(one) == (one, ())
    assert two_classes(captured_model(Network(lambda z: torch.cat([z, -z], 1))))[1] == ()
