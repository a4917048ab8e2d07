"""Networks as onnxruntime's quantiser writes them: numbers, gradients, images side by side."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from converters.errors import ConversionError, TooLargeError
from converters.findings import BARE_RANGE, SUSPICION, doubts
from converters.graph.guard import WorkLimits
from converters.graph.onnx import load_onnx
from converters.graph.onnx.limits import OnnxLimits
from converters.graph.onnx.ranges import is_quantised, only_ranges_differ
from converters.graph.onnx.torch_module import to_torch
from converters.graph.straight_through import passing_gradients
from converters.input_form import InputForm
from tests.onnx.quantised_networks import network

QUANTISED = ["dynamic", "ranges", "qdq"]
SEEN = InputForm(bounds=(0, 1))
# Hardly more than one image takes, in the dearer of both forms.
TIGHT = OnnxLimits(work=WorkLimits(value_bytes=50_000))


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


@pytest.mark.parametrize("form", QUANTISED)
def test_answers_are_the_files_and_gradients_the_floating_networks(save, form):
    images, model = _images(), network(form)
    loaded = load_onnx(save(model), SEEN)
    searched, found = passing_gradients(loaded)
    np.testing.assert_allclose(searched(images), _one_by_one(model, images), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(searched(images), loaded(images))
    assert "straight through" in found[0]
    smooth = _gradients(load_onnx(save(network("float", centred=form == "ranges")), SEEN), images)
    made = _gradients(searched, images)
    assert _cosine(made, smooth) > 0.95
    ends = (images == 0) | (images == 1)
    assert ends.mean() > 0.3
    assert _cosine(made[ends], smooth[ends]) > 0.95, "black and white pixels are searched too"


def test_ranges_without_black_run_over_as_in_onnxruntime_and_a_finding_says_so(save):
    """Its zero point is negative then, and 8 bits hold another number."""
    images, model = _images() * 0.8 + 0.1, network("ranges", batch=1, centred=False)
    loaded = load_onnx(save(model), SEEN)
    with np.errstate(invalid="ignore"):
        expected = _one_by_one(model, images)
    np.testing.assert_allclose(loaded(images), expected, rtol=1e-4, atol=1e-4)
    assert BARE_RANGE in doubts(loaded.findings)
    assert BARE_RANGE not in load_onnx(save(network("dynamic", batch=1)), SEEN).findings


@pytest.mark.parametrize("form", ["dynamic", "ranges"])
def test_a_network_that_quantises_by_the_range_of_a_batch_is_scanned_alone(save, form):
    findings = " ".join(load_onnx(save(network(form)), SEEN).findings)
    assert "by the range of all images" in findings and "of the largest logit" in findings
    for other in (network(form, batch=1), network("qdq")):
        assert "the range of all images" not in " ".join(load_onnx(save(other), SEEN).findings)


def _mean_of_images(form):
    """Axes are an attribute in older opsets."""
    if form == "ranges":
        return helper.make_node("ReduceMean", ["logits"], ["mean"], axes=[0])
    return helper.make_node("ReduceMean", ["logits", "images"], ["mean"])


@pytest.mark.parametrize("form", QUANTISED)
@pytest.mark.parametrize("share", [1.0, 0.02])
@pytest.mark.parametrize("limits", [OnnxLimits(), TIGHT], ids=["usual caps", "tight caps"])
def test_quantising_hides_no_mixing_of_images(save, form, share, limits):
    model = network(form)
    model.graph.node.extend(
        [
            _mean_of_images(form),
            helper.make_node("Mul", ["mean", "share"], ["part"]),
            helper.make_node("Add", ["logits", "part"], ["mixed"]),
        ]
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array(share, np.float32), "share"))
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "images"))
    model.graph.output[0].name = "mixed"
    with pytest.raises(ConversionError, match="answers otherwise for an image beside another"):
        load_onnx(save(model), SEEN, limits=limits)


@pytest.mark.parametrize("form", ["dynamic", "qdq"])
def test_images_are_compared_where_one_image_is_as_large_as_may_be(save, form):
    """One cap over all runs together refused such networks, or said that they run for one only."""
    said = " ".join(load_onnx(save(network(form)), SEEN, limits=TIGHT).findings)
    assert "leaves the number of images open" not in said
    assert ("by the range of all images" in said) == (form == "dynamic")
    less = OnnxLimits(work=WorkLimits(value_bytes=40_000))
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


@pytest.mark.parametrize("shortcut", [False, True])
@pytest.mark.parametrize("form", QUANTISED)
def test_a_quantised_network_is_no_suspect(save, form, shortcut):
    """The scale is taken back behind a layer, and goes past none; a block in the middle adds
    nothing to the logits, though the scale of what it gives is taken back behind the last layer."""
    model = network(form, shortcut=shortcut)
    assert SUSPICION not in " ".join(load_onnx(save(model), SEEN).findings)


@pytest.mark.parametrize("shortcut", [False, True])
@pytest.mark.parametrize("form", ["float", *QUANTISED])
def test_quantising_hides_no_path_of_its_own_to_a_logit(save, form, shortcut):
    model = network(form, shortcut=shortcut, spot=True)
    (found,) = [f for f in load_onnx(save(model), SEEN).findings if SUSPICION in f]
    assert "Add node 'logits'" in found and "path of its own to the logits" in found


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


def _of_squares(model, op):
    """The other end of the range is that of other values."""
    model.graph.node.insert(1, helper.make_node("Mul", ["image", "centred"], ["squares"]))
    (end,) = [node for node in model.graph.node if node.output[0] == "conv1.x." + op]
    end.input[0] = "squares"


def _read_again(model, part):
    """What lies between the nodes is read by another, and lifts the logits."""
    model.graph.node.append(helper.make_node("Add", ["logits", "conv1.x." + part], ["lifted"]))
    model.graph.output[0].name = "lifted"


def _other_number(model, name):
    """Another number of levels, or another zero."""
    model.graph.initializer.append(numpy_helper.from_array(np.array(3, np.float32), "three"))
    for node in model.graph.node:
        node.input[:] = ["three" if x == name else x for x in node.input]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        *((_of_squares, end) for end in ("low", "high")),
        *((_read_again, part) for part in ("low", "high", "spread", "below", "place")),
        *((_other_number, name) for name in ("levels", "none")),
    ],
)
def test_ranges_before_opset_11_are_known_by_every_node(save, change, what):
    for batch in (1, "batch"):
        model = network("ranges", batch)
        change(model, what)
        try:
            said = load_onnx(save(model), SEEN).findings
        except ConversionError as error:
            said = [SUSPICION] if "answers otherwise for an image" in str(error) else []
        assert SUSPICION in " ".join(said)
