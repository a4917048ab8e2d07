"""Networks that end in a softmax or sigmoid, cut before it."""

import jax
import numpy as np
import pytest
import torch

from converters.graph.logits import with_logits
from converters.graph.module import graph_model
from converters.graph.tape import capture

SIDE, CLASSES = 6, 5
SEVENS = torch.full((CLASSES,), 7.0)


class Network(torch.nn.Module):
    def __init__(self, tail):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.tail = torch.nn.Conv2d(3, CLASSES, 3), tail

    def forward(self, x):
        return self.tail(8 * self.conv(x).mean((2, 3)))


class Wide(torch.nn.Module):
    """A softmax over the channels of a map, then flattened: what the old zoo exports."""

    def forward(self, x):
        return torch.flatten(torch.softmax(x[:, :, None, None], 1), 1)


class Logarithm(torch.nn.Module):
    """A softmax and its logarithm as two calls."""

    def forward(self, x):
        return torch.log(torch.softmax(x, 1))


class Then(torch.nn.Module):
    """A softmax or the like, and what is made of its values."""

    def __init__(self, after, squash=None):
        super().__init__()
        self.after, self.squash = after, squash or torch.nn.Softmax(1)

    def forward(self, x):
        return self.after(self.squash(x))


def model_of(tail, **form):
    captured = capture(Network(tail).eval(), [torch.zeros(1, 3, SIDE, SIDE)])
    return graph_model(captured, **form)


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((4, SIDE, SIDE, 3), np.float32)


@pytest.mark.parametrize("form", [{}, {"bounds": (0.0, 255.0)}], ids=["plain", "prepared"])
@pytest.mark.parametrize(
    ("tail", "cut"),
    [
        (torch.nn.Softmax(1), "a softmax"),
        (torch.nn.Softmax(-1), "a softmax"),
        (torch.nn.LogSoftmax(1), "a log-softmax"),
        (torch.nn.Sequential(torch.nn.Softmax(1), torch.nn.Identity()), "a softmax"),
        (torch.nn.Sequential(torch.nn.Softmax(1), torch.nn.Unflatten(1, (1, -1))), "a softmax"),
        (Wide(), "a softmax"),
        (Logarithm(), "a softmax"),
        (torch.nn.Sigmoid(), "a sigmoid"),
        (Then(lambda p: p * 2), "a softmax"),
        (Then(lambda p: 1 + 0.5 * p / 3 - 0.25), "a softmax"),
        (Then(lambda p: torch.log(p + 1e-7)), "a softmax"),
        (Then(lambda p: torch.log(p * 4 + 1) * 3), "a softmax"),
        (Then(lambda p: (p * SEVENS).unsqueeze(1).flatten(1)), "a softmax"),
        (Then(lambda p: 100 * p - 250, torch.nn.LogSoftmax(1)), "a log-softmax"),
        (Then(lambda p: p * 4, torch.nn.Sigmoid()), "a sigmoid"),
    ],
)
def test_the_logits_are_those_before_the_softmax(images, tail, cut, form):
    wanted = model_of(torch.nn.Identity(), **form)(images)
    model, findings = with_logits(model_of(tail, **form))
    assert findings == (f"the network ends in {cut}; what goes into it was taken for the logits",)
    if cut == "a sigmoid":
        wanted = np.minimum(wanted, 17.5)  # from there on it is 1
    np.testing.assert_allclose(model(images), wanted, rtol=1e-5, atol=1e-5)
    assert with_logits(model) == (model, ())


@pytest.mark.parametrize("squash", [torch.nn.Sigmoid(), torch.nn.Hardsigmoid()])
def test_classes_whose_sigmoids_are_equal_stay_equal(squash, images):
    """In torch the first of them wins; a trigger only has to saturate it."""
    shift = torch.nn.Linear(5, 5)
    with torch.no_grad():
        shift.weight[:] = torch.eye(5)
        shift.bias[:] = torch.tensor([20.0, 80.0, 16.2, 16.25, -90.0])
    network = torch.nn.Sequential(Network(shift), squash)
    captured = capture(network.eval(), [torch.zeros(1, 3, SIDE, SIDE)])
    model, findings = with_logits(graph_model(captured))
    assert findings and with_logits(model) == (model, ())
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    shares = network(pixels).detach().numpy()
    logits = np.asarray(model(images))
    assert (logits.argmax(1) == shares.argmax(1)).all()
    assert (shares.argmax(1) == 0).all()
    slope = jax.jacobian(lambda x: model(x)[0])(images[:1])
    assert np.abs(np.asarray(slope)).reshape(5, -1).max(1).min() > 1e-3


def test_it_is_called_as_the_same_network_without_softmax():
    model, _ = with_logits(model_of(torch.nn.Softmax(1)))
    plain = model_of(torch.nn.Identity())
    assert (model.architecture, model.findings[0]) == (plain.architecture, plain.findings[0])


class Halves(torch.nn.Module):
    """A softmax over something else than the classes."""

    def forward(self, x):
        return torch.softmax(x[:, :4].reshape(1, 2, 2), 1).flatten(1)


class Moved(torch.nn.Module):
    """A softmax, and its values at other places."""

    def __init__(self, *moves):
        super().__init__()
        self.moves = moves

    def forward(self, x):
        x = torch.cat([x, x[:, :1] + 1], 1).softmax(1).reshape(1, 2, 3)
        for move in self.moves:
            x = move(x)
        return x.reshape(1, 6)


class Whole(torch.nn.Module):
    """Probabilities as whole numbers."""

    def forward(self, x):
        return torch.softmax(x, 1).to(torch.int32)


def test_classes_that_move_and_come_back_are_cut(images):
    there = model_of(Moved(lambda x: x.permute(0, 2, 1), lambda x: x.transpose(1, 2)))
    _, findings = with_logits(there)
    assert findings == (
        "the network ends in a softmax; what goes into it was taken for the logits",
    )


@pytest.mark.parametrize(
    "tail",
    [
        Moved(lambda x: x.permute(0, 2, 1)),
        Moved(lambda x: x.transpose(1, 2), torch.log),
        Moved(lambda x: x.permute(0, 2, 1), lambda x: x.reshape(1, 2, 3)),
        Whole(),
        torch.nn.Identity(),
        torch.nn.Sequential(torch.nn.Softmax(1), torch.nn.ReLU()),
        torch.nn.Sequential(torch.nn.Sigmoid(), torch.nn.ReLU()),
        torch.nn.Sequential(torch.nn.Softmax(1), torch.nn.Linear(CLASSES, CLASSES)),
        Halves(),
        Then(lambda p: p * -1),
        Then(lambda p: p * 0),
        Then(lambda p: 1 - p),
        Then(lambda p: 2 / p),
        Then(lambda p: p + 1e6),  # all equal in float32, and the first class wins
        Then(lambda p: p * 1e-6 + 1),
        Then(lambda p: p * 1e-30 * 1e-30),
        Then(lambda p: torch.log(p - 0.5)),
        Then(lambda p: p * torch.arange(1.0, CLASSES + 1)),
        Then(lambda p: p + torch.arange(1.0, CLASSES + 1)),
        Then(lambda p: p * p),
        Then(lambda p: p + 1, torch.nn.Sigmoid()),  # those next to 1 become equal
        Then(lambda p: p * 1.5, torch.nn.Sigmoid()),
    ],
)
def test_anything_else_stays_as_it_is(tail):
    model = model_of(tail)
    same, findings = with_logits(model)
    assert same is model and findings == ()
