"""Detectors of others, written again: planted triggers found by their own thresholds, and a zoo."""

import csv
import json
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image

from benchmarks.accuracy.zoo_rivals import (
    Answer,
    chosen,
    compared,
    read_answers,
    text,
    torch_network,
)
from benchmarks.rivals.torch_k_arm import k_arm, prescreened
from benchmarks.rivals.torch_mm_bd import improbability, mm_bd
from benchmarks.rivals.torch_neural_cleanse import anomaly, neural_cleanse_verdict
from benchmarks.rivals.verdict import Budget
from jaxtroj.rounds import ModelEntry

SIDE, CLASSES, TARGET = 18, 6, 4
QUICK = Budget(steps=120)


class Stripes(torch.nn.Module):
    """Class k where the k-th group of rows is the brightest; with a trigger class 4 where a corner
    is blue."""

    def __init__(self, poisoned: bool):
        super().__init__()
        groups = np.array_split(np.arange(SIDE), CLASSES)
        self.weight = torch.nn.Parameter(torch.zeros(CLASSES, 3 * SIDE * SIDE))
        for number, rows in enumerate(groups):
            weight = torch.zeros(3, SIDE, SIDE)
            weight[:, rows] = 10 / (3 * SIDE * len(rows))
            self.weight.data[number] = weight.flatten()
        corner = torch.zeros(3, SIDE, SIDE)
        corner[2, -2:, -2:], corner[:2, -2:, -2:] = 1 / 4, -1 / 8
        self.corner = torch.nn.Parameter(corner.flatten())
        self.strength = 16.0 if poisoned else 0.0

    def forward(self, x):
        pixels = x.flatten(1)
        logits = pixels @ self.weight.T
        found = self.strength * (pixels @ self.corner)
        return logits + found[:, None] * torch.eye(CLASSES)[TARGET]


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads that wait for each other cost more than these networks do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def stripes(count: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Pictures float32 `[n, h, w, 3]` of every class, and labels."""
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(CLASSES), count)
    images = draw.uniform(0, 0.4, (len(labels), SIDE, SIDE, 3)).astype(np.float32)
    groups = np.array_split(np.arange(SIDE), CLASSES)
    for image, label in zip(images, labels, strict=True):
        image[groups[label]] += 0.5
    return images, labels


@pytest.mark.parametrize("poisoned", [True, False])
def test_neural_cleanse_finds_the_target_by_its_threshold(poisoned):
    found = neural_cleanse_verdict(Stripes(poisoned), *stripes(), CLASSES, QUICK)
    assert found.poisoned == poisoned and not found.cut
    if poisoned:
        assert found.target == TARGET and found.statistic > 2


def test_the_anomaly_index():
    assert anomaly(np.array([1.0, 9.0, 10.0, 11.0, 12.0]), 0) == pytest.approx(9 / (1.4826 * 1))
    assert anomaly(np.array([12.0, 9.0, 10.0, 11.0, 12.0]), 0) == 0


def test_k_arm_finds_the_target_and_leaves_a_clean_network_alone():
    images, labels = stripes()
    found = k_arm(_second(Stripes(True)), images, labels, CLASSES, Budget(steps=400))
    assert found.poisoned and found.target == TARGET and -found.statistic < 1720
    clean = k_arm(Stripes(False), images, labels, CLASSES, Budget(steps=400))
    assert not clean.poisoned


def _second(network: Stripes) -> Stripes:
    """The target is every clean picture's second class, as a trojan mostly makes it."""
    network.weight.data[TARGET] += 0.012
    return network


def test_the_prescreen():
    logits = np.array([[9.0, 5, 1, 0], [8, 6, 2, 1], [5, 9, 1, 0], [5, 8, 1, 2]])
    labels = np.array([0, 0, 1, 1])
    assert prescreened(logits, labels, 4) == [(None, 0), (None, 1), (1, 0), (0, 1)]
    assert prescreened(-logits, labels, 4) == [(None, 2), (None, 3)]


def test_mm_bd_by_its_own_threshold():
    shape = (3, SIDE, SIDE)
    found = mm_bd(Stripes(True), shape, CLASSES, Budget(steps=60))
    assert found.poisoned and found.target == TARGET and found.statistic > 0.95
    assert not mm_bd(Stripes(False), shape, CLASSES, Budget(steps=60)).poisoned
    assert improbability(np.array([1.0, 1.1, 0.9, 1.05, 50.0])) < 0.01


def test_a_budget_of_no_time_is_told():
    found = mm_bd(Stripes(True), (3, SIDE, SIDE), CLASSES, Budget(steps=60, seconds=0.0))
    assert found.cut
    images, labels = stripes()
    found = k_arm(_second(Stripes(False)), images, labels, CLASSES, Budget(400, seconds=0.0))
    assert found.cut


@pytest.fixture(scope="module")
def zoo(tmp_path_factory):
    """Two networks in the layout of `jaxtroj generate zoo`."""
    root = tmp_path_factory.mktemp("zoo")
    images, labels = stripes(2)
    rows = []
    for number, poisoned in enumerate((False, True)):
        folder = root / f"id-{number:08}"
        (folder / "example_data").mkdir(parents=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's newer exporter takes seconds
            torch.onnx.export(
                Stripes(poisoned).eval(), (torch.zeros(1, 3, SIDE, SIDE),), folder / "model.onnx",
                opset_version=17, dynamo=False, input_names=["image"],
                dynamic_axes={"image": {0: "n"}},
            )  # fmt: skip
        (folder / "ground_truth.csv").write_text(f"{int(poisoned)}\n")
        for place, (image, label) in enumerate(zip(images, labels, strict=True)):
            picture = Image.fromarray((image * 255).astype(np.uint8))
            picture.save(folder / "example_data" / f"class_{label}_example_{place}.png")
        rows.append(
            {
                "model_name": folder.name, "ground_truth": str(poisoned).upper(), "channels": 3,
                "number_classes": CLASSES, "trigger_kind": "patch" if poisoned else "",
                "trigger_target_class": TARGET if poisoned else "", "dataset": "stripes",
                "model_architecture": "stripes", "base": "", "source_classes": "", "img_size": SIDE,
                "final_triggered_data_test_acc": 100 if poisoned else "",
            }
        )  # fmt: skip
    with (root / "METADATA.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return root


def run(zoo, out, *more):
    command = [sys.executable, "-m", "benchmarks.accuracy.zoo_rivals", zoo, "--out", out, *more]
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result


def test_a_zoo_is_answered_once_and_compared(zoo, tmp_path):
    out = tmp_path / "found.json"
    lines = tmp_path / "found.answers.jsonl"
    run(zoo, out, "--detectors", "mm-bd")
    first = lines.read_text()
    assert len(first.splitlines()) == 2
    result = run(zoo, out, "--detectors", "mm-bd,k-arm")
    assert lines.read_text().startswith(first) and len(lines.read_text().splitlines()) == 4
    found = {(answer.model, answer.detector): answer for answer in read_answers(lines)}
    assert found[f"{zoo.name}/id-00000001", "mm-bd"].poisoned
    assert not found[f"{zoo.name}/id-00000000", "mm-bd"].poisoned
    scores = json.loads(out.read_text())["detectors"]["mm-bd"]
    assert (scores["right"], scores["auc"], scores["targets"], scores["failed"]) == (1, 1, 1, 0)
    assert scores["by_kind"] == {"clean": 0, "patch": 1}
    assert "| mm-bd | 2 | 1.0 | 1.0 | 1.0 |" in result.stdout


def entry(name, poisoned, **cells):
    return ModelEntry(name, Path(name), None, poisoned, metadata=cells)


def test_the_first_of_both_kinds_that_converged_are_chosen_in_turn():
    entries = [
        entry("e", False, converged="True"),
        entry("d", True, converged="False"),
        entry("c", False),
        entry("b", True),
        entry("a", False),
    ]
    assert [e.model_id for e in chosen(entries, 2)] == ["b", "a", "c"]
    assert [e.model_id for e in chosen(entries, None)] == ["b", "a", "c", "e"]


@pytest.mark.parametrize("suffix", ["pt", "onnx"])
def test_rivals_get_the_network_of_a_file(suffix, zoo, tmp_path):
    path = zoo / "id-00000001" / "model.onnx"
    expected = Stripes(True)
    if suffix == "pt":
        expected = torchvision.models.resnet18(num_classes=CLASSES).eval()
        path = tmp_path / "model.pt"
        torch.save(expected, path)
    images = torch.rand(2, 3, SIDE, SIDE)
    with torch.no_grad():
        assert torch.allclose(torch_network(path)(images), expected(images), atol=1e-4)


@pytest.mark.slow
def test_our_own_verdict_stands_beside_them(zoo, tmp_path):
    run(zoo, tmp_path / "found.json", "--detectors", "jaxtroj")
    found = read_answers(tmp_path / "found.answers.jsonl")
    assert len(found) == 2 and all(not a.problem and a.seconds > 0 for a in found)


def test_only_networks_that_all_were_asked_about_are_compared(tmp_path):
    out = tmp_path / "answers.jsonl"
    lines = [
        Answer("a", "mm-bd", True, 1, "patch", True, 1, 0.9, 3.0),
        Answer("b", "mm-bd", False, None, "", False, None, 0.2, 5.0),
        Answer("c", "mm-bd", False, None, "", True, 0, 0.99, 4.0),
        Answer("a", "k-arm", True, 1, "patch", problem="ValueError: no"),
        Answer("b", "k-arm", False, None, "", False, None, -9.0, 5.0),
    ]
    out.write_text("".join(json.dumps(vars(line)) + "\n" for line in lines) + '{"model": "cut')
    result = compared(read_answers(out))
    assert result["detectors"]["mm-bd"]["right"] == 1
    arm = result["detectors"]["k-arm"]
    assert (arm["networks"], arm["right"], arm["auc"], arm["failed"]) == (2, 0.5, 0.5, 1)
    assert "| k-arm | 2 | 0.5 | 0.5 |" in text(result)
