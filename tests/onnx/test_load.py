"""From an ONNX file to a Model: numbers, layouts, findings."""

import jax
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from converters.errors import ConversionError
from converters.findings import doubts
from converters.graph.guard import WorkLimits
from converters.graph.logits import with_logits
from converters.graph.onnx import load_onnx
from converters.graph.onnx.limits import OnnxLimits
from converters.input_form import InputForm


def _reference(model, feed) -> np.ndarray:
    (answer,) = ReferenceEvaluator(model).run(None, feed)
    return np.asarray(answer)


def _images(n=3):
    return np.random.default_rng(5).uniform(size=(n, 8, 8, 3)).astype(np.float32)


def test_logits_are_those_of_the_file(make, save):
    model, images = make.classifier(), _images()
    loaded = load_onnx(save(model), InputForm(bounds=(0, 1)))
    expected = _reference(model, {"image": images.transpose(0, 3, 1, 2)})
    np.testing.assert_allclose(loaded(images), expected, rtol=1e-4, atol=1e-5)
    assert (loaded.num_classes, loaded.channels) == (5, 3)
    assert loaded.findings == (
        f"{loaded.architecture} has conv x1, batch norm x1, linear x1, max pool x1",
        "none of the 7 operators depends on a comparison of its input",
    )
    gradient = jax.grad(lambda x: loaded(x)[:, 1].sum())(images)
    assert np.isfinite(gradient).all() and np.abs(gradient).max() > 0


def test_pixels_are_prepared_as_asked(make, save):
    model, images = make.classifier(), _images()
    loaded = load_onnx(
        save(model), InputForm(bounds=(0, 255), mean=(100, 110, 120), std=(50, 60, 70))
    )
    pixels = (images * 255 - [100, 110, 120]) / [50, 60, 70]
    feed = {"image": pixels.transpose(0, 3, 1, 2).astype(np.float32)}
    expected = _reference(model, feed)
    np.testing.assert_allclose(loaded(images), expected, rtol=1e-3, atol=1e-4)


def test_channels_last_and_probabilities_are_noticed(make, save):
    nodes = [
        helper.make_node("Transpose", ["image"], ["a"], perm=[0, 3, 1, 2]),
        helper.make_node("GlobalAveragePool", ["a"], ["b"]),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "w"], ["d"]),
        helper.make_node("Softmax", ["d"], ["scores"]),
    ]
    weights = {"w": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)}
    model = make(nodes, {"image": [None, 8, 8, 3]}, ["scores", "d"], weights)
    loaded = load_onnx(save(model))
    assert any("how pixels are prepared" in finding for finding in loaded.findings)
    assert any("probabilities" in finding for finding in loaded.findings)
    assert any("'d'" in finding for finding in loaded.findings)
    np.testing.assert_allclose(np.asarray(loaded(_images())).sum(1), 1, rtol=1e-5)
    logits = load_onnx(save(model), InputForm(output="d", bounds=(0, 1)))
    assert not any("assumed" in f or "probabilities" in f for f in logits.findings)
    expected = _images().mean((1, 2)) @ weights["w"]
    np.testing.assert_allclose(logits(_images()), expected, rtol=1e-4, atol=1e-5)


def _with_label(make):
    model = make.classifier()
    model.graph.node.append(helper.make_node("ArgMax", ["logits"], ["label"], axis=1))
    model.graph.output.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, None))
    return model


def test_the_class_beside_the_logits_is_not_taken_for_them(make, save):
    model = _with_label(make)
    loaded = load_onnx(save(model), InputForm(bounds=(0, 1)))
    assert "output 'logits' was taken for the logits; others: 'label'" in loaded.findings
    expected = load_onnx(save(make.classifier()), InputForm(bounds=(0, 1)))(_images())
    np.testing.assert_array_equal(loaded(_images()), expected)


def test_a_first_output_of_whole_numbers_is_refused_unless_one_has_logits(make, save):
    model = _with_label(make)
    for name in ("more", "other"):
        more = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        model.graph.node.append(helper.make_node("Relu", ["logits"], [name]))
        model.graph.output.append(more)
    loaded = load_onnx(save(model), InputForm(bounds=(0, 1)))
    said = "output 'logits' was taken for the logits; others: 'label', 'more', 'other'"
    assert said in loaded.findings
    del model.graph.output[1]
    with pytest.raises(ConversionError, match="--output, of 'label', 'more', 'other'"):
        load_onnx(save(model), InputForm(bounds=(0, 1)))
    assert load_onnx(save(model), InputForm(output="more", bounds=(0, 1))).num_classes == 5
    del model.graph.output[1:]
    with pytest.raises(ConversionError, match="--output, of 'label'"):
        load_onnx(save(model), InputForm(bounds=(0, 1)))


