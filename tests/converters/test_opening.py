"""`open_model`: formats told by content, input forms, exported programs read without running."""

import io
import json
import zipfile
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import onnx.external_data_helper
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from converters import InputForm, fold, open_model
from converters.containers.exported_file import read_exported
from converters.containers.onnx_wire import external_files, is_onnx
from converters.errors import ConverterError, LoadError, UnsupportedOperatorError
from converters.families.resnet import BlockConfig, ResNetConfig
from converters.limits import Limits
from converters.model import Model, apply, param_shapes
from converters.preparation import prepared

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.fc = torch.nn.Linear(4, 5)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


def _exported(net, path, sizes=None):
    shapes = None if sizes is None else (sizes,)
    program = torch.export.export(
        net, (torch.zeros(2 if sizes else 1, 3, 8, 8),), strict=False, dynamic_shapes=shapes
    )
    torch.export.save(program, path)
    return path


@pytest.fixture(scope="module")
def exported(net, tmp_path_factory):
    return _exported(net, tmp_path_factory.mktemp("exported") / "net.pt2")


def _onnx(net, path):
    state = {k: v.numpy() for k, v in net.state_dict().items()}
    nodes = [
        helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        helper.make_node("Flatten", ["c"], ["d"]),
        helper.make_node("Gemm", ["d", "fc.weight", "fc.bias"], ["logits"], transB=1),
        helper.make_node("Softmax", ["logits"], ["scores"]),
    ]
    image = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 5])
        for name in ("scores", "logits")
    ]
    weights = [numpy_helper.from_array(value, name) for name, value in state.items()]
    graph = helper.make_graph(nodes, "net", [image], outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    return path


def _images(n=2, side=8):
    return np.random.default_rng(1).uniform(size=(n, side, side, 3)).astype(np.float32)


def _expected(net, images, bounds=(0, 1), mean=(0, 0, 0), std=(1, 1, 1)):
    pixels = ((images * (bounds[1] - bounds[0]) + bounds[0]) - mean) / std
    with torch.no_grad():
        return net(torch.from_numpy(pixels.astype(np.float32)).permute(0, 3, 1, 2)).numpy()


def test_an_exported_program_gives_torchs_logits(net, exported):
    opened = open_model(exported, InputForm(bounds=(0, 255), mean=(100, 110, 120), std=(60,)))
    expected = _expected(net, _images(), (0, 255), (100, 110, 120), (60, 60, 60))
    np.testing.assert_allclose(opened.model(_images()), expected, rtol=1e-4, atol=1e-5)
    assert (opened.format, opened.findings) == (
        "exported program",
        (
            f"{opened.model.architecture} has conv x1, linear x1",
            "none of the 4 operators depends on a comparison of its input",
        ),
    )
    assert set(opened.model.params) == {"conv.weight", "conv.bias", "fc.weight", "fc.bias"}


def test_open_sizes_take_those_of_the_pictures_or_of_the_form(net, tmp_path):
    side = torch.export.Dim("side", min=8, max=64)
    path = _exported(net, tmp_path / "open.pt2", {0: torch.export.Dim("n"), 2: side, 3: side})
    opened = open_model(path, usual_size=(12, 12))
    expected = _expected(net, _images(side=12))
    np.testing.assert_allclose(opened.model(_images(side=12)), expected, rtol=1e-4, atol=1e-5)
    assert any("12 x 12 was assumed" in finding for finding in opened.findings)
    said = open_model(path, InputForm(image_size=(16, 16), bounds=(0, 1)), usual_size=(12, 12))
    assert said.model.config.image_size == (16, 16)  # pyright: ignore
    assert not any("assumed" in finding for finding in said.findings)


@pytest.mark.parametrize("name", ["net.onnx", "net.pt", "net"])
def test_onnx_is_told_by_content(net, tmp_path, name):
    opened = open_model(_onnx(net, tmp_path / name), InputForm(output="logits", bounds=(0, 1)),
                        usual_size=(8, 8))  # fmt: skip
    np.testing.assert_allclose(opened.model(_images()), _expected(net, _images()), rtol=1e-4,
                               atol=1e-5)  # fmt: skip
    assert opened.format == "onnx" and len(opened.sha256) == 64


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"image_size": (9, 9)}, "made for images of 8 x 8"),
        ({"output": "none"}, "no output 'none'"),
        ({"mean": (1.0, 2.0)}, "mean has 2 values"),
    ],
)
def test_forms_that_do_not_fit_are_refused(exported, form, said):
    with pytest.raises(ConverterError, match=said):
        open_model(exported, InputForm(**form))


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"layout": "CHWN"}, "layout"),
        ({"bounds": (1.0, 1.0)}, "bounds"),
        ({"mean": (float("nan"),)}, "mean"),
        ({"std": (0.0,)}, "std"),
        ({"image_size": (0, 9)}, "image_size"),
    ],
)
def test_impossible_forms_are_refused(form, said):
    with pytest.raises(ConverterError, match=said):
        InputForm(**form)


