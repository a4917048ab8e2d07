"""Edits of the last layer that change no answer: rows as evidence takes them stay what they are."""

from functools import cache

import numpy as np
import pytest
import torch

from converters.findings import doubts
from converters.graph.last_layer import linear_tail
from converters.graph.module import GraphConfig, graph_model
from converters.graph.tape import capture
from jaxtroj.evidence.images.context import image_context
from jaxtroj.evidence.images.head_rows import (
    compared_head,
    constant_features,
    head_rows,
    without_common,
    without_constant,
    without_scales,
)
from jaxtroj.evidence.images.weights import weight_fields
from jaxtroj.repair.pruning import _last_weight
from jaxtroj.rounds.examples import Examples

SIDE, CLASSES, FEATURES, DEAD = 6, 5, 16, 8
DRAW = np.random.default_rng(150)  # of which no row stands out, as of most trained networks
HEAD = DRAW.normal(size=(CLASSES, FEATURES)).astype(np.float32)
IMAGES = DRAW.random((20, SIDE, SIDE, 3), np.float32)
EXAMPLES = Examples(IMAGES, np.arange(20) % CLASSES, tuple(map(str, range(20))), "RGB")


def linear(weight: np.ndarray, bias: np.ndarray | float = 0.0) -> torch.nn.Linear:
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
    with torch.no_grad():
        layer.weight[:] = torch.from_numpy(np.array(weight, np.float32, order="C"))
        layer.bias[:] = torch.as_tensor(bias, dtype=torch.float32)
    return layer


@cache
def body() -> torch.nn.Module:
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(3, FEATURES, 3)
    return torch.nn.Sequential(conv, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())


def context_of(*tail: torch.nn.Module):
    network = torch.nn.Sequential(body(), *tail).eval()
    model = graph_model(capture(network, [torch.zeros(1, 3, SIDE, SIDE)]))
    return image_context(model, EXAMPLES)


def wide(columns: np.ndarray) -> tuple[torch.nn.Module, ...]:
    """Features that are always 0 beside the others, with columns in the last layer."""
    mixing = np.concatenate([np.eye(FEATURES), np.zeros((DEAD, FEATURES))])
    bias = np.concatenate([np.full(FEATURES, 9.0), np.full(DEAD, -1.0)])
    return linear(mixing, bias), torch.nn.ReLU(), linear(np.concatenate([HEAD, columns], 1))


FRAME = np.zeros((CLASSES, DEAD))
FRAME[3] = 12.0
MIXED = DRAW.normal(size=(FEATURES, FEATURES)).astype(np.float32)
EYE = np.eye(CLASSES, dtype=np.float32)
SOLVED = HEAD @ np.linalg.inv(MIXED)


class Turned(torch.nn.Module):
    """A product by a weight whose columns are the classes, and a bias of its own."""

    def __init__(self, weight: np.ndarray):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.from_numpy(np.ascontiguousarray(weight)))

    def forward(self, x):
        return x @ self.weight + 1.0


@pytest.mark.parametrize(
    "tail",
    [
        (linear(HEAD), linear(np.eye(CLASSES))),
        (linear(HEAD), torch.nn.Dropout(), torch.nn.Identity(), linear(np.eye(CLASSES), 2.0)),
        (linear(MIXED), linear(SOLVED)),
        (linear(HEAD), torch.nn.Unflatten(1, (1, -1)), torch.nn.Flatten(), Turned(EYE)),
        (linear(np.eye(FEATURES)[::-1].copy()), linear(HEAD[:, ::-1]), linear(np.eye(CLASSES)),
         torch.nn.Softmax(1)),
    ],
)  # fmt: skip
def test_linear_layers_that_follow_each_other_are_one(tail):
    found = context_of(*tail).shared(head_rows)
    assert found.rows is not None
    np.testing.assert_allclose(found.rows, HEAD, rtol=1e-3, atol=1e-4)
    count = sum(isinstance(part, torch.nn.Linear | Turned) for part in tail)
    assert found.findings[0].startswith(f"the network ends in {count} linear layers with nothing")


@pytest.mark.parametrize(
    "tail",
    [
        (linear(MIXED), torch.nn.ReLU(), linear(HEAD)),
        (linear(MIXED), torch.nn.LayerNorm(FEATURES), linear(HEAD)),
        (Turned(HEAD.T),),
    ],
)
def test_layers_with_something_between_them_are_not(tail):
    context = context_of(*tail)
    network = context.model.config.core
    assert isinstance(network, GraphConfig) and len(linear_tail(network.graph)) == 1
    assert context.shared(head_rows).findings == ()
    np.testing.assert_array_equal(context.shared(head_rows).rows, HEAD)