def test_a_softmax_that_is_cut_off_is_told_once(make, save):
    model = make.classifier()
    model.graph.node.append(helper.make_node("Softmax", ["logits"], ["scores"], axis=-1))
    model.graph.output[0].name = "scores"
    loaded = load_onnx(save(model))
    assert any("not logits" in finding for finding in loaded.findings)
    cut, said = with_logits(loaded)
    assert said == ("the network ends in a softmax; what goes into it was taken for the logits",)
    assert not any("not logits" in finding for finding in cut.findings)


_AFTER_SOFTMAX = {
    "nothing": ([], True),
    "its name": ([("Identity", ["scores"])], True),
    "a shape": ([("Flatten", ["scores"]), ("Identity", ["out0"])], True),
    "8 bits": ([("QuantizeLinear", ["scores", "s"]), ("DequantizeLinear", ["out0", "s"])], True),
    "a layer": ([("MatMul", ["scores", "turn"])], False),
}


@pytest.mark.parametrize("name", _AFTER_SOFTMAX)
def test_probabilities_are_noticed_behind_what_keeps_them(make, save, name):
    (after, expected), model = _AFTER_SOFTMAX[name], make.classifier()
    model.graph.node.append(helper.make_node("Softmax", ["logits"], ["scores"], axis=-1))
    for number, (kind, given) in enumerate(after):
        model.graph.node.append(helper.make_node(kind, given, [f"out{number}"]))
    model.graph.output[0].name = f"out{len(after) - 1}" if after else "scores"
    for key, value in (("s", np.array(1 / 255)), ("turn", np.eye(5))):
        array = numpy_helper.from_array(value.astype(np.float32), key)
        model.graph.initializer.append(array)
    findings = load_onnx(save(model)).findings
    assert any("holds probabilities, not logits" in said for said in findings) == expected


def test_nodes_out_of_order_are_a_finding(make, save):
    model = make.classifier()
    expected = load_onnx(save(model))
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    loaded, images = load_onnx(save(model)), _images()
    np.testing.assert_allclose(loaded(images), expected(images), rtol=1e-5, atol=1e-6)
    assert "out of order" in loaded.findings[0] and "out of order" not in expected.findings[0]


