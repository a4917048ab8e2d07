"""`jaxtroj detect` on ONNX files and exported programs, end to end."""

import json
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from jaxtroj.cli.main import main

pytestmark = pytest.mark.usefixtures("unguarded")
SIDE, CLASSES = 12, 3


class Colours(torch.nn.Module):
    """Class k where channel k, taken from 255, is the brightest; trained by nobody, but right."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 1, bias=False)
        self.fc = torch.nn.Linear(3, CLASSES, bias=False)
        self.conv.weight.data = torch.eye(3).reshape(3, 3, 1, 1) / 255
        self.fc.weight.data = 20 * torch.eye(3)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`net.onnx` (sizes open, probabilities first), `net.pt2` and `pictures`."""
    root = tmp_path_factory.mktemp("graph")
    _write_onnx(root / "net.onnx")
    program = torch.export.export(Colours().eval(), (torch.zeros(1, 3, SIDE, SIDE),), strict=False)
    torch.export.save(program, root / "net.pt2")
    (root / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for number in range(2 * CLASSES):
        pixels = rng.integers(0, 60, (SIDE, SIDE, 3), np.uint8)
        pixels[3:9, 3:9, number % CLASSES] += 150
        name = f"class_{number % CLASSES}_example_{number // CLASSES}.png"
        Image.fromarray(pixels).save(root / "pictures" / name)
    return root


def _write_onnx(path, *extra, weights=()):
    """The network; its logits go through `extra` nodes if there are any."""
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "fc.weight"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["scores"]),
        *extra,
    ]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", CLASSES])
        for name in ("scores", "logits")
    ]
    state = Colours().state_dict().items()
    held = [numpy_helper.from_array(value.numpy(), name) for name, value in state]
    held += [numpy_helper.from_array(np.asarray(value), name) for name, value in weights]
    outputs += [
        helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, ["n", CLASSES])
        for node in extra[-1:]
    ]
    graph = helper.make_graph(nodes, "net", [image], outputs, held)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())


FORM = ("--bounds", "0,255", "--channel-order", "RGB", "--normalization", "unit")
QUICK = ("--evidence-only", "--stages", "weights,sensitivity", "--json")


def detect(capsys, *arguments):
    status = main(["detect", *map(str, arguments)])
    (line,) = capsys.readouterr().out.splitlines()
    return status, json.loads(line)


@pytest.mark.parametrize(("name", "more"), [("net.onnx", ("--output", "logits")), ("net.pt2", ())])
def test_graphs_are_detected_end_to_end(folder, capsys, name, more):
    options = (folder / name, "--examples", folder / "pictures", *FORM, *QUICK, *more)
    status, found = detect(capsys, *options)
    assert (status, found["status"], found["reason"]) == (0, "ok", "evidence only")
    assert found["architecture"].startswith("graph:") and len(found["sha256"]) == 64
    evidence = found["evidence"]
    assert evidence["example_margin"] > 1  # answers are right and sure
    assert evidence["head_mean_outlier"] < 3 and np.isfinite(list(evidence.values())).all()


def test_a_softmax_at_the_end_changes_no_evidence(folder, capsys):
    options = ("--examples", folder / "pictures", *FORM, *QUICK)
    _, after = detect(capsys, folder / "net.onnx", *options)
    _, before = detect(capsys, folder / "net.onnx", *options, "--output", "logits")
    assert after["evidence"] == before["evidence"]


