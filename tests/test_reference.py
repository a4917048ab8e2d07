"""A clean network beside the one that is scanned: read, compared, refused, and in the identity."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from jaxtroj import populations
from jaxtroj.populations import Asked
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan import identify, scan_model
from jaxtroj.settings import DEFAULT_CALIBRATOR, Settings, choice_of, digest_or_reason

SIDE, CLASSES = 12, 4
FIELDS = ("reference_lean", "reference_lean_source", "reference_lean_class")


def network(seed: int, classes: int = CLASSES, lean: float = 0.0) -> torch.nn.Module:
    """Class k where colour k is bright; colour 2 lifts class 1 too, by `lean`."""
    torch.manual_seed(seed)
    first, last = torch.nn.Conv2d(3, 6, 1, bias=False), torch.nn.Linear(6, classes)
    with torch.no_grad():
        first.weight.copy_((torch.eye(6, 3) + 0.02 * torch.randn(6, 3)).reshape(6, 3, 1, 1))
        last.weight.copy_(12 * torch.eye(classes, 6) + 0.3 * torch.randn(classes, 6))
        last.weight[1, 2] += lean
    pooled = (torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    module = torch.nn.Sequential(first, *pooled, last)
    return module.eval()


def save(module: torch.nn.Module, path: Path) -> None:
    torch.export.save(torch.export.export(module, (torch.zeros(1, 3, SIDE, SIDE),)), path)


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("reference")
    save(network(0), root / "model.pt2")
    save(network(0, lean=9.0), root / "leaning.pt2")
    save(network(1), root / "clean.pt2")
    save(network(2, classes=3), root / "three.pt2")
    (root / "broken.pt").write_bytes(b"PK\x03\x04" + b"\0" * 40)
    rng = np.random.default_rng(0)
    (root / "examples").mkdir()
    for label in range(CLASSES):
        for number in range(5):
            pixels = rng.integers(0, 60, (SIDE, SIDE, 3), np.uint8)
            pixels[..., label % 3] += 150 if label < 3 else 0
            Image.fromarray(pixels).save(root / "examples" / f"class_{label}_example_{number}.png")
    return root


def settings(home: Path, name: str | None) -> Settings:
    return Settings(
        stages=("weights", "reference") if name else ("weights",),
        calibrator=None,
        early_stop=False,
        channel_order="RGB",
        normalization="unit",
        reference=home / name if name else None,
    )


def scanned(home: Path, model: str, beside: str | None):
    entry = ModelEntry(model, home / model, home / "examples", None)
    return scan_model(entry, settings(home, beside))


def test_a_pair_that_leans_is_measured_and_named(home):
    plain, leaning = (scanned(home, model, "clean.pt2") for model in ("model.pt2", "leaning.pt2"))
    for record in (plain, leaning):
        assert record.status == "ok", record.reason
        assert set(FIELDS) <= set(record.evidence)
        assert f"compared with the reference {home / 'clean.pt2'}" in record.findings
        assert {"reference file", "reference"} <= set(record.seconds)
    assert leaning.evidence["reference_lean"] > plain.evidence["reference_lean"]
    assert [leaning.evidence[name] for name in FIELDS[1:]] == [2.0, 1.0]


@pytest.mark.parametrize(
    "beside, says",
    [
        ("model.pt2", "reference-unsuited: it is this file"),
        ("three.pt2", "three.pt2 has 3 classes, the model 4"),
    ],
)
def test_a_network_that_does_not_suit_is_left_out_and_said(home, beside, says):
    record = scanned(home, "model.pt2", beside)
    assert record.status == "ok" and any(says in finding for finding in record.findings)
    assert not set(FIELDS) & set(record.evidence)
    alone = scanned(home, "model.pt2", None)
    assert record.evidence == alone.evidence


def test_a_reference_that_no_stage_looks_at_is_not_said_to_be_compared_with(home):
    entry = ModelEntry("model.pt2", home / "model.pt2", home / "examples", None)
    record = scan_model(entry, replace(settings(home, "clean.pt2"), stages=("weights",)))
    assert record.status == "ok"
    said = [finding for finding in record.findings if "reference" in finding]
    assert said == ["reference-unsuited: the stages that were run do not look at it"]


def test_a_file_that_is_no_network_is_an_error_that_names_it(home):
    record = scanned(home, "model.pt2", "broken.pt")
    assert record.status == "failed"
    assert record.reason.startswith(f"the reference {home / 'broken.pt'} cannot be read")


def test_without_known_classes_nothing_is_compared(home, tmp_path):
    for number, path in enumerate(sorted((home / "examples").glob("*.png"))):
        (tmp_path / f"{number}.png").write_bytes(path.read_bytes())
    entry = ModelEntry("model.pt2", home / "model.pt2", tmp_path, None)
    record = scan_model(entry, settings(home, "clean.pt2"))
    assert record.status == "ok"
    assert "reference-unsuited: the class of no example is known" in record.findings


def test_an_answer_depends_on_the_reference_s_content(home, tmp_path):
    entry = ModelEntry("model.pt2", home / "model.pt2", home / "examples", None)
    copy = tmp_path / "other_name.pt2"
    copy.write_bytes((home / "clean.pt2").read_bytes())
    first, none = (identify(entry, settings(home, name)) for name in ("clean.pt2", None))
    assert first not in (none, identify(entry, settings(home, "leaning.pt2")))
    same = identify(entry, replace(settings(home, "clean.pt2"), reference=copy))
    assert same == first, "a name changes nothing"
    assert "reference" not in settings(home, None).as_json()


def test_a_calibrator_of_its_own_answers_beside_a_reference(home):
    found = Settings(reference=home / "clean.pt2")
    beside = populations.BY_NAME["general"].beside_path
    alone, other = (choice_of(found, Asked(has_reference=has)) for has in (False, True))
    assert alone is not None and alone.path == DEFAULT_CALIBRATOR
    assert other is not None and other.path == beside and "beside a reference" in other.why
    assert found.as_json()["beside_calibrators"] == [digest_or_reason(beside)]
    own = Settings(calibrator=populations.BY_NAME["round0"].path, reference=home / "clean.pt2")
    named = choice_of(own, Asked(has_reference=True))
    assert named is not None and named.path == own.calibrator, "one that is named stays"


def test_a_calibrator_of_its_own_answers_for_networks_without_batch_norms(home, tmp_path):
    found, own = Settings(), populations.BY_NAME["general"].without_norms_path
    known = [choice_of(found, Asked(has_batch_norm=has)) for has in (None, True, False)]
    assert [one.path for one in known if one] == [DEFAULT_CALIBRATOR, DEFAULT_CALIBRATOR, own]
    assert known[2] is not None and known[2].why.endswith(
        "without batch norms to compare examples with"
    )
    assert found.as_json()["without_norms_calibrators"] == [digest_or_reason(own)]
    beside = replace(found, reference=home / "clean.pt2")
    compared = choice_of(beside, Asked(has_reference=True, has_batch_norm=False))
    assert compared is not None and compared.path == populations.BY_NAME["general"].beside_path
    mine = tmp_path / "mine.json"
    mine.write_bytes(DEFAULT_CALIBRATOR.read_bytes())
    named = choice_of(replace(found, calibrator=mine), Asked(has_batch_norm=False))
    assert named is not None and named.path == mine, "one that is named stays"
    assert "without_norms_calibrators" not in Settings(calibrator=None).as_json()


@pytest.mark.parametrize("given, says", [("nowhere.pt", "absent"), (os.devnull, "a device")])
def test_the_command_refuses_what_is_no_file(home, given, says):
    command = [sys.executable, "-m", "jaxtroj", "detect", str(home / "model.pt2")]
    done = subprocess.run(
        [*command, "--reference", given], capture_output=True, text=True, cwd=home, timeout=120
    )
    assert done.returncode == 4 and f"--reference {given} is {says}" in done.stderr