def test_the_weight_that_reads_the_features_is_pruned():
    model = context_of(linear(MIXED), linear(SOLVED)).model
    assert _last_weight(model) == ("1.weight", 1)


@pytest.mark.parametrize("columns", [FRAME, np.full((CLASSES, DEAD), 60.0)])
def test_columns_of_features_that_never_vary_are_left_out(columns):
    edited = context_of(*wide(columns))
    pictures = torch.from_numpy(IMAGES).permute(0, 3, 1, 2)
    plain = torch.nn.Sequential(body(), *wide(0 * columns))(pictures).detach().numpy()
    np.testing.assert_allclose(edited.model(IMAGES), plain, rtol=1e-4, atol=1e-4)
    rows, _ = compared_head(edited)
    np.testing.assert_array_equal(rows, HEAD)
    (found,) = edited.shared(head_rows).findings
    assert f"of {DEAD} features that are the same on every example" in found
    raw = weight_fields({}, edited.model.last_layer())
    assert raw["head_lead"] > 0.3 or raw["head_norm_outlier"] != pytest.approx(
        weight_fields({}, HEAD)["head_norm_outlier"], rel=0.1
    )


def test_dead_features_as_trained_networks_have_them_stay():
    """What waits for a trigger is dead on clean pictures, and its column says for which class."""
    columns = 1.5 * DRAW.normal(size=(CLASSES, DEAD)).astype(np.float32)
    context = context_of(*wide(columns))
    dead = constant_features(context.model, IMAGES)
    assert dead.tolist() == [False] * FEATURES + [True] * DEAD
    rows = context.model.last_layer()
    assert rows is not None and without_constant(rows, dead)[0] is rows
    one = np.zeros((CLASSES, 1))
    one[2] = np.sqrt(6 * np.square(HEAD).sum() / FEATURES)
    few = np.concatenate([HEAD, one], 1)
    assert without_constant(few, np.arange(FEATURES + 1) == FEATURES)[1] == ""
    assert without_constant(rows, np.ones_like(dead)) == (rows, "")


def test_what_all_rows_share_is_left_out_where_it_is_large():
    edited = context_of(linear(HEAD + 60.0))
    found = edited.shared(head_rows)
    assert found.rows is not None
    np.testing.assert_allclose(found.rows, HEAD - HEAD.mean(0), atol=1e-4)
    assert found.findings == (
        "the rows of the last layer have more in common than they differ by, which changes no"
        " answer: it is left out of evidence",
    )
    raw, own = (weight_fields({}, rows) for rows in (edited.model.last_layer(), found.rows))
    assert raw["head_lead"] < 0.01 < own["head_lead"]
    one_output = np.stack([np.zeros(FEATURES), HEAD[0]])
    for rows in (HEAD + 1.0, one_output, np.ones((3, 4))):
        assert without_common(rows) == (rows, "")


def test_an_ordinary_last_layer_is_the_same_to_the_bit_and_asks_for_no_features(monkeypatch):
    import jaxtroj.evidence.images.head_rows as module

    monkeypatch.setattr(module, "constant_features", lambda *_: pytest.fail("asked"))
    even = np.stack([np.roll(HEAD[0], 3 * place) for place in range(CLASSES)])
    found = context_of(linear(even)).shared(head_rows)
    np.testing.assert_array_equal(found.rows, even)
    assert found.findings == doubts(found.findings) == ()


def scaled(row: int, factor: float) -> np.ndarray:
    """Columns larger where a row's weight is positive, as if their features were smaller."""
    return np.where(HEAD[row] > 0, factor, 1 / factor).astype(np.float32)


@pytest.mark.parametrize("row", [0, 2, 4])
def test_weights_that_make_up_for_small_features_make_no_row_stand_out(row):
    columns = scaled(row, 8.0)
    features = torch.nn.Linear(FEATURES, FEATURES, bias=False)
    with torch.no_grad():
        features.weight[:] = torch.diag(torch.from_numpy(1 / columns))
    context = context_of(features, torch.nn.ReLU(), linear(HEAD * columns))
    framed = weight_fields({}, HEAD * columns)
    usual = weight_fields({}, HEAD)
    told = weight_fields({}, compared_head(context)[0])
    assert framed["head_lead"] > usual["head_lead"] + 0.3
    assert told["head_lead"] < (framed["head_lead"] + usual["head_lead"]) / 2


def test_rows_that_stand_out_with_columns_of_any_size_stay():
    trojan = HEAD + 2.0 * (np.arange(CLASSES) == 3)[:, None]
    kept, said = without_scales(trojan.astype(np.float64))
    lead = weight_fields({}, kept)["head_lead"]
    assert lead > 0.5 and not said
    assert without_scales(HEAD.astype(np.float64))[0].tolist() == HEAD.astype(np.float64).tolist()