def _small_resnet():
    block = BlockConfig((4, 4), False)
    wide = BlockConfig((6, 6), True)
    config = ResNetConfig(4, ((block,), (wide,), (replace(wide, widths=(8, 8)),),
                               (replace(wide, widths=(9, 9)),)), 1, 3)  # fmt: skip
    rng = np.random.default_rng(3)
    params = {
        path: jnp.asarray(np.abs(rng.normal(size=shape)) + 0.1 if path.endswith((".var", ".scale"))
                          else rng.normal(size=shape) * 0.3)
        for path, shape in param_shapes(config).items()
    }  # fmt: skip
    return Model(config, params, "resnet")


def test_preparing_equals_normalising_the_pictures_first_in_float64():
    with jax.enable_x64(True):
        model = _small_resnet().astype(np.float64)
        images = jnp.asarray(np.random.default_rng(0).uniform(size=(2, 32, 32, 3)))
        inside = prepared(model, (-1, 3), MEAN, STD)
        for first, second in ((model, inside), (fold(model), fold(inside))):

            def outside(x, network=first):
                normal = ((x * 4 - 1) - np.asarray(MEAN)) / np.asarray(STD)
                return apply(network.config, network.params, normal)

            def within(x, network=second):
                return apply(network.config, network.params, x)

            (mine, slope), (theirs, wanted) = (
                jax.jit(lambda x, f=f: (f(x), jax.grad(lambda y: f(y)[:, 1].sum())(x)))(images)
                for f in (within, outside)
            )
            np.testing.assert_allclose(mine, theirs, rtol=1e-12)
            np.testing.assert_allclose(slope, wanted, rtol=1e-9, atol=1e-12)
        assert fold(inside).config.folded and fold(fold(inside)) is not None  # pyright: ignore
        assert set(fold(inside).params) == set(fold(model).params)


def test_a_network_that_prepares_pixels_itself_can_stand_behind_another_preparation():
    model = prepared(_small_resnet(), (0, 255))
    twice, images = prepared(model, None, (0.25,), (0.5,)), _images(side=32)
    normal = ((images - 0.25) / 0.5).astype(np.float32)
    np.testing.assert_allclose(twice(images), model(normal), rtol=1e-5)
    np.testing.assert_allclose(fold(twice)(images), twice(images), rtol=1e-3, atol=1e-3)


def test_a_family_takes_no_layout_and_no_output(tmp_path):
    from torchvision.models import resnet18

    path = tmp_path / "r.pt"
    torch.save(resnet18(num_classes=3, width_per_group=64).state_dict(), path)
    opened = open_model(path, InputForm(mean=MEAN, std=STD))
    assert (opened.format, opened.model.architecture) == ("torch zip", "resnet18")
    assert opened.model.config.mean == MEAN  # pyright: ignore
    for form in (InputForm(output="x"), InputForm(layout="NHWC")):
        with pytest.raises(ConverterError):
            open_model(path, form)


