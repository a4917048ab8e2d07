"""Networks as onnxruntime's quantiser writes them: numbers, gradients, images side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from onnx import helper
from onnx.reference import ReferenceEvaluator

from converters.errors import ConversionError, TooLargeError
from converters.findings import SUSPICION
from converters.graph.guard import WorkLimits
from converters.graph.onnx import load_onnx
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.ranges import is_quantised, only_ranges_differ
from converters.graph.onnx.torch_module import to_torch
from converters.graph.straight_through import passing_gradients
from converters.input_form import InputForm
from tests.onnx.quantised_networks import network

SEEN = InputForm(bounds=(0, 1))
# Hardly more than one image takes, in the dearer of both forms.
TIGHT = OnnxLimits(work=WorkLimits(value_bytes=8000))


def _images() -> np.ndarray:
    """Pictures with much black and white in them, where 8 bits end."""
    draw = np.random.default_rng(5).normal(0.5, 0.6, size=(4, 8, 8, 3))
    return np.clip(draw, 0, 1).astype(np.float32)


def _one_by_one(model, images) -> np.ndarray:
    evaluator = ReferenceEvaluator(model)
    feeds = images.transpose(0, 3, 1, 2)[:, None]
    answers = []
    for feed in feeds:
        (logits,) = evaluator.run(None, {"image": feed})
        answers.append(np.asarray(logits))
    return np.concatenate(answers)


def _gradients(model, images) -> np.ndarray:
    return np.asarray(jax.grad(lambda x: model(x)[:, 1].sum())(jnp.asarray(images)))


def _cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.vdot(one, other) / np.linalg.norm(one) / np.linalg.norm(other))


@pytest.mark.parametrize("form", ["dynamic", "qdq"])
def test_answers_are_the_files_and_gradients_the_floating_networks(save, form):
    images, model = _images(), network(form)
    loaded = load_onnx(save(model), SEEN)
    searched, found = passing_gradients(loaded)
    np.testing.assert_allclose(searched(images), _one_by_one(model, images), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(searched(images), loaded(images))
    assert "straight through" in found[0]
    smooth = _gradients(load_onnx(save(network("float")), SEEN), images)
    made = _gradients(searched, images)
    assert _cosine(made, smooth) > 0.95
    ends = (images == 0) | (images == 1)
    assert ends.mean() > 0.3
    assert _cosine(made[ends], smooth[ends]) > 0.95, "black and white pixels are searched too"


def test_a_network_that_quantises_by_the_range_of_a_batch_is_scanned_alone(save):
    findings = " ".join(load_onnx(save(network("dynamic")), SEEN).findings)
    assert "by the range of all images" in findings and "of the largest logit" in findings
    for other in (network("dynamic", batch=1), network("qdq")):
        assert "the range of all images" not in " ".join(load_onnx(save(other), SEEN).findings)


@pytest.mark.parametrize("form", ["dynamic", "qdq"])
@pytest.mark.parametrize("share", [1.0, 0.02])
@pytest.mark.parametrize("limits", [OnnxLimits(), TIGHT], ids=["usual caps", "tight caps"])
def test_quantising_hides_no_mixing_of_images(save, form, share, limits):
    model = network(form)
    model.graph.node.extend(
        [
            helper.make_node("Constant", [], ["images"], value_ints=[0]),
            helper.make_node("ReduceMean", ["logits", "images"], ["mean"]),
            helper.make_node("Constant", [], ["share"], value_float=share),
            helper.make_node("Mul", ["mean", "share"], ["part"]),
            helper.make_node("Add", ["logits", "part"], ["mixed"]),
        ]
    )
    model.graph.output[0].name = "mixed"
    with pytest.raises(ConversionError, match="answers otherwise for an image beside another"):
        load_onnx(save(model), SEEN, limits=limits)


@pytest.mark.parametrize("form", ["dynamic", "qdq"])
def test_images_are_compared_where_one_image_is_as_large_as_may_be(save, form):
    """One cap over all runs together refused such networks, or said that they run for one only."""
    said = " ".join(load_onnx(save(network(form)), SEEN, limits=TIGHT).findings)
    assert "leaves the number of images open" not in said
    assert ("by the range of all images" in said) == (form == "dynamic")
    less = OnnxLimits(work=WorkLimits(value_bytes=6000))
    if form == "dynamic":
        with pytest.raises(TooLargeError, match="one pass"):
            load_onnx(save(network(form)), SEEN, limits=less)


def _rounding(make, moved: float, images: int):
    """A network whose sums lie halfway between whole numbers, moved a little."""
    nodes = [
        helper.make_node("Flatten", ["image"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Add", ["b", "half"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "one", "zero"], ["d"]),
        helper.make_node("DequantizeLinear", ["d", "one", "zero"], ["logits"]),
    ]
    weights = {
        "w": np.arange(12, dtype=np.float32).reshape(4, 3),
        "half": np.array([0.5 + moved, 20.5 + moved, 9], np.float32),
        "one": np.float32(1),
        "zero": np.uint8(0),
    }
    model = make(nodes, {"image": ["n", 1, 2, 2]}, ["logits"], weights)
    return to_torch(model, {"image": (images, 1, 2, 2)})


def test_sums_that_round_otherwise_for_several_images_are_no_mixing(make):
    images = torch.arange(24, dtype=torch.float32).reshape(2, 3, 1, 2, 2).remainder(2)
    whole, single = _rounding(make, 1e-4, 3), _rounding(make, 0.0, 1)
    together, alone = whole(images[0]), torch.cat([single(x[None]) for x in images[0]])
    assert is_quantised(whole) and not torch.equal(together, alone)
    assert only_ranges_differ(whole, single, *images)
    assert not only_ranges_differ(_rounding(make, 20.0, 3), single, *images)


def test_taking_back_the_scale_of_the_pixels_is_no_way_past_the_layers(save):
    assert SUSPICION not in " ".join(load_onnx(save(network("dynamic")), SEEN).findings)


def _scale_of_squares(nodes):
    """The answers of the first layer, times the scale of other values than it takes."""
    nodes.append(helper.make_node("Mul", ["image", "image"], ["squares"]))
    nodes.append(helper.make_node("DynamicQuantizeLinear", ["squares"], ["q2", "other", "z2"]))
    return {"conv1.by": "other"}


def _zero_of_squares(nodes):
    """A zero point that is not that of the pixels."""
    nodes.append(helper.make_node("Neg", ["image"], ["negative"]))
    nodes.append(helper.make_node("DynamicQuantizeLinear", ["negative"], ["q2", "s2", "other"]))
    return {"conv1.around": "other"}


def _no_zero(_):
    """No zero point: the answers hold that of the pixels, which is a sign of their range."""
    return {"conv1.around": ""}


def _twice(nodes):
    """The scale twice."""
    nodes.append(helper.make_node("Mul", ["conv1.by", "conv1.by"], ["square"]))
    return {"conv1.by": "square"}


def _raised(nodes):
    """The scale, and a little of one pixel."""
    axes = helper.make_node("ReduceMax", ["image"], ["brightest"], keepdims=0)
    nodes.extend([axes, helper.make_node("Add", ["conv1.by", "brightest"], ["more"])])
    return {"conv1.by": "more"}


@pytest.mark.parametrize("change", [_scale_of_squares, _zero_of_squares, _no_zero, _twice, _raised])
def test_another_scale_or_zero_point_is_told(save, change):
    model, added = network("dynamic", batch=1), []
    renamed = change(added)
    nodes = list(model.graph.node)
    for node in nodes:
        if node.output[0] in ("conv1.both", "conv1.whole"):
            node.input[:] = [renamed.get(name, name) for name in node.input]
    del model.graph.node[:]
    model.graph.node.extend([*nodes[:1], *added, *nodes[1:]])
    assert SUSPICION in " ".join(load_onnx(save(model), SEEN).findings)
