"""`jaxtroj backgrounds` as people call it."""

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from PIL import Image
from torchvision.models import DenseNet

from converters.checkpoint import save_checkpoint
from jaxtroj.backgrounds import run_folder
from jaxtroj.backgrounds.candidates import Request, load_candidates
from jaxtroj.backgrounds.layout import BACKGROUNDS, CLASSES
from jaxtroj.backgrounds.normalization import NAMED
from jaxtroj.backgrounds.results import read_results
from jaxtroj.cli import backgrounds
from jaxtroj.cli.main import main
from jaxtroj.errors import EvidenceError

pytestmark = pytest.mark.usefixtures("unguarded")


@pytest.fixture(scope="module")
def saved(models, tmp_path_factory):
    """Checkpoints by architecture and head, and a mapping file."""
    folder = tmp_path_factory.mktemp("models")
    for (kind, size), model in models.items():
        save_checkpoint(model, folder / f"{kind}{size}")
    return folder


@pytest.fixture(scope="module")
def mapping_file(mapping, tmp_path_factory):
    path = tmp_path_factory.mktemp("mapping") / "in_to_in9.json"
    path.write_text(json.dumps({str(i): int(c) for i, c in enumerate(mapping.class_of)}))
    return path


def run(*words) -> int:
    return main(["backgrounds", *map(str, words)])


def test_evaluate_writes_all_variants_of_all_models(saved, whole_folder, tmp_path, capsys):
    out = tmp_path / "in9.json"
    names = ["resnet9", "densenet9"]
    assert run("evaluate", *(saved / n for n in names), whole_folder, "--out", out) == 0
    shown = capsys.readouterr().out
    assert shown.count("Accuracy on mixed_rand is") == 2 and shown.count("BG-Gap") == 2
    assert "not comparable with published figures: pictures are 24 x 24" in shown
    results = json.loads(out.read_text())
    assert [result["model"] for result in results] == names
    for result in results:
        assert len(result["variants"]) == 8 and not result["comparable"]
        counts = np.array(result["variants"]["original"]["counts"])
        assert counts.shape == (9, 10) and counts.sum() == 27
        accuracy = np.trace(counts[:, 1:]) / 27
        assert result["variants"]["original"]["accuracy"] == pytest.approx(accuracy)
        shares = [result["variants"][f"mixed_{v}"]["accuracy"] for v in ("same", "rand")]
        assert result["bg_gap"] == pytest.approx(shares[0] - shares[1])


def test_a_network_of_1000_classes_is_mapped(saved, whole_folder, mapping_file, capsys):
    words = ("evaluate", saved / "resnet1000", whole_folder, "--variants", "original", "--json")
    assert run(*words, "--mapping", mapping_file) == 0
    captured = capsys.readouterr()
    assert "is not the published mapping" in captured.err
    result = json.loads(captured.out)
    assert result["num_classes"] == 1000 and result["normalization"]["name"] == "imagenet"
    assert result["variants"]["original"]["accuracy"] > 0.5
    assert run(*words) == 4
    assert "needs --mapping FILE" in capsys.readouterr().err


def test_a_torch_file_is_a_model_too(whole_folder, tmp_path, capsys):
    torch.manual_seed(0)
    blocks: Any = (1, 1)  # torchvision says four; it takes as many as a picture has room for
    network = DenseNet(4, blocks, 8, num_classes=9).eval()
    torch.save(network.state_dict(), tmp_path / "model.pt")
    words = ("evaluate", tmp_path / "model.pt", whole_folder, "--variants", "original", "--json")
    assert run(*words, "--normalization", "half") == 0
    counts = np.array(json.loads(capsys.readouterr().out)["variants"]["original"]["counts"])
    paths = sorted((whole_folder / "original").rglob("*.JPEG"))
    pixels = np.stack([np.asarray(Image.open(path)) for path in paths]).transpose(0, 3, 1, 2)
    with torch.no_grad():
        winners = network(torch.tensor(pixels / 255.0 * 2 - 1, dtype=torch.float32)).argmax(1)
    assert counts.sum(0)[1:].tolist() == np.bincount(winners.numpy(), minlength=9).tolist()