def test_half_precision_weights(make, save):
    nodes = [
        helper.make_node("Cast", ["image"], ["a"], to=TensorProto.BFLOAT16),
        helper.make_node("Conv", ["a", "w"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Cast", ["d"], ["logits"], to=TensorProto.FLOAT),
    ]
    model = make(nodes, {"image": [1, 3, 8, 8]}, ["logits"], opset=22)
    kernel = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    bits = (kernel.view(np.uint32) >> 16).astype(np.uint16)
    model.graph.initializer.append(
        helper.make_tensor("w", TensorProto.BFLOAT16, kernel.shape, bits.tobytes(), raw=True)
    )
    loaded = load_onnx(save(model))
    assert any("computes in bfloat16; it is scanned in float32" in f for f in loaded.findings)
    exact = (bits.astype(np.uint32) << 16).view(np.float32).reshape(kernel.shape)
    images = _images(1)
    windows = np.lib.stride_tricks.sliding_window_view(images[0], (3, 3), (0, 1))
    expected = np.einsum("hwcij,ocij->o", windows, exact) / 36
    np.testing.assert_allclose(np.asarray(loaded(images))[0], expected, rtol=0.05, atol=0.05)


def _typed(model, kind, dtype, batch):
    """The same network with an input, weights and an output of another floating type."""
    image, logits = model.graph.input[0].type.tensor_type, model.graph.output[0].type.tensor_type
    image.elem_type = logits.elem_type = kind
    if batch:
        image.shape.dim[0].dim_value = batch
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(array.astype(dtype), tensor.name))
    return model


@pytest.mark.parametrize("batch", [None, 1, 4], ids=["open", "one", "four"])
@pytest.mark.parametrize(
    ("kind", "dtype", "rtol"),
    [(TensorProto.FLOAT16, np.float16, 5e-3), (TensorProto.DOUBLE, np.float64, 1e-4)],
    ids=["half", "double"],
)
def test_inputs_of_other_floating_types(make, save, kind, dtype, rtol, batch):
    images = _images(4)
    expected = _reference(make.classifier(), {"image": images.transpose(0, 3, 1, 2)})
    loaded = load_onnx(save(_typed(make.classifier(), kind, dtype, batch)))
    # Weights are rounded to the type of the file; the sums are those of float32.
    np.testing.assert_allclose(loaded(images), expected, rtol=rtol, atol=rtol)
    said = any("computes in float16; it is scanned in float32" in f for f in loaded.findings)
    assert said == (dtype == np.float16)


def _fixed_batch(make, batch):
    """A network whose reshapes name its batch."""
    nodes = [
        helper.make_node("Reshape", ["image", "shape"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["logits"]),
    ]
    weights = {
        "shape": np.array([batch, -1]),
        "w": np.random.default_rng(0).normal(size=(192, 5)).astype(np.float32),
    }
    return make(nodes, {"image": [batch, 3, 8, 8]}, ["logits"], weights)


def test_a_network_for_batches_serves_single_images(make, save):
    model, images = _fixed_batch(make, 4), _images(4)
    expected = _reference(model, {"image": images.transpose(0, 3, 1, 2)})
    np.testing.assert_allclose(load_onnx(save(model))(images), expected, rtol=1e-4, atol=1e-4)


def test_a_network_that_mixes_its_batch_is_refused(make, save):
    model = _fixed_batch(make, 4)
    model.graph.node.append(helper.make_node("ReduceMean", ["logits"], ["m"], axes=[0]))
    model.graph.node.append(helper.make_node("Add", ["logits", "m"], ["mixed"]))
    model.graph.output[0].name = "mixed"
    with pytest.raises(ConversionError, match="batches of 4 images"):
        load_onnx(save(model))


def _mixed(model, by):
    """Logits moved by what `by` makes of them over the batch."""
    model.graph.node.append(by)
    model.graph.node.append(helper.make_node("Add", ["logits", "m"], ["mixed"]))
    model.graph.output[0].name = "mixed"
    return model


def test_a_network_that_answers_otherwise_beside_another_image_is_refused(make, save):
    mean = helper.make_node("ReduceMean", ["logits"], ["m"], axes=[0])
    spread = helper.make_node("ReduceSum", ["shape"], ["sum"])
    for model in (
        _mixed(make.classifier(), mean),
        # 1 x 4 x 4 x 4 values are 13 in all, 2 x 4 x 4 x 4 are 14.
        _mixed(make.classifier(), helper.make_node("Cast", ["sum"], ["m"], to=1)),
    ):
        if model.graph.node[-2].input[0] == "sum":
            model.graph.node.insert(len(model.graph.node) - 2, spread)
        with pytest.raises(ConversionError, match="answers otherwise for an image beside another"):
            load_onnx(save(model))


def test_a_network_that_runs_for_one_image_only_says_so(make, save):
    model = make.classifier()
    model.graph.node[6].input[0] = "one"
    model.graph.initializer.append(numpy_helper.from_array(np.array([1]), "one"))
    assert "the network runs for one only" in " ".join(load_onnx(save(model)).findings)
    assert "for one only" not in " ".join(load_onnx(save(make.classifier())).findings)


def test_a_network_too_dear_for_several_images_says_that_they_were_not_compared(make, save):
    one_image = OnnxLimits(work=WorkLimits(multiply_adds=10_000))
    found = load_onnx(save(make.classifier()), limits=one_image).findings
    (said,) = [text for text in doubts(found) if "number of images open" in text]
    assert "was not compared" in said and "more multiplications than the 10000" in said


REFUSED = {
    "two inputs": ({"x": [1, 3, 8, 8], "y": [1, 3, 8, 8]}, "2 inputs"),
    "no picture": ({"x": [1, 3]}, "2 dimensions"),
    "open channels": ({"x": [1, None, 8, 8]}, "channels"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_classifier_of_images(make, save, case):
    inputs, words = REFUSED[case]
    node = helper.make_node("Relu", ["x"], ["z"])
    with pytest.raises(ConversionError, match=words):
        load_onnx(save(make([node], inputs, ["z"])))


@pytest.mark.parametrize(("shape", "said"), [([1, 2048], "2 dimensions"), ([1, 3, 8, 8], "bytes")])
def test_whole_numbers_are_no_pictures_of_bytes_unless_they_are_pictures(make, save, shape, said):
    nodes = [helper.make_node("Cast", ["x"], ["z"], to=TensorProto.FLOAT)]
    model = make(nodes, {"x": shape}, ["z"])
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT32
    with pytest.raises(ConversionError, match=said):
        load_onnx(save(model))


READ_TOO = {
    "a padding of 0 that is written out": [
        helper.make_node("Pad", ["a", "edges", "nought"], ["b"]),
    ],
    "the last of the largest": [
        helper.make_node("ArgMax", ["a"], ["places"], axis=1, select_last_index=1),
        helper.make_node("Cast", ["places"], ["b"], to=1),
    ],
    "whole powers below 0": [
        helper.make_node("Cast", ["a"], ["whole"], to=6),
        helper.make_node("Pow", ["whole", "below"], ["power"]),
        helper.make_node("Cast", ["power"], ["b"], to=1),
    ],
}


@pytest.mark.parametrize("case", READ_TOO)
def test_forms_of_operators_that_files_have_are_read(make, save, case):
    weights = {
        "edges": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        "nought": np.float32(0),
        "below": np.int32(-1),
    }
    nodes = [
        helper.make_node("Ceil", ["image"], ["a"]),
        *READ_TOO[case],
        helper.make_node("GlobalMaxPool", ["b"], ["c"]),
        helper.make_node("Concat", ["c", "c"], ["d"], axis=1),
        helper.make_node("Flatten", ["d"], ["logits"]),
    ]
    model = make(nodes, {"image": [1, 3, 4, 4]}, ["logits"], weights)
    logits = load_onnx(save(model), InputForm(bounds=(0, 1)))(np.ones((1, 4, 4, 3), np.float32))
    assert float(np.max(logits)) == (2.0 if "last" in case else 1.0)
