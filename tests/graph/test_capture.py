import collections
import functools
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from converters.errors import (
    ConversionError,
    DataDependentError,
    TooLargeError,
    UnsupportedOperatorError,
)
from converters.graph.graph import from_plain
from converters.graph.module import graph_model
from converters.graph.replay import run
from converters.graph.tape import capture
from converters.model import apply, param_shapes


class Function(torch.nn.Module):
    """A module of a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


def _captured(function, *inputs, **options):
    return capture(Function(function).eval(), inputs, **options)


@pytest.fixture(scope="module")
def small():
    """A small convolutional network, captured."""
    torch.manual_seed(0)
    nn = torch.nn
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 5),
    ).eval()
    return module, capture(module, [torch.rand(1, 3, 8, 8)])


def _writes_rows(x):
    y = torch.zeros(2, 3)
    y[0] = x[0] * 2
    y[:, 1] += 1
    return y


def _writes_through_views(x):
    y = x.clone()
    flat, row = y.view(-1), y[1]
    flat[::2].mul_(10)
    row.add_(1)
    return y, flat, row


def _writes_beside_a_dropped_base(x):
    y = x.clone()
    flat, row = y.view(-1), y[1]
    del y
    row.add_(1)
    return flat


def _writes_into_memory_used_again(x):
    for _ in range(8):
        y = x.clone()
        y[0].mul_(3)
        x = y + 1
        del y
    return x


def _reads_before_and_after(x):
    y = x * 1
    before = y + 0
    y.relu_()
    return before, y


WRITES = {
    "rows of zeros": _writes_rows,
    "views of one memory": _writes_through_views,
    "views whose base is gone": _writes_beside_a_dropped_base,
    "memory that is used again": _writes_into_memory_used_again,
    "values before and after": _reads_before_and_after,
    "a transposed view": lambda x: x.clone().t().fill_diagonal_(0.0).t(),
    "strides": lambda x: x.contiguous().as_strided((2, 2), (1, 3)),
    "a resized view": lambda x: (x + 1).unsqueeze_(0).squeeze_(0),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_become_values(name):
    x = torch.tensor([[-1.0, 2.0, -3.0], [4.0, -5.0, 6.0]])
    expected = WRITES[name](x.clone())
    captured = _captured(WRITES[name], x)
    got = run(captured.graph, captured.params, [x.numpy()])
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(got) == len(expected)
    for g, e in zip(got, expected, strict=True):
        np.testing.assert_array_equal(g, e.numpy())


def test_results_are_not_held_longer_than_the_network_holds_them():
    made = []

    def deep(x):
        for _ in range(20):
            x = x.relu() + 1
            made.append(weakref.ref(x))
        assert [one() is None for one in made] == [True] * 19 + [False]
        return x

    assert len(_captured(deep, torch.ones(2, 3)).graph.nodes) == 40


LEAKS = {
    "item": lambda x: x * x.sum().item(),
    "bool": lambda x: x if x.sum() > 0 else -x,
    "numpy": lambda x: x + torch.from_numpy(x.numpy()),
    "tolist": lambda x: x + torch.tensor(x.tolist()),
    "asarray": lambda x: x + torch.from_numpy(np.asarray(x)),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 0],
    "index": lambda x: x[int(x.sum())],
    "equal": lambda x: x if torch.equal(x, x + 1) else -x,
    "unique": lambda x: torch.unique(x),
    "dlpack": lambda x: x + torch.from_dlpack(x),
}


@pytest.mark.parametrize("name", LEAKS)
def test_what_the_input_decides_must_not_leave_the_graph(name):
    with pytest.raises(DataDependentError, match="values of input 1") as caught:
        _captured(lambda _, x: LEAKS[name](x), torch.ones(2), torch.ones(2, 2))
    assert caught.value.inputs == (1,)


def test_static_inputs_are_baked():
    captured = _captured(
        lambda x, shape: x.reshape(shape.tolist()),
        torch.ones(6),
        torch.tensor([2, 3]),
        static_inputs={1},
    )
    (y,) = run(
        captured.graph, captured.params, [np.arange(6.0, dtype=np.float32), np.zeros(2, int)]
    )
    assert y.shape == (2, 3)


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda x: torch.nn.functional.dropout(x), UnsupportedOperatorError, "random"),
        (lambda x: x + torch.rand(2), UnsupportedOperatorError, "random"),
        (lambda x: torch.linalg.qr(x[None])[0], UnsupportedOperatorError, r"linalg_qr.*function"),
        (lambda x: "text", ConversionError, "returned a str"),
        (lambda x: (), ConversionError, "no tensor"),
        (lambda x: torch.fft.fft(x).real, UnsupportedOperatorError, "_fft_r2c"),
    ],
)
def test_refused_modules(function, error, text):
    module = torch.nn.Sequential(collections.OrderedDict(function=Function(function)))
    with pytest.raises(error, match=text):
        capture(module.eval(), [torch.ones(2)])


def test_training_mode_is_refused():
    with pytest.raises(ConversionError, match="training mode"):
        capture(torch.nn.BatchNorm1d(2), [torch.ones(2, 2)])


def test_state_must_not_change():
    module: Any = torch.nn.Module()
    module.register_buffer("seen", torch.zeros(2))
    module.forward = lambda x: module.seen.add_(x)
    with pytest.raises(ConversionError, match="changes its own tensor seen"):
        capture(module.eval(), [torch.ones(2)])


def test_constants_of_one_value_are_no_parameters():
    many = torch.arange(3.0)
    captured = _captured(lambda x: (x + torch.full((3,), 2.5)) * many, torch.ones(3))
    assert "aten.full.default" in captured.graph.operators()
    assert set(captured.params) == {"constants.0"}
    (y,) = run(captured.graph, captured.params, [np.ones(3, np.float32)])
    np.testing.assert_array_equal(y, [0.0, 3.5, 7.0])


@pytest.mark.parametrize(
    "layer",
    [torch.nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), torch.nn.RReLU()],
    ids=["circular padding", "RReLU"],
)
def test_memory_that_was_not_written_is_no_part_of_a_network(layer):
    """torch fills such memory with NaN where it is to be deterministic."""
    torch.use_deterministic_algorithms(True)
    try:
        captured = capture(layer.eval(), [torch.zeros(1, 3, 8, 8)])
    finally:
        torch.use_deterministic_algorithms(False)
    constants = [constant.array() for constant in captured.graph.constants]
    held = [np.asarray(part, np.float64) for part in (*captured.params.values(), *constants)]
    assert all(np.isfinite(part).all() for part in held)


def test_names_of_weights_are_kept(small):
    module, captured = small
    used = {name for name in module.state_dict() if "num_batches" not in name}
    assert set(captured.params) == used and captured.unused == ()
    model = graph_model(captured)
    assert set(param_shapes(model.config)) == set(model.params) == used
    assert (model.num_classes, model.channels) == (5, 3)
    config: Any = model.config
    assert config.input_kind == "image" and config.image_size == (8, 8)


def test_names_that_modules_have_are_escaped():
    module = torch.nn.Module()
    for name in ("perturb", "config", "a"):
        module.register_parameter(name, torch.nn.Parameter(torch.ones(2)))
    module.forward = lambda x: x.mean((2, 3)) @ torch.stack(list(module.parameters()), 1)
    model = graph_model(capture(module.eval(), [torch.rand(1, 2, 3, 3)]))
    assert set(model.params) == {"param.perturb", "param.config", "a"}
    np.testing.assert_allclose(model(np.ones((1, 3, 3, 2), np.float32)), [[2.0, 2.0, 2.0]])


def test_numbers_beyond_32_bits_need_64_bit_arrays():
    wide = torch.tensor([2**40, 1])
    captured = _captured(lambda x: x * wide, torch.ones(2, dtype=torch.int64))
    with pytest.raises(ConversionError, match="holds 1099511627776, which needs 64 bits"):
        run(captured.graph, captured.params, [np.ones(2, np.int32)])
    with jax.enable_x64(True):
        (y,) = run(captured.graph, captured.params, [np.ones(2, np.int64)])
    assert np.asarray(y)[0] == 2**40


def test_networks_that_cannot_be_run_are_refused_with_their_place():
    module = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(3, 4)).eval()
    with pytest.raises(
        ConversionError, match=r"shapes \[\(1, 5\)\]: RuntimeError at 1: .*multiplied"
    ):
        capture(module, [torch.ones(1, 5)])


def test_what_is_not_used_is_named():
    module = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    module.forward = module["a"].forward
    captured = capture(module.eval(), [torch.ones(1, 2)])
    assert captured.unused == ("b.weight", "b.bias")


def test_equal_networks_have_equal_graphs_and_programs(small):
    module, captured = small
    again = capture(module, [torch.rand(1, 3, 8, 8) - 0.5])
    assert again.graph == captured.graph and hash(again.graph) == hash(captured.graph)
    other = capture(module, [torch.rand(1, 3, 9, 9)])
    assert other.graph != captured.graph
    traced = []

    @functools.partial(jax.jit, static_argnums=0)
    def logits(config, params, images):
        traced.append(1)
        return apply(config, params, images)

    images = jnp.zeros((2, 8, 8, 3))
    for model in (graph_model(captured), graph_model(again)):
        logits(model.config, model.params, images)
    assert traced == [1]


def test_graph_survives_json(small):
    import json

    _, captured = small
    plain = json.loads(json.dumps(captured.graph.to_plain(), allow_nan=False))
    graph = from_plain(plain)
    assert graph == captured.graph and graph.nodes[0].source == captured.graph.nodes[0].source


def test_model_is_free_of_batch_and_of_transformations(small):
    module, captured = small
    model = graph_model(captured)
    images = np.random.default_rng(0).random((3, 8, 8, 3)).astype(np.float32)
    with torch.no_grad():
        expected = module(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    np.testing.assert_allclose(model(images), expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(model(images[:1]), expected[:1], rtol=1e-4, atol=1e-6)
    one = functools.partial(apply, model.config, model.params)
    mapped = jax.vmap(one)(jnp.asarray(images)[:, None])[:, 0]
    np.testing.assert_allclose(mapped, expected, rtol=1e-4, atol=1e-6)
    stacked = jax.tree.map(lambda p: jnp.stack([p, 2 * p]), model.params)
    both = jax.vmap(functools.partial(apply, model.config), (0, None))(stacked, jnp.asarray(images))
    np.testing.assert_allclose(both[0], expected, rtol=1e-4, atol=1e-6)


def test_pixels_are_prepared(small):
    module, captured = small
    model = graph_model(captured, bounds=(0, 255), mean=(1.0, 2.0, 3.0), std=(2.0,))
    images = np.random.default_rng(0).random((2, 8, 8, 3)).astype(np.float32)
    prepared = (images * 255 - np.array([1, 2, 3], np.float32)) / 2
    np.testing.assert_allclose(model(images), graph_model(captured)(prepared), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("layout", "shape"), [("NHWC", (1, 4, 6, 3)), ("CHW", (3, 4, 6)), ("NWHC", (1, 6, 4, 3))]
)
def test_layouts(layout, shape):
    axes = [("HWC".index(letter)) for letter in layout if letter != "N"]
    captured = _captured(lambda x: x.reshape(1, -1), torch.rand(shape))
    images = np.random.default_rng(0).random((2, 4, 6, 3)).astype(np.float32)
    got = graph_model(captured, layout=layout)(images)
    for row, image in zip(got, images, strict=True):
        np.testing.assert_array_equal(row, image.transpose(axes).reshape(-1))


def test_flat_and_grey_inputs():
    captured = _captured(lambda x: x * 2, torch.rand(1, 12))
    images = np.random.default_rng(0).random((2, 2, 6, 1)).astype(np.float32)
    got = graph_model(captured, image_shape=(2, 6, 1))(images)
    np.testing.assert_array_equal(got, 2 * images.reshape(2, -1))


@pytest.mark.parametrize(
    ("function", "shape", "options", "text"),
    [
        (lambda x: x, (1, 12), {}, "which is not NCHW"),
        (lambda x: x, (2, 3, 4, 4), {}, "batch of 2"),
        (lambda x: x, (1, 3, 4, 4), {}, "one row of logits.*--output where it has several"),
        (lambda x: torch.ones(1, 5), (1, 3, 4, 4), {}, "every image.*--output where the network"),
        (lambda x: x.mean((2, 3)), (1, 3, 4, 4), {"layout": "NCXY"}, "no order"),
        (lambda x: x.mean((2, 3)), (1, 3, 4, 4), {"mean": (1.0, 2.0)}, "2 values, expected 3"),
        (lambda x: x.mean((2, 3)), (1, 3, 4, 4), {"output": 1}, "output 1 of 1"),
    ],
)
def test_what_is_no_classifier_of_images(function, shape, options, text):
    captured = _captured(function, torch.rand(shape))
    with pytest.raises(ConversionError, match=text):
        graph_model(captured, **options)


def test_too_many_constants_are_told_with_what_to_do(monkeypatch):
    monkeypatch.setattr("converters.graph.recorder._MOST_BAKED_BYTES", 100)
    with pytest.raises(TooLargeError, match="more than 100 bytes.*export the network with them"):
        _captured(
            lambda x: (x + torch.arange(48.0).view(1, 3, 4, 4)).mean((2, 3)), torch.rand(1, 3, 4, 4)
        )


def test_other_image_sizes_are_refused(small):
    model = graph_model(small[1])
    with pytest.raises(ConversionError, match="resize the images"):
        model(np.zeros((1, 9, 8, 3), np.float32))