def write_onnx(path, *, first="Identity") -> np.ndarray:
    """A network that weighs the mean colour of the picture after one operator; the weights."""
    weights = np.random.default_rng(0).normal(0, 1, (9, 3)).astype(np.float32)
    nodes = [
        onnx.helper.make_node(first, ["x"], ["changed"]),
        onnx.helper.make_node("GlobalAveragePool", ["changed"], ["pooled"]),
        onnx.helper.make_node("Flatten", ["pooled"], ["flat"]),
        onnx.helper.make_node("Gemm", ["flat", "w"], ["logits"], transB=1),
    ]
    make, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [make("x", kind, ["n", 3, "h", "w"])],
        [make("logits", kind, ["n", 9])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return weights


def test_an_onnx_file_is_a_model_too(whole_folder, tmp_path, capsys):
    weights = write_onnx(tmp_path / "m.onnx")
    words = ("evaluate", tmp_path / "m.onnx", whole_folder, "--variants", "original", "--json")
    assert run(*words, "--normalization", "half") == 0
    counts = np.array(json.loads(capsys.readouterr().out)["variants"]["original"]["counts"])
    paths = sorted((whole_folder / "original").rglob("*.JPEG"))
    means = np.stack([np.asarray(Image.open(path)).mean((0, 1)) for path in paths]) / 255
    winners = ((means * 2 - 1) @ weights.T).argmax(1)
    assert counts.sum(0)[1:].tolist() == np.bincount(winners, minlength=9).tolist()


@pytest.mark.parametrize(
    ("action", "said"),
    [("evaluate", "Accuracy on original is"), ("challenge", "are vulnerable foregrounds")],
)
def test_a_network_that_fails_does_not_cost_the_others(
    saved, challenge_folder, tmp_path, capsys, action, said
):
    write_onnx(tmp_path / "log.onnx", first="Log")  # of normalised pixels, half of them negative
    networks = (tmp_path / "log.onnx", saved / "resnet9")
    words = ("--variants", "original") if action == "evaluate" else ("--backgrounds", "9")
    out = tmp_path / "out"
    assert run(action, *networks, challenge_folder, *words, "--out", out) == 2
    captured = capsys.readouterr()
    assert "error: log.onnx: the network computes NaN" in captured.err
    assert captured.out.count(said) == 1 and captured.out.startswith("resnet9 ")
    written = out if action == "evaluate" else out / "resnet9" / "result.json"
    assert [result["model"] for result in read_results(written)] == ["resnet9"]


def test_what_fills_up_a_batch_is_no_picture_of_the_network(tmp_path):
    """One over the mean colour is not finite for black pictures alone, which are the padding."""
    write_onnx(tmp_path / "inverse.onnx", first="Reciprocal")
    (candidate,) = load_candidates(
        [tmp_path / "inverse.onnx"],
        Request(normalization=NAMED["none"], batch_size=8),
        (4, 4),
    )
    pictures = np.random.default_rng(1).integers(1, 256, (9, 4, 4, 3), dtype=np.uint8)
    assert len(candidate.classifier.classify(pictures)) == 9
    pictures[3] = 0
    with pytest.raises(EvidenceError, match="computes NaN for some pictures"):
        candidate.classifier.classify(pictures)


@pytest.fixture(scope="module")
def finished(saved, challenge_folder, tmp_path_factory):
    """A run folder of many blocks, and its result."""
    out = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder, "_FLUSH_SECONDS", 0.0)
        patch.setattr(backgrounds, "guarded", lambda args, body, what: body(args))  # or it is lost
        assert run("challenge", saved / "resnet9", challenge_folder, "--out", out) == 0
    return out / "resnet9", json.loads((out / "resnet9" / "result.json").read_text())


def copied(finished, tmp_path):
    return shutil.copytree(finished[0], tmp_path / "runs" / "resnet9").parent


def test_challenge_reports_the_number(finished):
    _, result = finished
    assert result["foregrounds"] == result["backgrounds"] == 180
    fooled = [name for name, by in result["fooled_by"].items() if by]
    assert result["vulnerable"] == len(fooled) == round(180 * (1 - result["challenge_accuracy"]))
    each = np.mean([result["per_class"][name] for name in CLASSES])
    assert each == pytest.approx(result["challenge_accuracy"])
    assert result["pairs"] == result["passes"] < 180 * 180 and not result["is_upper_bound"]
    assert "180 backgrounds, the published set has 4050" in result["reservations"]


def test_a_stopped_run_goes_on_where_it_was(finished, saved, challenge_folder, tmp_path, capsys):
    out = copied(finished, tmp_path)
    pairs = out / "resnet9" / "pairs.jsonl"
    lines = pairs.read_bytes().splitlines(keepends=True)
    assert len(lines) > 10
    pairs.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[-1][:30])
    (out / "resnet9" / "result.json").unlink()
    words = ("challenge", saved / "resnet9", challenge_folder, "--out", out, "--json")
    assert run(*words) == 0
    result = json.loads(capsys.readouterr().out)
    assert {n for n, by in result["fooled_by"].items() if by} == {
        n for n, by in finished[1]["fooled_by"].items() if by
    }
    assert 0 < result["passes"] < result["pairs"]
    assert run(*words) == 0
    assert json.loads(capsys.readouterr().out)["passes"] == 0


