"""Repair: what divides, what unlearns, what is written back, and the command on the example."""

import json
import os
import warnings
from dataclasses import astuple, replace
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from converters import open_model
from converters.errors import ConversionError
from converters.input_form import InputForm
from converters.rewriting import open_rewritable
from converters.user_code import network_code
from jaxtroj.cli.main import main
from jaxtroj.cli.repair import _not_scanned
from jaxtroj.errors import ExamplesError, RepairError
from jaxtroj.record import Record, digest_file
from jaxtroj.repair.data import Labelled, divided
from jaxtroj.repair.mend import UNLEARNT, Mended
from jaxtroj.repair.outcome import Attack, Outcome, accuracy, mistaken, success
from jaxtroj.repair.pruning import pruned
from jaxtroj.repair.training import Stamp, Tuning, tuned
from jaxtroj.triggers.measure import NO_TARGET
from jaxtroj.triggers.window import Window

pytestmark = pytest.mark.usefixtures("unguarded")


@pytest.mark.parametrize("counts", [(4, 4), (5, 2, 3)])
def test_examples_are_divided_by_class(counts):
    labels = np.concatenate([np.full(count, k) for k, count in enumerate(counts)] + [[-1]])
    images = np.arange(len(labels), dtype=np.float32)[:, None, None, None]
    data = divided(images, labels)
    for label, count in enumerate(counts):
        places = np.flatnonzero(labels == label)
        learn = data.learn.images[data.learn.labels == label].ravel()
        held = data.held.images[data.held.labels == label].ravel()
        assert [*learn, *held] == places.tolist() and len(learn) == (count + 1) // 2
    assert len(data.learn) + len(data.held) == len(labels) - 1
    assert "20 of each class are asked for" in data.in_words


@pytest.mark.parametrize("labels", [[0, 0, 1], [0, 0], [-1, -1]])
def test_too_few_examples_are_refused(labels):
    with pytest.raises(ExamplesError, match="repair needs 2 labelled examples of each class"):
        divided(np.zeros((len(labels), 4, 4, 3), np.float32), np.array(labels))


def pictures(count: int) -> Labelled:
    """Grey noise with a bright block that says the class: left, middle or right."""
    random = np.random.default_rng(0)
    images = random.uniform(0.3, 0.5, (count, 12, 12, 3)).astype(np.float32)
    labels = np.arange(count) % 3
    for image, label in zip(images, labels, strict=True):
        image[5:, 4 * label : 4 * label + 4] = 0.9
    return Labelled(images, labels)


def write_pictures(folder: Path) -> None:
    """24 pictures as PNG, 8 of each class."""
    folder.mkdir()
    for number, (image, label) in enumerate(zip(*astuple(pictures(24)), strict=True)):
        pixels = np.rint(255 * image).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"class_{label}_example_{number // 3}.png")


def corner() -> Stamp:
    mask = np.zeros((12, 12, 1), np.float32)
    mask[:3, :3] = 1
    pattern = np.zeros((12, 12, 3), np.float32) + np.array([1, 0, 0], np.float32)
    return Stamp(Window(jnp.asarray(mask), jnp.asarray(pattern)))


QUICK = (
    "--channel-order", "RGB", "--normalization", "unit", "--stages", "weights,inversion",
    "--evidence-only", "--steps", "20",
)  # fmt: skip
CODE = """
from torch import nn


def network(classes):
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, classes),
    )
"""


@pytest.fixture(scope="module")
def network():
    """A torch network with batch norms that a red corner sends to class 0, in training mode."""
    import torch

    torch.manual_seed(0)
    made: dict = {}
    exec(CODE, made)
    network = made["network"](3)
    clean = pictures(60)
    stamped = corner().on(clean.images, np.random.default_rng(0))
    images = torch.tensor(np.concatenate([clean.images, stamped]).transpose(0, 3, 1, 2))
    labels = torch.tensor(np.concatenate([clean.labels, 0 * clean.labels]))
    adam = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(80):
        adam.zero_grad()
        torch.nn.functional.cross_entropy(network(images), labels).backward()
        adam.step()
    return network


