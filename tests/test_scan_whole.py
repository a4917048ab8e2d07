"""A whole scan of a small sound model, cheap stages only: the networks' own tests are elsewhere."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from jaxtroj.cli.main import main
from jaxtroj.evidence.images.class_shares import ClassShares
from jaxtroj.record import Record
from jaxtroj.scan.image_limits import (
    frequent_target,
    only_signs,
    signs_left_out,
    standing_out,
)
from jaxtroj.store import RunStore, read_records

pytestmark = pytest.mark.usefixtures("unguarded")

CLASSES, PIXELS = 3, 32


def narrow_resnet(seed: int, classes: int = CLASSES) -> dict[str, np.ndarray]:
    """Random torch-named weights of a ResNet-18 of widths 8, 8, 8, 8."""
    random = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}

    def conv(name: str, norm: str, size: int, channels: int) -> None:
        kernel = random.normal(size=(8, channels, size, size)) / np.sqrt(channels * size * size)
        tensors[f"{name}.weight"] = kernel.astype(np.float32)
        for part, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
            tensors[f"{norm}.{part}"] = np.full(8, value, np.float32)

    conv("conv1", "bn1", 7, 3)
    for layer in range(1, 5):
        for block in range(2):
            home = f"layer{layer}.{block}"
            for k in (1, 2):
                conv(f"{home}.conv{k}", f"{home}.bn{k}", 3, 8)
            if layer > 1 and block == 0:
                conv(f"{home}.downsample.0", f"{home}.downsample.1", 1, 8)
    tensors["fc.weight"] = random.normal(size=(classes, 8)).astype(np.float32)
    tensors["fc.bias"] = np.zeros(classes, np.float32)
    return tensors


def write_model(home: Path, seed: int) -> None:
    (home / "example_data").mkdir(parents=True)
    save_file(narrow_resnet(seed), home / "model.pt")
    random = np.random.default_rng(seed)
    for label in range(CLASSES):
        for number in range(4):
            pixels = random.integers(0, 256, (PIXELS, PIXELS, 3), dtype=np.uint8)
            path = home / "example_data" / f"class_{label}_example_{number}.png"
            Image.fromarray(pixels).save(path)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("round")
    for number in range(2):
        write_model(folder / f"id-{number:08d}", number)
    return folder


def run(*arguments) -> int:
    return main([str(word) for word in arguments])


def found(capsys) -> list[dict]:
    lines = capsys.readouterr().out.splitlines()
    return [json.loads(line, parse_constant=pytest.fail) for line in lines]


def calibrator_for(folder: Path) -> Path:
    """A calibrator fitted through the command line on made-up evidence of the weights stage."""
    from jaxtroj.evidence.stages import IMAGES

    random = np.random.default_rng(0)
    truth = ["model,poisoned"]
    with RunStore(folder / "run", {"made": "up"}) as store:
        for number in range(24):
            poisoned = number % 2
            evidence = {
                name: random.normal() + 3 * poisoned for name in IMAGES.stage_fields["weights"]
            }
            name = f"id-{number:08d}"
            truth.append(f"{name},{poisoned}")
            record = Record(name, "", 0.5, False, None, (), "ok", "", evidence=evidence)
            store.append(record)
    (folder / "truth.csv").write_text("\n".join(truth))
    path = folder / "calibrator.json"
    assert run("calibrate", folder / "run", "--truth", folder / "truth.csv", "--out", path) == 0
    return path


def test_a_model_answers_the_same_alone_and_in_a_folder(dataset, tmp_path, capsys):
    options = ("--evidence-only", "--stages", "weights", "--json")
    assert run("scan", dataset, "--out", tmp_path / "run", *options) == 0
    in_folder = found(capsys)
    assert run("detect", dataset / "id-00000001", *options) == 0
    (alone,) = found(capsys)
    assert [record["status"] for record in in_folder] == ["ok", "ok"]
    assert in_folder[1]["evidence"] == alone["evidence"] != in_folder[0]["evidence"]
    assert in_folder[1]["sha256"] == alone["sha256"]
    assert alone["probability"] == 0.5 and alone["seconds"]["weights"] >= 0
    assert [r.architecture for r in read_records(tmp_path / "run")] == ["resnet18"] * 2


def test_calibrated_detection(dataset, tmp_path, capsys):
    path = calibrator_for(tmp_path)
    capsys.readouterr()
    options = ("--stages", "weights", "--json", "--calibrator", path)
    assert run("detect", dataset / "id-00000000", *options) in (0, 1)
    (even,) = found(capsys)
    result = tmp_path / "result.txt"
    nist = ("--model_filepath", dataset / "id-00000000" / "model.pt", "--result_filepath", result)
    assert run("detect", *options, *nist, "--base-rate", "0.01") in (0, 1)
    (rare,) = found(capsys)
    assert 0 < rare["probability"] < even["probability"] < 1
    assert float(result.read_text()) == rare["probability"]
    assert even["reason"] and even["poisoned"] == (even["probability"] > 0.5)


def leaning_calibrator(folder: Path) -> Path:
    """A pooled calibrator of made-up evidence: only poisoned networks have a class that leads."""
    from jaxtroj.calibration import Calibrator, Labelled, Scheme

    random = np.random.default_rng(0)
    truth = [bool(number % 2) for number in range(40)]
    rows = [{"head_lead": 0.3 * bad + 0.01 * abs(random.normal())} for bad in truth]
    names = ["resnet18"] * len(rows)
    scheme = Scheme(
        {"weights": ("head_lead",)},
        {"head_lead": 1},
        searches={"head_lead": "head lead"},
        is_pooled=True,
    )
    path = folder / "leaning.json"
    Calibrator.fit(Labelled(rows, truth, names), scheme).save(path)
    return path


def test_a_poisoned_verdict_names_the_class_of_a_loud_sign(tmp_path, capsys):
    home = tmp_path / "id-00000000"
    write_model(home, 3)
    tensors = narrow_resnet(3)
    tensors["fc.weight"] = np.eye(CLASSES, 8, dtype=np.float32) * [[1], [-1], [1]]
    tensors["fc.weight"][1] += 1
    save_file(tensors, home / "model.pt")
    options = ("--stages", "weights", "--json", "--calibrator", leaning_calibrator(tmp_path))
    assert run("detect", home, *options) == 1
    (record,) = found(capsys)
    assert record["poisoned"] and record["evidence"]["head_lead_class"] == 1
    assert record["target_class"] == 1 and record["source_classes"] == []


def test_a_calibrator_of_other_evidence_is_a_failed_record(dataset, tmp_path, capsys):
    path = calibrator_for(tmp_path)
    content = path.read_text().replace("head_mean_outlier", "head_other_outlier")
    path.write_text(content)
    capsys.readouterr()
    options = ("--stages", "weights", "--json", "--calibrator", path, "--no-early-stop")
    assert run("detect", dataset / "id-00000000", *options) == 2
    (record,) = found(capsys)
    assert record["probability"] == 0.5 and record["evidence"]
    assert "calibrator" in record["reason"]


def test_examples_that_do_not_fit_are_a_failed_record(dataset, tmp_path, capsys):
    Image.new("RGB", (PIXELS, PIXELS)).save(tmp_path / "class_9_example_0.png")
    arguments = ("--evidence-only", "--examples", tmp_path, "--json")
    assert run("detect", dataset / "id-00000000", *arguments) == 2
    assert "class" in found(capsys)[0]["reason"]


def test_calibrate_says_when_there_is_too_little(tmp_path, capsys):
    with RunStore(tmp_path / "run", {"made": "up"}) as store:
        store.append(Record("a", "", 0.5, False, None, (), "ok", "", evidence={"x": 1.0}))
    (tmp_path / "truth.csv").write_text("a,1")
    arguments = ("--truth", tmp_path / "truth.csv", "--out", tmp_path / "calibrator.json")
    assert run("calibrate", tmp_path / "run", *arguments) == 4
    assert "at least 10 models" in capsys.readouterr().err
    assert not (tmp_path / "calibrator.json").exists()


def test_of_very_many_classes_the_line_says_what_was_searched(tmp_path, capsys):
    """And that two of fifty class folders do not say which classes they are of."""
    save_file(narrow_resnet(0, 50), tmp_path / "model.pt")
    random = np.random.default_rng(0)
    for folder in ("n01440764", "n02123045"):
        (tmp_path / "pictures" / folder).mkdir(parents=True)
        for number in range(3):
            pixels = random.integers(0, 256, (40, 40, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / folder / f"{number}.png")
    given = ("--examples", tmp_path / "pictures", "--stages", "weights,probes")
    run("detect", tmp_path / "model.pt", *given)
    line = capsys.readouterr().out
    # Two classes of fifty: what batch norms remember is not compared with them.
    assert "network of 50 classes, only of 8 to 43" in line
    assert "examples show too little of its classes: their evidence counts 30%" in line
    assert "of its 50 classes only those that are easiest to reach were searched as targets" in line
    assert "classes-unknown: 2 class folders (n01440764, n02123045)" in line


@pytest.mark.parametrize(
    ("kind", "rate", "classes", "said"),
    [
        ("patch", 1.0, 1000, "yet a patch was found that sends 100% of the held-out examples to"),
        ("window", 0.9, 45, "yet a window was found that sends 90% of the held-out examples to"),
        ("patch", 0.89, 1000, ""),
        ("patch", 1.0, 44, ""),
        ("colour map", 1.0, 1000, ""),
    ],
)
def test_a_small_trigger_that_works_in_very_many_classes_is_said(kind, rate, classes, said):
    trigger: Any = SimpleNamespace(
        attack_success_rate=rate, target_class=7, trigger=SimpleNamespace(kind=kind)
    )
    context: Any = SimpleNamespace(model=SimpleNamespace(num_classes=classes))
    found = standing_out(trigger, context)
    assert found.startswith(said) and bool(found) == bool(said)
    assert not said or "class 7" in found


@pytest.mark.parametrize(
    ("poisoned", "target", "served", "said"),
    [
        (True, 3, 3, ""),
        (True, 3, 5, "the trigger found serves class 5, only signs name class 3: a class of many"),
        (True, 3, None, "only signs name class 3: a class of many more training pictures than"),
        (True, None, 5, ""),
        (False, None, 5, ""),
    ],
)
def test_a_class_that_only_signs_name_is_said_with_what_else_makes_them(
    poisoned, target, served, said
):
    trigger: Any = None if served is None else SimpleNamespace(target_class=served)
    verdict: Any = SimpleNamespace(poisoned=poisoned, target_class=target)
    found = only_signs(verdict, trigger, asks_counts=True)
    assert found.startswith(said) and bool(found) == bool(said)
    assert only_signs(verdict, trigger, asks_counts=False) == found.partition(":")[0]


@pytest.mark.parametrize(
    ("poisoned", "target", "explained", "counts", "said"),
    [
        (True, 3, 0.9, None, "by what batch norms remember, 60% of the training pictures were of"),
        (True, 3, 0.4, None, "by how often it is the answer, training had many more pictures of"),
        (True, 3, None, None, "by how often it is the answer"),
        (True, 3, None, (5, 5, 5, 30, 5), "as was said, 60% of the training pictures were of"),
        (True, 2, 0.9, None, ""),
        (True, None, 0.9, None, ""),
        (False, 3, 0.9, None, ""),
    ],
)
def test_a_target_that_training_had_most_pictures_of_is_said(
    poisoned, target, explained, counts, said
):
    verdict: Any = SimpleNamespace(poisoned=poisoned, target_class=target)
    shares = np.array([0.1, 0.1, 0.1, 0.6, 0.1])
    known = None if explained is None else ClassShares(shares, explained)
    frequent = np.arange(5) == 3
    context: Any = SimpleNamespace(
        known=lambda _: known, shared=lambda _: frequent, class_counts=counts
    )
    found = frequent_target(verdict, context)
    assert found.startswith(said) and bool(found) == bool(said)


@pytest.mark.parametrize(
    ("poisoned", "frequent", "said"),
    [
        (False, [0, 3], "signs of classes 0, 3 as target do not count"),
        (False, [], ""),
        (False, [0, 1, 3], ""),  # too few others: all were compared
        (True, [0], ""),
    ],
)
def test_a_clean_answer_says_whose_signs_were_left_out(poisoned, frequent, said):
    context: Any = SimpleNamespace(shared=lambda _: np.isin(np.arange(5), frequent))
    found = signs_left_out(cast("Any", SimpleNamespace(poisoned=poisoned)), context)
    assert found.startswith(said) and bool(found) == bool(said)


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ("50,5,5", "training had many more pictures of class 0 than of others"),
        ("50,5", "class counts are given for 2 classes, and the network has 3: they are not used"),
    ],
)
def test_what_was_said_of_the_classes_is_among_the_findings(
    dataset, tmp_path, capsys, counts, said
):
    (tmp_path / "counts.txt").write_text(counts.replace(",", "\n"))
    options = ("--evidence-only", "--stages", "weights", "--json")
    fields = []
    for source in (counts, tmp_path / "counts.txt"):
        assert run("detect", dataset / "id-00000001", "--class-counts", source, *options) == 0
        (record,) = found(capsys)
        assert sum(finding.startswith(said) for finding in record["findings"]) == 1
        fields.append(record["evidence"])
    assert fields[0] == fields[1]