def _rewritten(path, change):
    """The archive with one change to its JSON graph."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name.endswith("models/model.json"):
                program = json.loads(data)
                change(program)
                data = json.dumps(program).encode()
            target.writestr(name, data)
    return out.getvalue()


def _first(program):
    return program["graph_module"]["graph"]["nodes"][0]


def _evil_size(program):
    graph = program["graph_module"]["graph"]
    evil = {"as_expr": {"expr_str": "__import__('os').system('touch executed')", "hint": None}}
    graph["tensor_values"]["x"]["sizes"][0] = evil


def _evil_structure(program):
    spec = json.dumps([1, {"type": "collections.defaultdict", "context": "null",
                           "children_spec": []}])  # fmt: skip
    program["graph_module"]["module_call_graph"][0]["signature"]["in_spec"] = spec


def _huge(program):
    node = _first(program)
    node["target"] = "torch.ops.aten.zeros.default"
    node["inputs"] = [{"name": "size", "arg": {"as_ints": [2**20, 2**20]}, "kind": 1}]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p: _first(p).update(target="os.system"), "only ATen operators"),
        (lambda p: _first(p).update(target="torch.ops.aten.from_file.default"), "only ATen"),
        (lambda p: _first(p).update(target="torch.hub.load"), "only ATen operators"),
        (_evil_size, "no arithmetic"),
        (_evil_structure, "no plain containers"),
        (_huge, "out of nothing"),
        (lambda p: p.pop("graph_module"), "cannot read the exported program"),
    ],
)
def test_hostile_programs_are_refused(exported, change, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConverterError, match=said):
        read_exported(_rewritten(exported, change), Limits())
    assert list(tmp_path.iterdir()) == []


def test_a_pickled_weight_is_refused(exported):
    out = io.BytesIO()
    with zipfile.ZipFile(exported) as source, zipfile.ZipFile(out, "w") as target:
        for name in source.namelist():
            data = source.read(name).replace(b'"use_pickle": false', b'"use_pickle": true')
            target.writestr(name, data)
    with pytest.raises(LoadError, match="pickled"):
        read_exported(out.getvalue(), Limits())


def test_guards_are_dropped(exported):
    data = _rewritten(exported, lambda p: p.update(guards_code=["__import__('os')"]))
    assert read_exported(data, Limits())._guards_code == []


def test_truncated_files_fail_with_one_error(net, exported, tmp_path):
    for source, name in ((exported, "cut.pt2"), (_onnx(net, tmp_path / "n.onnx"), "cut.onnx")):
        data = source.read_bytes()
        for length in (1, len(data) // 3, len(data) - 3):
            path = tmp_path / name
            path.write_bytes(data[:length])
            with pytest.raises(LoadError):
                open_model(path)


def test_an_unknown_operator_is_named(exported):
    def change(program):
        _first(program)["target"] = "torch.ops.custom.op.default"

    with pytest.raises(UnsupportedOperatorError) as caught:
        read_exported(_rewritten(exported, change), Limits())
    assert caught.value.operator == "torch.ops.custom.op.default"


def test_files_that_hold_tensors_are_found(net, tmp_path):
    path = _onnx(net, tmp_path / "net.onnx")
    assert external_files(path) == ()
    model = onnx.load(path)
    for tensor, name in zip(
        model.graph.initializer, ("a.bin", "b/c.bin", "../d", "a.bin"), strict=True
    ):
        onnx.external_data_helper.set_external_data(tensor, name)
    path.write_bytes(model.SerializeToString())
    assert external_files(path) == (tmp_path / "a.bin", tmp_path / "b/c.bin")
    assert external_files(path.with_suffix(".none")) == ()


@pytest.mark.parametrize(
    "data", [b"", b"\x08", b"\x08\x07", b"PK\x03\x04", b"<html>", bytes(range(256)), b"\xff" * 99]
)
def test_other_bytes_are_not_onnx(tmp_path, data):
    path = tmp_path / "net.pt"
    path.write_bytes(data)
    assert not is_onnx(path)