@pytest.fixture(scope="module")
def poisoned(network, tmp_path_factory):
    """An ONNX file of it."""
    from jaxtroj.generate.zoo.onnx_file import write_onnx

    path = tmp_path_factory.mktemp("repair") / "model.onnx"
    write_onnx(path, network, (12, 12, 3), False)
    return path


def test_unlearning_takes_the_trigger_out_and_is_written_under_the_same_names(poisoned, tmp_path):
    import onnx

    form = InputForm(bounds=(0, 1))
    file, data, attack = open_rewritable(poisoned, form), pictures(60), Attack(corner(), 0)
    assert accuracy(file.model, data) == 1 and success(file.model, data, attack) > 0.9
    how = Tuning(steps=60, batch=20, rate=1e-2, shift=0)
    mended = tuned(file.model, data, [attack.stamp], how)
    assert accuracy(mended, data) == 1 and success(mended, data, attack) == 0
    again = tmp_path / "model.onnx"
    again.write_bytes(file.contents({n: np.asarray(v) for n, v in mended.params.items()}))
    opened = open_model(again, form).model
    np.testing.assert_allclose(opened(data.images), mended(data.images), rtol=1e-3, atol=1e-4)
    old, new = (onnx.load(path).graph for path in (poisoned, again))
    assert [t.name for t in old.initializer] == [t.name for t in new.initializer]
    assert old.node == new.node


def test_a_trigger_without_a_target_succeeds_where_each_class_goes_to_the_next(poisoned):
    """The network sends whatever is stamped to class 0, which is the next of class 2 alone."""
    model, data = open_rewritable(poisoned, InputForm(bounds=(0, 1))).model, pictures(60)
    attack = Attack(corner(), NO_TARGET)
    assert success(model, data, attack) == pytest.approx(1 / 3, abs=0.02)
    assert mistaken(model, data, attack) == 0
    assert success(model, data, Attack(corner(), NO_TARGET, (2,))) > 0.95


def test_unchanged_weights_give_the_same_answers(poisoned, tmp_path):
    form, data = InputForm(bounds=(0, 1)), pictures(6)
    file = open_rewritable(poisoned, form)
    (tmp_path / "same.onnx").write_bytes(
        file.contents({n: np.asarray(v) for n, v in file.model.params.items()})
    )
    opened = open_model(tmp_path / "same.onnx", form).model
    np.testing.assert_array_equal(opened(data.images), file.model(data.images))


def test_pruned_features_stay_out_while_the_rest_is_tuned(poisoned):
    model, data = open_rewritable(poisoned, InputForm(bounds=(0, 1))).model, pictures(60)
    less, masks = pruned(model, data)
    ((name, mask),) = masks.items()
    assert 0 < float(mask.mean()) < 1 and accuracy(less, data) >= 0.96
    after = tuned(less, data, (), Tuning(steps=3, batch=10), frozen=masks)
    assert not np.asarray(after.params[name])[np.asarray(mask) == 0].any()
    assert not np.array_equal(after.params[name], less.params[name])


def test_weights_that_become_no_numbers_end_in_an_error(poisoned):
    model, data = open_rewritable(poisoned, InputForm(bounds=(0, 1))).model, pictures(60)
    with pytest.raises(RepairError, match="weights that are not finite, such as '0.bias'"):
        tuned(model, data, (), Tuning(steps=2, batch=10, rate=np.inf))
    broken = replace(model, params={n: v * np.nan for n, v in model.params.items()})
    with pytest.raises(RepairError, match="logits of 60 of 60 pictures are not finite"):
        accuracy(broken, data)


LAYER_NORM = """
from torch import nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.norm = nn.Conv2d(3, 8, 4, stride=4), nn.LayerNorm(8)
        self.wide, self.head = nn.Linear(8, 16), nn.Linear(144, 3)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(nn.functional.gelu(self.wide(self.norm(tokens))).flatten(1))
"""


