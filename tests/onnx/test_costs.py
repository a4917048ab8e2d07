"""Small files that ask for much: refused, in bounded memory, measured in a process of its own."""

import json
import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

N = helper.make_node
_POOLED = [N("GlobalAveragePool", ["x"], ["p"]), N("Flatten", ["p"], ["f"])]
_CHILD = """
import json, resource, sys
from converters.errors import ConverterError
from converters.opening import open_model
from converters.graph.onnx import load_onnx  # imports, before anything is measured
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
before, used = peak(), int(open("/proc/self/statm").read().split()[0]) * 4096
resource.setrlimit(resource.RLIMIT_AS, (used + 4 * 2**30,) * 2)
try:
    open_model(sys.argv[1])
    said = "read"
except ConverterError as error:
    said = f"{type(error).__name__}: {error}"
seconds = resource.getrusage(resource.RUSAGE_SELF).ru_utime
print(json.dumps({"said": said, "mib": peak() - before, "seconds": seconds}))
"""


def _constants(make):
    """The sum of forty constants of 256 MiB each."""
    one = [numpy_helper.from_array(np.array([k + 1.0], np.float32)) for k in range(40)]
    nodes = [N("ConstantOfShape", ["n"], [f"c{k}"], value=value) for k, value in enumerate(one)]
    sums = [N("Add", [f"s{k - 1}" if k > 1 else "c0", f"c{k}"], [f"s{k}"]) for k in range(1, 40)]
    last = [N("ReduceMean", ["s39"], ["m"], keepdims=0), N("Add", ["f", "m"], ["logits"])]
    weights = {"n": np.array([2**26])}
    return make([*_POOLED, *nodes, *sums, *last], {"x": [1, 3, 8, 8]}, ["logits"], weights)


def _batch(make):
    model = make.classifier()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**20
    return model


def _loop(make):
    """An image of 12 MiB added to itself twenty thousand times."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [N("Add", ["s", "s"], ["t"]), N("Identity", ["was"], ["on"])],
        "body",
        [info("i", TensorProto.INT64, []), info("was", TensorProto.BOOL, []),
         info("s", TensorProto.FLOAT, None)],
        [info("on", TensorProto.BOOL, []), info("t", TensorProto.FLOAT, None)],
    )  # fmt: skip
    nodes = [N("Loop", ["count", "yes", "image"], ["x"], body=body), *_POOLED]
    weights = {"count": np.array(20_000), "yes": np.array(True)}
    return make(nodes, {"image": [1, 3, 1024, 1024]}, ["f"], weights)


def _boxes(make):
    """Ten thousand million pairs of boxes to compare."""
    nodes = [
        *_POOLED,
        N("Expand", ["one", "boxes_shape"], ["boxes"]),
        N("Expand", ["one", "scores_shape"], ["scores"]),
        N("NonMaxSuppression", ["boxes", "scores", "most"], ["kept"]),
        N("Cast", ["kept"], ["numbers"], to=TensorProto.FLOAT),
        N("ReduceSum", ["numbers"], ["sum"], keepdims=0),
        N("Add", ["f", "sum"], ["logits"]),
    ]
    weights = {
        "one": np.ones((1, 1, 1), np.float32),
        "boxes_shape": np.array([1, 20_000, 4]),
        "scores_shape": np.array([1, 50, 20_000]),
        "most": np.array([20_000]),
    }
    return make(nodes, {"x": [1, 3, 8, 8]}, ["logits"], weights)


ASKING = {
    "a sum of constants": _constants,
    "a huge batch": _batch,
    "a long loop": _loop,
    "pairs of boxes": _boxes,
}


@pytest.mark.parametrize("case", ASKING)
def test_small_files_that_ask_for_much(make, tmp_path, case):
    path = tmp_path / "model.onnx"
    path.write_bytes(ASKING[case](make).SerializeToString())
    assert path.stat().st_size < 10_000
    command = [sys.executable, "-W", "ignore", "-c", _CHILD, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["said"].startswith("TooLargeError"), found
    assert found["mib"] < 2700 and found["seconds"] < 60, found  # 2 GiB is the cap


def _resized(sizes=None, scales=None):
    def made(make):
        given = np.array(sizes) if scales is None else np.array(scales, np.float32)
        names = ["x", "", "", "by"] if scales is None else ["x", "", "by"]
        nodes = [N("Resize", names, ["r"], mode="linear"), N("GlobalAveragePool", ["r"], ["p"])]
        nodes.append(N("Flatten", ["p"], ["logits"]))
        return make(nodes, {"x": [1, 3, 8, 8]}, ["logits"], {"by": given})

    return made


def _transformed(length):
    def made(make):
        nodes = [
            N("Unsqueeze", ["x", "last"], ["u"]),
            N("DFT", ["u", "n"], ["d"], axis=2),
            N("ReduceMean", ["d"], ["logits"], axes=[2, 3, 4], keepdims=0),
        ]
        weights = {"n": np.array(length), "last": np.array([-1])}
        return make(nodes, {"x": [1, 3, 8, 8]}, ["logits"], weights)

    return made


def _windowed(size):
    def made(make):
        nodes = [*_POOLED, N("HannWindow", ["n"], ["w"]), N("ReduceMean", ["w"], ["m"])]
        nodes.append(N("Add", ["f", "m"], ["logits"]))
        return make(nodes, {"x": [1, 3, 8, 8]}, ["logits"], {"n": np.array(size)})

    return made


def _sized(height, width):
    def made(make):
        model = make.classifier()
        sizes = model.graph.input[0].type.tensor_type.shape.dim
        sizes[2].dim_value, sizes[3].dim_value = height, width
        return model

    return made


ABSURD = {
    **{f"sizes {n}": _resized([1, 3, n, 8]) for n in (0, -5, 2**31, 2**62)},
    **{
        f"scale {s}": _resized(scales=[1, 1, s, 1])
        for s in (0.0, -1.0, 1e-30, 3e38, float("nan"), float("inf"))
    },
    **{f"DFT of {n}": _transformed(n) for n in (0, -4, 2**16, 2**40, 2**62)},
    **{f"window of {n}": _windowed(n) for n in (-3, 2**40)},
    "an image without end": _sized(2**62, 2**62),
    "a large image": _sized(20_000, 20_000),
}


@pytest.mark.parametrize("case", ABSURD)
def test_absurd_sizes_end_with_an_error_of_ours(make, tmp_path, case):
    from converters.errors import ConverterError
    from converters.opening import open_model

    path = tmp_path / "model.onnx"
    path.write_bytes(ABSURD[case](make).SerializeToString())
    with pytest.raises(ConverterError):
        open_model(path)