def test_the_matrix_goes_on_from_the_number(finished, saved, challenge_folder, tmp_path, capsys):
    out = copied(finished, tmp_path)
    words = ("challenge", saved / "resnet9", challenge_folder, "--out", out, "--matrix")
    assert run(*words) == 0
    assert "without backgrounds of the own class" in capsys.readouterr().out
    result = json.loads((out / "resnet9" / "result.json").read_text())
    assert result["pairs"] == 180 * 180 and result["passes"] == 180 * 180 - finished[1]["pairs"]
    found = result["matrix"]
    assert found["challenge_accuracy"] == result["challenge_accuracy"]
    assert found["challenge_accuracy_without_own_class"] >= found["challenge_accuracy"]
    assert len(found["fooling_rates"]) == 180 and len(found["most_adversarial"]) == 9
    matrix = np.load(out / "resnet9" / "matrix.npy")
    assert matrix.shape == (180, 180) and matrix.min() >= -1
    with Image.open(out / "resnet9" / "most_adversarial.png") as picture:
        assert picture.width > 500
    assert run(*words[:-1]) == 0
    again = json.loads((out / "resnet9" / "result.json").read_text())
    assert again["matrix"] == found and again["passes"] == 0


def test_another_network_needs_another_folder(finished, saved, challenge_folder, tmp_path, capsys):
    out = copied(finished, tmp_path)
    words = ("challenge", saved / "resnet9", challenge_folder, "--out", out)
    assert run(*words, "--normalization", "half") == 4
    error = capsys.readouterr().err
    assert "made with other settings: normalization." in error and "now 'half'" in error


def test_a_bound_is_called_one(saved, challenge_folder, capsys):
    words = ("challenge", saved / "densenet9", challenge_folder, "--backgrounds", "18")
    assert run(*words) == 0
    shown = capsys.readouterr().out
    assert "Challenge accuracy at most" in shown
    assert "upper bound: 18 of 180 backgrounds were tried" in shown


def test_leaderboard_takes_results_of_both_kinds(finished, saved, whole_folder, tmp_path, capsys):
    in9 = tmp_path / "in9.json"
    assert run("evaluate", saved / "resnet9", whole_folder, "--out", in9) == 0
    capsys.readouterr()
    assert run("leaderboard", finished[0] / "result.json", in9) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("resnet9 ")]
    assert len(lines) == 2
    challenge = f"{100 * finished[1]['challenge_accuracy']:.1f}"
    assert challenge in lines[0] and "-" not in lines[0].split("run")[1]


def test_figures_are_printed_where_they_cannot_be_written(saved, whole_folder, tmp_path, capsys):
    (tmp_path / "file").touch()
    out = tmp_path / "file" / "r.json"
    words = ("evaluate", saved / "resnet9", whole_folder, "--variants", "original", "--out", out)
    assert run(*words) == 4
    said = capsys.readouterr()
    assert "Accuracy on original" in said.out and f"cannot write {out}" in said.err


def no_variant(folder):
    shutil.rmtree(folder / BACKGROUNDS)


def broken(folder):
    (folder / BACKGROUNDS / "val" / CLASSES[8] / "n0008_002.JPEG").write_bytes(b"\xff\xd8\xff")


@pytest.mark.parametrize("fault, name", [(no_variant, BACKGROUNDS), (broken, "n0008_002.JPEG")])
def test_bad_data_is_one_line_and_no_output(saved, whole_folder, tmp_path, capsys, fault, name):
    folder = shutil.copytree(whole_folder, tmp_path / "in9")
    fault(folder)
    out = tmp_path / "out"
    assert run("evaluate", saved / "resnet9", folder, "--out", out) == 4
    assert run("challenge", saved / "resnet9", folder, "--out", out) == 4
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert len(lines) == 2 and all(line.startswith("jaxtroj: error:") for line in lines)
    assert all(name in line for line in lines)
    assert not captured.out and not out.exists()


WRONG = {
    "in9": (["--in9"], "resnet1000", "this one has 1000"),
    "restricted": (["--restrict-to-mapped"], "resnet9", "this one has 9"),
    "mean_alone": (["--mean", "0,0,0"], "resnet9", "--mean and --std go together"),
    "two_ways": (["--mean", "0,0,0", "--std", "1,1,1", "--normalization", "in9"], "resnet9",
                 "give one of"),
    "zero_std": (["--mean", "0,0,0", "--std", "1,0,1"], "resnet9", "std above 0"),
    "no_mapping": (["--mapping", "absent.json"], "resnet9", "absent.json"),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_contradictions_are_usage_errors(saved, whole_folder, capsys, kind):
    options, model, reason = WRONG[kind]
    assert run("evaluate", saved / model, whole_folder, *options) == 4
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize("variants", ["orginal", "original,original", ","])
def test_unknown_variants_are_usage_errors(saved, whole_folder, capsys, variants):
    assert run("evaluate", saved / "resnet9", whole_folder, "--variants", variants) == 4
    assert "expected different ones of original" in capsys.readouterr().err


def test_a_model_that_is_none(whole_folder, tmp_path, capsys):
    (tmp_path / "model.pt").write_text("hello")
    assert run("evaluate", tmp_path / "model.pt", whole_folder) == 2
    assert "model.pt" in capsys.readouterr().err


def test_help_loads_no_jax():
    code = (
        "import sys; from jaxtroj.cli.main import main; main(['backgrounds', '--help']);"
        "sys.exit('jax' in sys.modules or 'cv2' in sys.modules)"
    )
    environment = {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert "jaxtroj backgrounds challenge" in done.stdout and "--matrix" in done.stdout
