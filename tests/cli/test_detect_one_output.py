"""Image classifiers of one output, from files and in memory, to their verdicts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, load_model
from PIL import Image

import jaxtroj
from converters.one_output import AS_LOGIT, BY_SIGMOID
from jaxtroj import Settings
from jaxtroj.cli.main import main
from jaxtroj.rounds.examples import load_pictures
from tests.binary_network import SIDE, trained, write_onnx, write_pictures

pytestmark = pytest.mark.usefixtures("unguarded")

CUT = "the network ends in a sigmoid; what goes into it was taken for the logits"
QUICK = ("--evidence-only", "--stages", "weights,sensitivity", "--normalization", "unit",
         "--channel-order", "RGB", "--json")  # fmt: skip
FORMATS = ("onnx", "pt", "pth")


class Reddish(torch.nn.Module):
    """Yes where a picture is more red than blue; with something behind that output."""

    def __init__(self, tail=torch.sigmoid):
        super().__init__()
        self.fc, self.tail = torch.nn.Linear(3, 1, bias=False), tail
        self.fc.weight.data = torch.tensor([[30.0, 0.0, -30.0]])

    def forward(self, x):
        return self.tail(self.fc(torch.relu(x).mean((2, 3))))


@pytest.fixture(scope="module")
def colours(tmp_path_factory) -> Path:
    """`Reddish` as plain.onnx, and pictures of both classes."""
    root = tmp_path_factory.mktemp("colours")
    write_onnx(Reddish().eval(), root / "plain.onnx")
    (root / "pictures").mkdir()
    rng = np.random.default_rng(0)
    for number in range(20):
        pixels = rng.integers(0, 60, (SIDE, SIDE, 3), np.uint8)
        pixels[3:20, 5:25, 0 if number % 2 else 2] += 120
        name = f"class_{number % 2}_example_{number // 2}.png"
        Image.fromarray(pixels).save(root / "pictures" / name)
    return root


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The poisoned network and its clean twin in each format, and `pictures`."""
    root = tmp_path_factory.mktemp("binary")
    for poisoned, name in ((False, "clean"), (True, "poisoned")):
        network = trained(poisoned)
        write_onnx(torch.nn.Sequential(network, torch.nn.Sigmoid()).eval(), root / f"{name}.onnx")
        torch.save(network, root / f"{name}.pt")
        torch.save(network.state_dict(), root / f"{name}.pth")
    write_pictures(root / "pictures")
    return root


