"""`jaxtroj detect` on pictures in an .npz archive: the same answers as on a folder of them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxtroj
from jaxtroj.cli.main import main
from jaxtroj.rounds.examples import load_pictures
from jaxtroj.scan.pictures import NAMED
from tests.cli.test_detect_onnx import FORM, QUICK, _write_onnx

pytestmark = pytest.mark.usefixtures("unguarded")

EXAMPLE = Path(jaxtroj.__file__).parent / "data" / "examples" / "clean"
SIDE, CLASSES = 16, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`net.onnx` (sizes open), and `test.npz` with many pictures of its three classes."""
    root = tmp_path_factory.mktemp("archive")
    _write_onnx(root / "net.onnx")
    draw, labels = np.random.default_rng(0), np.arange(300) % CLASSES
    pixels = draw.integers(0, 60, (len(labels), SIDE, SIDE, 3)).astype(np.uint8)
    pixels[np.arange(len(labels)), 3:9, 3:9, labels] += 150
    np.savez_compressed(root / "test.npz", x=pixels, y=labels)
    np.savez(root / "others.npz", x=pixels[:5], y=labels[:5] + CLASSES)
    (root / "broken.npz").write_bytes((root / "test.npz").read_bytes()[:-9])
    (root / "text.npz").write_text("x,y\n")
    return root


def detect(capsys, folder, name, *options):
    words = ("detect", folder / "net.onnx", "--examples", folder / name, *FORM, *QUICK, *options)
    status = main(list(map(str, words)))
    captured = capsys.readouterr()
    return status, json.loads(captured.out) if captured.out else captured.err


def test_the_answer_is_that_of_the_folder(tmp_path):
    own = load_pictures(EXAMPLE / "example_data")
    np.savez(tmp_path / "all.npz", x=own.pixels, y=own.labels)
    found = []
    for examples in (EXAMPLE / "example_data", tmp_path / "all.npz"):
        words = [sys.executable, "-m", "jaxtroj", "detect", EXAMPLE / "model.pt", "--json"]
        words += ["--examples", examples, "--stages", "weights,statistics", "--out", tmp_path]
        result = subprocess.run(words, capture_output=True, text=True, timeout=400)
        assert result.returncode == 0, result.stderr
        found.append(json.loads(result.stdout))
    folder, archive = found
    for name in ("probability", "evidence", "reason", "input_form", "findings"):
        assert folder[name] == archive[name], name


LIMITS = [((), 67), (("--examples-per-class", 4), 4)]


@pytest.mark.parametrize(("options", "each"), LIMITS)
def test_the_first_of_each_class_are_taken_and_the_reason_says_so(capsys, folder, options, each):
    status, found = detect(capsys, folder, "test.npz", *options)
    assert (status, found["status"]) == (0, "ok"), found["reason"]
    taken = f"{CLASSES * each} of the 300 pictures of x were taken, the first {each} of each class"
    assert taken in found["reason"] and found["evidence"]["example_margin"] > 1


def test_they_are_resized(capsys, folder):
    options = ("--resize", 20, "--image-size", "18x18")
    status, found = detect(capsys, folder, "test.npz", *options)
    assert status == 0 and "201 pictures used (x[0] ...): enlarged to 20 pixels" in found["reason"]
    _, found = detect(capsys, folder, "test.npz", "--image-size", "9x9")
    assert "the examples are 16 x 16 pixels, --image-size says 9 x 9" in found["reason"]


def without_examples(capsys, folder):
    words = ("detect", folder / "net.onnx", *FORM, *QUICK)
    assert main(list(map(str, words))) == 2
    return json.loads(capsys.readouterr().out)["reason"]


def test_an_archive_beside_the_model_is_named_and_not_opened(capsys, folder, tmp_path):
    _write_onnx(tmp_path / "net.onnx")
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "loop.npz").symlink_to("loop.npz")
    (tmp_path / ".hidden.npz").write_bytes(b"")
    reason = without_examples(capsys, tmp_path)
    assert reason.endswith(f"a folder example_data there, or pictures that are named: {NAMED}")
    os.mkfifo(tmp_path / "pipe.npz")  # opening it would wait for ever
    (tmp_path / "test.npz").write_bytes(b"no archive, which nobody looks at")
    reason = without_examples(capsys, tmp_path)
    assert reason.endswith(f"{NAMED}; archives lie there that can be named so: 'test.npz'")
    for name in ("Set.NPZ", "set2.npz", "set10.npz"):
        (tmp_path / name).write_bytes(b"")
    reason = without_examples(capsys, tmp_path)
    assert reason.endswith("named so: 'Set.NPZ', 'set2.npz', 'set10.npz' and 1 more")


def test_names_of_archives_are_shown_safely(capsys, tmp_path):
    _write_onnx(tmp_path / "net.onnx")
    (tmp_path / "a\x1b[2J\n; evidence only\udcff.npz").write_bytes(b"")
    (tmp_path / ("b" * 240 + ".npz")).write_bytes(b"")
    reason = without_examples(capsys, tmp_path)
    shown = r"'a\x1b[2J\n, evidence only\udcff.npz', '" + "b" * 40 + "'"
    assert reason.endswith(f"named so: {shown}")


REFUSED = [
    ("others.npz", "an example is of class 5, the model has classes 0 to 2"),
    ("broken.npz", "the zip is truncated: no room for end record"),
]


@pytest.mark.parametrize(("name", "complaint"), REFUSED)
def test_an_archive_that_cannot_be_used_is_one_failed_record(capsys, folder, name, complaint):
    status, found = detect(capsys, folder, name)
    assert (status, found["status"]) == (2, "failed") and complaint in found["reason"]


def test_a_file_that_is_no_archive_is_told_at_once(capsys, folder):
    status, message = detect(capsys, folder, "text.npz")
    assert status == 4 and "text.npz is a file; expected a folder of clean examples" in message
    assert "files of texts go with the Hugging Face folder of a text classifier" in message


def test_a_manifest_names_archives_too(capsys, folder, tmp_path):
    (folder / "nets.csv").write_text("path,examples\nnet.onnx,test.npz\n")
    words = ("scan", folder / "nets.csv", "--out", tmp_path / "run", *FORM, *QUICK[:-1])
    assert main(list(map(str, words))) == 0
    (line,) = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    assert "201 of the 300 pictures of x" in json.loads(line)["reason"]