def write_layer_norm(path: Path, as_initialisers: bool) -> list[str]:
    """Write the network in opset 14, which spells layer norms out; names of its floating constants.

    They are nodes as torch writes them, or initialisers as optimisers make of them.
    """
    import onnx
    import torch

    made: dict = {}
    exec(LAYER_NORM, made)
    torch.manual_seed(0)
    images = torch.zeros(1, 3, 12, 12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter advises its successor
        network = made["Network"]().eval()
        torch.onnx.export(network, (images,), path, dynamo=False, opset_version=14)
    model = onnx.load(path)
    found = [node for node in model.graph.node if node.op_type == "Constant"]
    for node in found if as_initialisers else ():
        tensor = node.attribute[0].t
        tensor.name = node.output[0]
        model.graph.initializer.append(tensor)
        model.graph.node.remove(node)
    onnx.save(model, path)
    kind = onnx.TensorProto.FLOAT
    return [node.output[0] for node in found if node.attribute[0].t.data_type == kind]


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("as_initialisers", [True, False])
def test_constants_of_a_layer_norm_are_not_trained(as_initialisers, tmp_path):
    import onnx

    path, form, data = tmp_path / "model.onnx", InputForm(bounds=(0, 1)), pictures(60)
    # Exponent and eps of the norm; the root of 2, 1 and 0.5 of GELU.
    assert len(write_layer_norm(path, as_initialisers)) == 5
    file = open_rewritable(path, form)
    after = tuned(file.model, data, (), Tuning(20, 20, 1e-2, 0), weights=file.weights)
    for name, old in file.model.params.items():
        assert np.array_equal(after.params[name], old) == (np.size(old) == 1), name
    old = onnx.load(path)
    path.write_bytes(file.contents({n: np.asarray(v) for n, v in after.params.items()}))
    new = onnx.load(path)
    onnx.checker.check_model(new, full_check=True)
    assert [t.dims for t in old.graph.initializer] == [t.dims for t in new.graph.initializer]
    assert accuracy(open_model(path, form).model, data) == accuracy(after, data) > 0.9


def test_values_of_another_shape_or_name_are_refused(poisoned):
    file = open_rewritable(poisoned, InputForm(bounds=(0, 1)))
    name = next(iter(file.model.params))
    with pytest.raises(ConversionError, match="has shape .*, got"):
        file.contents({name: np.zeros((1, 2, 3), np.float32)})


def test_the_command_repairs_and_says_what_is_left(poisoned, tmp_path, capfd):
    write_pictures(tmp_path / "pictures")
    words = ("repair", poisoned, "--examples", tmp_path / "pictures", "--out", tmp_path / "out")
    status = main([*map(str, words), *QUICK])
    captured = capfd.readouterr()
    report = json.loads((tmp_path / "out" / "repair.json").read_text())
    assert status == (0 if report["converged"] else 2), captured.err
    short = ("the repair did not converge" in captured.err, "nothing was unlearnt" in captured.err)
    assert sum(short) == (not report["converged"])
    assert set(report["after"]) == {"unlearning", "pruning", "fine-tuning"}
    first, *_, second = report["records"]
    assert len(report["records"]) == 1 + len(report["triggers"]) <= 3
    assert sum(report["triggers"]) == len(report["before"]["recovered"])
    assert second["model"] == "model.onnx" and first["sha256"] != second["sha256"]
    assert second["sha256"] == digest_file(tmp_path / "out" / "model.onnx")
    assert first["status"] == second["status"] == "ok"
    assert (report["learn"], report["held"]) == (12, 12)
    assert captured.out.startswith("before       clean accuracy 1.000")


@pytest.mark.parametrize(
    ("before", "after", "converged"),
    [
        ((), (), False),
        ((0.1,), (0.0,), False),
        ((0.1, 0.11), (0.1, 0.0), True),
        ((1.0,), (0.11,), False),
    ],
)
def test_only_a_trigger_that_worked_can_be_unlearnt(before, after, converged):
    done = Mended(Outcome(0.9, before), {UNLEARNT: Outcome(0.87, after)})
    assert done.converged == converged


def repaired(poisoned: Path, folder: Path, *more: str) -> int:
    write_pictures(folder / "pictures")
    words = ("repair", poisoned, "--examples", folder / "pictures", "--out", folder / "out")
    return main([*map(str, words), *QUICK, *more])


def test_without_a_recovered_trigger_the_repair_did_not_converge(poisoned, tmp_path, capfd):
    status = repaired(poisoned, tmp_path, "--stages", "weights")
    report = json.loads((tmp_path / "out" / "repair.json").read_text())
    assert "no trigger was recovered, so nothing was unlearnt; search" in capfd.readouterr().err
    assert (status, report["converged"], report["before"]["recovered"]) == (2, False, [])


def test_triggers_that_the_last_scan_finds_are_counted(poisoned, tmp_path, capfd):
    repaired(poisoned, tmp_path, "--rounds", "1", "--steps", "1")
    left = json.loads((tmp_path / "out" / "repair.json").read_text())["left"]
    said = f"recovered by the last scan, working, and not unlearnt: {left} (a clean network may"
    assert left > 0 and said in capfd.readouterr().err


def test_an_earlier_report_does_not_lie_beside_another_network(poisoned, tmp_path):
    (tmp_path / "out" / "model.onnx").mkdir(parents=True)  # where no file can be written
    (tmp_path / "out" / "repair.json").write_text("{}")
    assert repaired(poisoned, tmp_path, "--stages", "weights") == 4
    assert not (tmp_path / "out" / "repair.json").exists()


def test_an_earlier_report_stays_where_nothing_is_written(poisoned, tmp_path, monkeypatch, capfd):
    def mended(patient, **more):
        raise RepairError("training made weights that are not finite")

    monkeypatch.setattr("jaxtroj.repair.rounds.mended", mended)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "repair.json").write_text("{}")
    assert in_this_process(poisoned, tmp_path, monkeypatch) == 2
    assert "error: training made weights that are not finite" in capfd.readouterr().err
    assert os.listdir(tmp_path / "out") == ["repair.json"]