def test_the_plain_line_tells_what_looks_like_a_backdoor(folder, tmp_path, capsys):
    _write_onnx(
        tmp_path / "switch.onnx",
        helper.make_node("Shape", ["x"], ["sizes"], end=1),
        helper.make_node("Greater", ["sizes", "few"], ["many"], name="switch"),
        helper.make_node("Where", ["many", "target", "logits"], ["out"]),
        weights={"few": np.array([8]), "target": np.array([[9, 0, 0]], np.float32)}.items(),
    )
    plain = ("--examples", folder / "pictures", *FORM, *QUICK[:-1])
    assert main(["detect", str(tmp_path / "switch.onnx"), *map(str, plain), "--output", "out"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith(
        "  1 finding: possible architectural backdoor: Greater node 'switch' computes with the "
        "number of images"
    )
    main(["detect", str(folder / "net.onnx"), *map(str, plain)])
    assert "finding" not in capsys.readouterr().out


def test_wrong_forms_are_flagged(folder, capsys):
    options = (folder / "net.onnx", "--examples", folder / "pictures", *QUICK)
    _, found = detect(capsys, *options, "--normalization", "unit", "--channel-order", "BGR")
    assert found["status"] == "ok"
    assert "examples-misclassified: clean accuracy 0.33" in found["reason"]
    assert "probabilities: " not in found["reason"], "the search is for logits"
    assert "input-guessed: " in found["reason"]


def test_examples_of_another_size_name_the_option(folder, capsys):
    (folder / "large").mkdir()
    Image.new("RGB", (20, 16), (9, 90, 9)).save(folder / "large" / "class_1_example_0.png")
    options = (folder / "net.pt2", "--examples", folder / "large", *QUICK)
    status, found = detect(capsys, *options)
    assert status == 2
    assert "examples are 16 x 20 pixels, the network takes 12 x 12" in found["reason"]
    assert "--image-size 16x20" in found["reason"]


def test_an_unknown_output_and_a_wrong_size_are_told(folder, capsys):
    options = ("--examples", folder / "pictures", *QUICK)
    status, found = detect(capsys, folder / "net.pt2", *options, "--output", "nothing")
    assert status == 2 and "there is no output 'nothing'" in found["reason"]
    status, found = detect(capsys, folder / "net.pt2", *options, "--image-size", "30x30")
    assert status == 2 and "made for images of 12 x 12" in found["reason"]


@pytest.mark.parametrize(
    "wrong",
    [
        ("--bounds", "1"),
        ("--bounds", "1,1"),
        ("--mean", "a,b,c"),
        ("--std", "0,1,1"),
        ("--image-size", "32"),
        ("--layout", "CHWN"),
    ],
)
def test_impossible_options_are_usage_errors(folder, wrong):
    assert main(["detect", str(folder / "net.onnx"), *wrong]) == 4


def test_the_form_changes_the_identity(folder):
    from jaxtroj.rounds import ModelEntry
    from jaxtroj.scan import identify
    from jaxtroj.settings import Settings

    entry = ModelEntry("net", folder / "net.pt2", folder / "pictures", None)
    forms: list[dict[str, Any]] = [
        {}, {"layout": "NCHW"}, {"bounds": (0, 255)}, {"mean": (0.5,)}, {"std": (0.5,)},
        {"output": "logits"}, {"image_size": (12, 12)},
    ]  # fmt: skip
    assert len({identify(entry, Settings(**form)) for form in forms}) == len(forms)


def test_by_subprocess(folder):
    command = [sys.executable, "-m", "jaxtroj", "detect", "net.pt2", "--examples", "pictures"]
    result = subprocess.run(
        [*command, *FORM, "--evidence-only", "--stages", "weights"],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("net.pt2") and "gathered" in result.stdout


def test_tensors_beside_an_onnx_file_count_for_the_identity(folder, tmp_path):
    import onnx

    from jaxtroj.rounds import ModelEntry
    from jaxtroj.scan import identify
    from jaxtroj.settings import Settings

    path = tmp_path / "net.onnx"
    onnx.save(onnx.load(folder / "net.onnx"), path, save_as_external_data=True, location="w.bin",
              size_threshold=0)  # fmt: skip
    entry = ModelEntry("net", path, folder / "pictures", None)
    before = identify(entry, Settings())
    data = bytearray((tmp_path / "w.bin").read_bytes())
    data[0] ^= 1
    (tmp_path / "w.bin").write_bytes(data)
    assert identify(entry, Settings()) != before


def test_the_plain_line_tells_flags_and_a_picture_that_could_not_be_written(
    folder, tmp_path, capsys
):
    (tmp_path / "taken").write_text("a file, where a folder is to be")
    options = ("--examples", folder / "pictures", *QUICK[:-1], "--normalization", "unit")
    main(["detect", *map(str, (folder / "net.onnx", *options, "--channel-order", "BGR"))])
    assert "examples-misclassified: clean accuracy 0.33" in capsys.readouterr().out
    shown = ("--evidence-only", "--stages", "fixed", "--out", tmp_path / "taken" / "out")
    main(["detect", *map(str, (folder / "net.onnx", *options[:2], *FORM, *shown))])
    line = capsys.readouterr().out
    assert f"cannot write {tmp_path / 'taken' / 'out'}" in line and "finding" not in line


def test_convert_says_at_once_that_a_graph_is_not_compared(folder, tmp_path, capsys):
    words = ["convert", str(folder / "net.onnx"), "--out", str(tmp_path / "out"), "--check"]
    assert main(words) == 4
    assert "and onnx has none; leave it out" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
