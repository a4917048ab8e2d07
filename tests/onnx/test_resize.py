"""Resize reads files as onnxruntime and torch do: lengths, places and rounding."""

from typing import Any

import numpy as np
import pytest
import torch
from onnx import helper

from converters import open_model
from converters.errors import ConversionError
from converters.graph.onnx import to_torch
from converters.input_form import InputForm


def _resized(
    make, values, *, opset=17, operator="Resize", roi=(), scales=(), sizes=(), **attributes: Any
):
    """What one axis of whole numbers from 0 becomes."""
    older = opset < 11
    names = ["x", "scales"] if older else ["x", "roi", "scales", "sizes"]
    whole = {
        "roi": np.array([0, 0, *roi[:1], 1, 1, *roi[1:]] if roi else [], np.float32),
        "scales": np.array([1, 1, *scales] if scales else [], np.float32),
        "sizes": np.array([1, 1, *sizes] if sizes else [], np.int64),
    }
    given = {name: whole[name] for name in names[1:] if older or whole[name].size}
    inputs = [name if name == "x" or name in given else "" for name in names]
    node = helper.make_node(operator, inputs, ["y"], **attributes)
    shape = [1, 1, values]
    x = torch.arange(values, dtype=torch.float32).reshape(shape)
    return to_torch(make([node], {"x": shape}, ["y"], given, opset))(x).flatten().numpy()


# Inputs that onnxruntime 1.32.0 takes (CPU, x86), of an axis of whole numbers from 0.
NEAREST = {
    ("asymmetric", "floor", 9, 0.6): [0, 1, 3, 5, 6],
    ("asymmetric", "floor", 10, 0.7): [0, 1, 2, 4, 5, 7, 8],
    ("asymmetric", "round_prefer_ceil", 9, 1.2): [0, 1, 2, 3, 3, 4, 5, 6, 7, 8],
    ("align_corners", "floor", 8, 1.3): [0, 0, 1, 2, 3, 3, 4, 5, 6, 7],
    ("half_pixel", "round_prefer_ceil", 21, 0.3): [1, 5, 8, 11, 15, 18],
    ("half_pixel_symmetric", "floor", 15, 0.6): [0, 1, 3, 5, 6, 8, 10, 11, 13],
    ("half_pixel", "floor", 8, 1.05): list(range(8)),
}


@pytest.mark.parametrize("case", NEAREST, ids=str)
def test_nearest_takes_the_inputs_that_onnxruntime_takes(make, case):
    places, rounding, size, scale = case
    got = _resized(
        make,
        size,
        scales=[scale],
        mode="nearest",
        coordinate_transformation_mode=places,
        nearest_mode=rounding,
    )
    np.testing.assert_array_equal(got, NEAREST[case])


def test_nearest_of_old_opsets_rounds_up_where_it_makes_smaller(make):
    got = _resized(make, 9, opset=10, scales=[0.6], mode="nearest")
    np.testing.assert_array_equal(got, [0, 2, 4, 5, 7])  # onnxruntime 1.32.0
    got = _resized(make, 4, opset=9, operator="Upsample", scales=[1.5], mode="nearest")
    np.testing.assert_array_equal(got, [0, 0, 1, 2, 2, 3])


@pytest.mark.parametrize("mode", ["linear", "cubic", "nearest"])
@pytest.mark.parametrize("length", [{"scales": [0.1]}, {"sizes": [1]}], ids=["scales", "sizes"])
def test_pytorch_half_pixel_to_one_value_is_the_first(make, mode, length):
    places = "pytorch_half_pixel"
    got = _resized(make, 15, mode=mode, coordinate_transformation_mode=places, **length)
    np.testing.assert_array_equal(got, [0])


def test_crops_are_those_of_onnxruntime(make):
    def cropped(scale):
        places = "tf_crop_and_resize"
        given: dict[str, Any] = {"roi": (0.1, 0.9), "scales": [scale], "mode": "linear"}
        return _resized(make, 8, coordinate_transformation_mode=places, **given)

    # onnxruntime 1.32.0: ten places from 0.7 to 6.3; what keeps its size is not cropped.
    np.testing.assert_allclose(cropped(1.3), np.linspace(0.7, 6.3, 10), rtol=1e-5)
    np.testing.assert_array_equal(cropped(1.05), range(8))


@pytest.mark.parametrize("last", [float("nan"), float("inf"), 3e38])
def test_a_crop_without_end_is_refused(make, last):
    given: dict[str, Any] = {"roi": (0.1, last), "scales": [1.5], "mode": "nearest"}
    with pytest.raises(ConversionError, match="a region from"):
        _resized(make, 8, coordinate_transformation_mode="tf_crop_and_resize", **given)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scale", [1.5, 1.3, 0.6])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_torch_networks_that_align_corners_convert(mode, scale, tmp_path):
    torch.manual_seed(0)
    resize = torch.nn.Upsample(scale_factor=scale, mode=mode, align_corners=True)
    network = torch.nn.Sequential(resize, torch.nn.Flatten(), torch.nn.LazyLinear(5)).eval()
    images = np.random.default_rng(0).random((2, 15, 15, 3), np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    path = tmp_path / "up.onnx"
    example = (torch.zeros(1, 3, 15, 15),)
    torch.onnx.export(network, example, path, opset_version=17, dynamo=False)
    got = open_model(path, InputForm(bounds=(0, 1))).model(images)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