def all_detected(capsys, *arguments: object) -> list[dict]:
    assert main(["detect", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def detected(capsys, path: Path, *arguments: object) -> dict:
    main(["detect", str(path), *map(str, arguments)])
    (line,) = capsys.readouterr().out.splitlines()
    return json.loads(line)


def detected_together(paths: dict[str, Path], *arguments: object) -> dict[str, dict]:
    """The records of several networks by their names here, by one command."""
    command = [sys.executable, "-m", "jaxtroj", "detect", *paths.values(), *arguments]
    result = subprocess.run(
        [*map(str, command)], capture_output=True, text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return dict(zip(paths, map(json.loads, result.stdout.splitlines()), strict=True))


def test_the_planted_patch_is_found_in_every_format(folder, capsys):
    """The calibrators are not asked: what they say of such networks stands in measurements.

    One network goes through every stage, the others through those that find the patch.
    """
    names = [f"{name}.{suffix}" for name in ("clean", "poisoned") for suffix in FORMATS]
    paths = [folder / name for name in names]
    options = ("--examples", folder / "pictures", "--json", "--evidence-only")
    searches = ("--stages", "memory,fixed")
    records = all_detected(capsys, *paths, *options, *searches)
    whole = detected(capsys, folder / "poisoned.onnx", *options)
    assert {"whole_sink", "pair_lead", "recall_worth"} <= set(whole["evidence"])
    for record in (*records, whole):
        assert record["status"] == "ok" and record["input_form"]["accuracy"] == 1.0
        assert "one-output" not in record["reason"] and "no-last-layer" not in record["reason"]
        said = (CUT, BY_SIGMOID) if record["model"].endswith("onnx") else (AS_LOGIT,)
        assert set(said) <= set(record["findings"])
        assert np.isfinite(list(record["evidence"].values())).all()
    for clean, record in zip((*records[:3], records[0]), (*records[3:], whole), strict=True):
        assert record["target_class"] == 1 and record["source_classes"] == [0]
        assert record["recovered"]["kind"] == "window"
        assert record["evidence"]["fixed_gap"] > clean["evidence"]["fixed_gap"] + 0.3


def test_a_scan_takes_them_too(folder, tmp_path, capsys):
    place = tmp_path / "models" / "id-1"
    place.mkdir(parents=True)
    (place / "model.pt").write_bytes((folder / "poisoned.pt").read_bytes())
    (folder / "pictures").rename(place / "example_data")
    try:
        stages = ("--stages", "weights", "--evidence-only", "--json")
        main(["scan", str(tmp_path / "models"), "--out", str(tmp_path / "run"), *stages])
    finally:
        (place / "example_data").rename(folder / "pictures")
    record = json.loads(capsys.readouterr().out.splitlines()[0])
    assert record["status"] == "ok" and AS_LOGIT in record["findings"]


TAILS = {
    "a column": lambda z: torch.sigmoid(z)[:, 0],
    "no axis for one image": lambda z: torch.sigmoid(z).squeeze(),
    "a map": lambda z: torch.sigmoid(z)[:, :, None, None],
    "clipped": lambda z: torch.sigmoid(z).clip(1e-7, 1 - 1e-7),
    "rounded": lambda z: torch.round(torch.sigmoid(z)),
}


@pytest.fixture(scope="module")
def tailed(colours, tmp_path_factory) -> dict[str, dict]:
    """Records of `Reddish` with each tail, and of the plain one, by their names."""
    root = tmp_path_factory.mktemp("tails")
    tails = TAILS | {name: tail for name, (tail, _) in FLAGGED.items()}
    paths = {name: root / f"{number}.onnx" for number, name in enumerate(tails)}
    for name, path in paths.items():
        write_onnx(Reddish(tails[name]).eval(), path)
    paths["plain"] = colours / "plain.onnx"
    return detected_together(paths, "--examples", colours / "pictures", *QUICK)


@pytest.mark.parametrize("name", TAILS)
def test_outputs_of_other_shapes_and_with_hard_cuts(name, tailed):
    found = tailed[name]
    assert {CUT, BY_SIGMOID} <= set(found["findings"])
    assert not any("runs for one only" in finding for finding in found["findings"])
    assert found["evidence"] == pytest.approx(tailed["plain"]["evidence"], abs=1e-4)
    assert found["evidence"]["example_margin"] > 1


FLAGGED = {
    "a quantity": (lambda z: 40 + 5 * z.tanh(), {"one-output", "examples-misclassified"}),
    "a probability in other words": (
        lambda z: 1 / (1 + torch.exp(-z)),
        {"one-output", "examples-misclassified", "probabilities"},
    ),
    "the probability of no": (
        lambda z: 1 - torch.sigmoid(z),
        {"one-output", "examples-misclassified", "probabilities"},
    ),
    "no for yes": (lambda z: torch.sigmoid(-z), {"examples-misclassified"}),
    "a softmax over one output": (
        lambda z: z.softmax(1),
        {"one-output", "examples-misclassified", "probabilities", "gradients-zero"},
    ),
}


@pytest.mark.parametrize("name", FLAGGED)
def test_what_is_no_logit_is_flagged(name, tailed):
    found = tailed[name]
    assert found["status"] == "ok"
    raised = {part.partition(":")[0] for part in found["reason"].split("; ") if ": " in part}
    assert raised == FLAGGED[name][1]


def test_without_labels_a_logit_stays_an_assumption(colours, tmp_path, capsys):
    write_onnx(Reddish(torch.nn.Identity()).eval(), tmp_path / "net.onnx")
    (tmp_path / "unlabelled").mkdir()
    for number, path in enumerate((colours / "pictures").glob("*.png")):
        (tmp_path / "unlabelled" / f"{number}.png").write_bytes(path.read_bytes())
    options = ("--examples", tmp_path / "unlabelled", *QUICK)
    found = detected(capsys, tmp_path / "net.onnx", *options)
    assert f"one-output: {AS_LOGIT}, no example is labelled" in found["reason"]
    found = detected(capsys, colours / "plain.onnx", *options)
    assert "one-output" not in found["reason"]
    assert found["reason"].startswith("examples-unlabelled: no picture names its class")
    assert "a folder for each class;" in found["reason"]
    (tmp_path / "unlabelled" / "labels.csv").write_text("filename,label\n0.png,0\n")
    found = detected(capsys, tmp_path / "net.onnx", *options)
    assert "a folder for each class (labels.csv beside them is not read);" in found["reason"]
    found = detected(capsys, tmp_path / "net.onnx", "--examples", colours / "pictures", *QUICK)
    assert "one-output" not in found["reason"] and AS_LOGIT in found["findings"]
    assert "examples-unlabelled" not in found["reason"]


def test_of_two_outputs_of_one_column_one_is_taken_and_named(colours, tmp_path, capsys):
    model = load_model(colours / "plain.onnx")
    (given,) = model.graph.output
    model.graph.node.append(helper.make_node("Neg", [given.name], ["other"]))
    model.graph.output.append(helper.make_tensor_value_info("other", TensorProto.FLOAT, ["n", 1]))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    options = ("--examples", colours / "pictures", *QUICK)
    found = detected(capsys, tmp_path / "net.onnx", *options)
    assert "output 'yes' was taken for the logits; others: 'other'" in found["findings"]
    assert BY_SIGMOID in found["findings"]
    found = detected(capsys, tmp_path / "net.onnx", *options, "--output", "other")
    assert "one-output: " in found["reason"] and AS_LOGIT in found["findings"]


def test_examples_of_a_third_class_are_of_another_model(folder, tmp_path, capsys):
    (first, *_) = (folder / "pictures").glob("*.png")
    (tmp_path / "class_2_example_0.png").write_bytes(first.read_bytes())
    found = detected(capsys, folder / "clean.pt", "--examples", tmp_path, *QUICK)
    assert found["status"] == "failed" and "the model has classes 0 to 1" in found["reason"]


def test_networks_in_memory_give_the_same_evidence(folder):
    settings = Settings(
        calibrator=None, early_stop=False, stages=("weights", "sensitivity"),
        normalization="unit", channel_order="RGB",
    )  # fmt: skip
    pictures = load_pictures(folder / "pictures")
    network = trained(poisoned=True)
    doors = {
        "path": folder / "poisoned.pt",
        "module": network,
        "sigmoid": torch.nn.Sequential(network, torch.nn.Sigmoid()).eval(),
        "model": jaxtroj.open_model(folder / "poisoned.pt").model,
    }
    found = {
        name: jaxtroj.detect(door, pictures.pixels, pictures.labels, settings)
        for name, door in doors.items()
    }
    for verdict in found.values():
        assert (AS_LOGIT in verdict.record.findings) != (BY_SIGMOID in verdict.record.findings)
        for field in ("universal_gap", "example_margin", "head_lead"):
            expected = found["path"].evidence[field]
            assert verdict.evidence[field] == pytest.approx(expected, abs=1e-4), field


def test_a_checkpoint_keeps_the_one_output(folder, tmp_path, capsys):
    words = ("convert", folder / "clean.pt", "--out", tmp_path, "--check", "--image-size", "32x32")
    assert main([*map(str, words)]) == 0
    assert "densenet, one output, in" in capsys.readouterr().out
    assert json.loads((tmp_path / "config.json").read_text())["config"]["num_classes"] == 1