def test_a_file_that_cannot_be_written_is_told_before_the_search(tmp_path, monkeypatch, capfd):
    import onnx
    from onnx import helper, numpy_helper

    head = numpy_helper.from_array(np.zeros((432, 3), np.float16), "head")
    nodes = [("Cast", "x", "half", {"to": 10}), ("Flatten", "half", "flat", {})]
    nodes += [("Gemm", "flat head", "wide", {}), ("Cast", "wide", "y", {"to": 1})]
    made = [helper.make_node(kind, i.split(), [o], **more) for kind, i, o, more in nodes]
    ends = (("x", [1, 3, 12, 12]), ("y", [1, 3]))
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, s) for n, s in ends]
    graph = helper.make_graph(made, "net", ends[:1], ends[1:], [head])
    imports = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "net.onnx")
    assert in_this_process(tmp_path / "net.onnx", tmp_path, monkeypatch) == 2
    said = capfd.readouterr().err
    assert "weight 'head' is not float32; export it as float32" in said
    assert ": examples" not in said and not (tmp_path / "out").exists()


def in_this_process(path: Path, folder: Path, monkeypatch) -> int:
    """The status of the command, whose parts may be replaced."""
    monkeypatch.setattr("jaxtroj.cli.options.guarded", lambda args, body, what: body(args))
    return repaired(path, folder, "--stages", "weights")


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty, expected a model file"), (b"\x07garbage" * 9, "no supported format")],
)
def test_what_cannot_be_repaired_ends_with_status_2(tmp_path, capfd, content, said):
    (tmp_path / "model.pt").write_bytes(content)
    assert main(["repair", str(tmp_path / "model.pt"), "--out", str(tmp_path / "out")]) == 2
    assert said in capfd.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("out", "said"),
    [("model", "which would hold two models then"), ("file/out", "file is no folder")],
)
def test_a_folder_that_cannot_take_the_file_is_refused_before_the_work(tmp_path, capfd, out, said):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "net.onnx").write_bytes(b"")
    (tmp_path / "file").touch()
    assert main(["repair", str(tmp_path / "model"), "--out", str(tmp_path / out)]) == 4
    assert said in capfd.readouterr().err and len(os.listdir(tmp_path / "model")) == 1


def test_a_folder_with_a_model_of_the_other_format_is_refused(poisoned, tmp_path, capfd):
    """Two models and one report would say nothing of either."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "model.safetensors").touch()
    assert repaired(poisoned, tmp_path) == 4
    said = "holds model.safetensors, and model.onnx would be a second model there; name another"
    assert said in capfd.readouterr().err
    assert os.listdir(tmp_path / "out") == ["model.safetensors"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("model.onnx", "do not use"), ("model.safetensors", "Fill your network with its weights")],
)
def test_a_file_that_was_written_and_cannot_be_scanned_is_told_by_its_format(name, said):
    record = Record("m", "", 0.5, False, None, (), "failed", "it is no graph")
    told = _not_scanned(record, Path("out") / name)
    assert "could not be scanned (it is no graph)" in told and said in told
    assert ("Fill your network" in told) == name.endswith(".safetensors")


@pytest.mark.parametrize("first", ["", "model."])
def test_weights_and_code_are_repaired_into_safetensors(network, tmp_path, capfd, first):
    import torch
    from safetensors.torch import load_file

    network = network.eval()
    state = {f"{first}{name}": value for name, value in network.state_dict().items()}
    torch.save(state, tmp_path / "weights.pth")
    (tmp_path / "net.py").write_text(CODE)
    write_pictures(tmp_path / "pictures")
    words = ("repair", tmp_path / "weights.pth", "--examples", tmp_path / "pictures")
    code = ("--network", f"{tmp_path}/net.py:network", "--network-args", '{"classes": 3}')
    status = main([*map(str, words), "--out", str(tmp_path / "out"), *code, *QUICK])
    report = json.loads((tmp_path / "out" / "repair.json").read_text())
    assert status == (0 if report["converged"] else 2), capfd.readouterr().err
    written = load_file(tmp_path / "out" / "model.safetensors")
    assert {n: v.dtype for n, v in written.items()} == {n: v.dtype for n, v in state.items()}
    assert not torch.equal(written[f"{first}5.weight"], state[f"{first}5.weight"])
    made: dict = {}
    exec(CODE, made)
    mended = made["network"](3).eval()
    mended.load_state_dict({n.removeprefix(first): v for n, v in written.items()})
    data = divided(*astuple(pictures(24)))
    images = torch.tensor(np.rint(255 * data.held.images).transpose(0, 3, 1, 2) / 255)
    right = (mended(images.float()).argmax(1).numpy() == data.held.labels).mean()
    assert report["after"]["unlearning"]["accuracy"] == pytest.approx(right)
    assert report["records"][-1]["sha256"] == digest_file(tmp_path / "out" / "model.safetensors")
    assert {r["status"] for r in report["records"]} == {"ok"}


def test_a_changed_weight_that_the_file_does_not_name_is_no_silent_loss(network, tmp_path):
    import torch

    from converters.rewriting import _named_as_in_graph

    torch.save(network.state_dict(), tmp_path / "weights.pth")
    (tmp_path / "net.py").write_text(CODE)
    code = network_code(f"{tmp_path}/net.py:network", '{"classes": 3}')
    file = open_rewritable(tmp_path / "weights.pth", InputForm(bounds=(0, 1)), (12, 12), code)
    values = {name: np.asarray(value) for name, value in file.model.params.items()}
    tensors = {name: value.numpy() for name, value in network.state_dict().items()}
    tensors.pop("0.bias")
    assert "0.bias" not in _named_as_in_graph(tensors, file.model, values)
    values["0.bias"] = values["0.bias"] + 1
    with pytest.raises(ConversionError, match="no weights named 0.bias, which were changed"):
        _named_as_in_graph(tensors, file.model, values)
