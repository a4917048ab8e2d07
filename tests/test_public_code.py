"""Whose code a state dict is of, where two name theirs alike: told by examples, or refused."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import jaxtroj
from converters.errors import SharedNamesError
from converters.public_codes import HUYVNPHAN, MIXMATCH, NO_FIRST_POOL, XTERNALZ
from jaxtroj.cli.main import main
from jaxtroj.errors import UsageError
from jaxtroj.form_choice import Tried
from jaxtroj.input_forms import PixelForm
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan import identify, scan_model
from jaxtroj.scan.public_code import clearly_best
from jaxtroj.settings import Settings
from jaxtroj.verdict import ScanError
from tests.converters.public_networks import NETWORKS, SHARED, Wide, small_stem

pytestmark = pytest.mark.usefixtures("unguarded", "quick_compilation")

SIDE, CLASSES, EACH = 12, 5, 8
SETTINGS = Settings(
    stages=("weights", "statistics"), calibrator=None, early_stop=False, channel_order="RGB",
    normalization="unit",
)  # fmt: skip
BUILDS = {
    "xternalz": lambda: Wide(2, 2),
    "mixmatch": lambda: Wide(2, 2, is_leaky=True),
    "no-first-pool": small_stem,
    "huyvnphan": lambda: small_stem(has_pool=True),
}


def learnt(build, pixels: np.ndarray, labels: np.ndarray) -> torch.nn.Module:
    """A network that classifies these pictures as labelled, in evaluation mode."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = build().train()
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255
    truth = torch.from_numpy(labels)
    steps, rate = (60, 0.01) if isinstance(network, Wide) else (45, 0.002)
    optimiser = torch.optim.Adam(network.parameters(), rate)
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(network(images), truth)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    network.eval()
    assert (network(images).argmax(1) == truth).float().mean() > 0.9
    return network


def taught_pictures() -> tuple[np.ndarray, np.ndarray]:
    """A faint pattern of its class behind the noise of each picture: hard enough to tell codes."""
    random = np.random.default_rng(0)
    patterns = random.integers(0, 50, (CLASSES, SIDE, SIDE, 3))
    labels = np.repeat(np.arange(CLASSES), EACH)
    noise = random.integers(0, 200, (len(labels), SIDE, SIDE, 3))
    return (patterns[labels] + noise).astype(np.uint8), labels


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    """A folder with `NAME.pt` of each code and `examples`, and `unnamed` without their classes."""
    root = tmp_path_factory.mktemp("codes")
    pixels, labels = taught_pictures()
    for name, build in BUILDS.items():
        torch.save(learnt(build, pixels, labels).state_dict(), root / f"{name}.pt")
    for folder in ("examples", "unnamed", "few"):
        (root / folder).mkdir()
    for number, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        image = Image.fromarray(picture)
        image.save(root / "examples" / f"class_{label}_example_{number}.png")
        image.save(root / "unnamed" / f"{number}.png")
        if number % EACH == 0:
            image.save(root / "few" / f"class_{label}_example_{number}.png")
    return root


def entry(home: Path, name: str, examples: str = "examples") -> ModelEntry:
    return ModelEntry(name, home / f"{name}.pt", home / examples, None)


def told(findings) -> list[str]:
    return [finding for finding in findings if finding.startswith("public code")]


@pytest.mark.parametrize("name", BUILDS)
def test_labelled_examples_tell_whose_it_is(name, home):
    record = scan_model(entry(home, name), SETTINGS)
    assert record.status == "ok", record.reason
    (finding,) = told(record.findings)
    assert finding.startswith(f"public code: {name}, clean accuracy ")
    assert f"on {CLASSES * EACH} labelled examples; " in finding
    assert any(f"taken as those of {name} (" in finding for finding in record.findings)
    assert record.input_form["name"] and "public code" in record.seconds


@pytest.mark.parametrize("name", ["mixmatch", "huyvnphan"])
@pytest.mark.parametrize("examples, why", [("unnamed", "unlabelled"), ("few", "only 5 labelled")])
def test_without_enough_labelled_examples_it_is_refused(name, examples, why, home):
    record = scan_model(entry(home, name, examples), SETTINGS)
    assert record.status == "failed" and record.sha256 and record.probability == 0.5
    assert f"clean labelled examples do not tell them apart: {why}" in record.reason
    assert f"--public-code {name}" in record.reason


def test_examples_of_which_neither_knows_enough_are_refused(home, tmp_path):
    random = np.random.default_rng(1)
    for number in range(30):
        noise = random.integers(0, 256, (SIDE, SIDE, 3), np.uint8)
        Image.fromarray(noise).save(tmp_path / f"class_{number % CLASSES}_example_{number}.png")
    asked = replace(entry(home, "mixmatch"), examples_path=tmp_path)
    record = scan_model(asked, SETTINGS)
    assert record.status == "failed"
    assert "xternalz, clean accuracy 0." in record.reason
    assert "mixmatch, clean accuracy 0." in record.reason


@pytest.mark.parametrize("name", ["xternalz", "huyvnphan"])
def test_what_the_settings_say_stands(name, home):
    settings = replace(SETTINGS, public_code=name)
    record = scan_model(entry(home, name, "unnamed"), settings)
    assert record.status == "ok", record.reason
    assert not told(record.findings)
    assert any(f"taken as those of {name} (" in finding for finding in record.findings)
    assert identify(entry(home, name), settings) != identify(entry(home, name), SETTINGS)
    assert "public_code" not in SETTINGS.as_json(), "earlier runs go on"


def test_a_reference_is_told_by_the_same_examples(home):
    settings = replace(SETTINGS, reference=home / "huyvnphan.pt")
    record = scan_model(entry(home, "mixmatch"), settings)
    assert record.status == "ok", record.reason
    own, beside = told(record.findings)
    assert own.startswith("public code: mixmatch") and "of the reference" not in own
    assert beside.startswith("public code: huyvnphan") and beside.endswith("of the reference")


def test_the_python_door(home):
    pixels, labels = taught_pictures()
    with pytest.raises(ScanError, match="do not tell them apart: unlabelled"):
        jaxtroj.detect(home / "mixmatch.pt", pixels, np.full(len(labels), -1), SETTINGS)
    verdict = jaxtroj.detect(home / "mixmatch.pt", pixels, labels, SETTINGS)
    assert told(verdict.record.findings)
    with pytest.raises(SharedNamesError, match="public codes have these names"):
        jaxtroj.open_model(home / "mixmatch.pt")
    with pytest.raises(UsageError, match="public_code must be one of"):
        replace(SETTINGS, public_code="kuangliu")


def test_detect_takes_the_option(home, tmp_path, capfd):
    command = [
        "detect", str(home / "mixmatch.pt"), "--examples", str(home / "unnamed"), "--json",
        "--stages", "weights", "--evidence-only", "--out", str(tmp_path),
    ]  # fmt: skip
    assert main(command) == 2
    assert json.loads(capfd.readouterr().out)["status"] == "failed"
    assert main([*command, "--public-code", "mixmatch"]) == 0
    assert json.loads(capfd.readouterr().out)["status"] == "ok"
    assert main([*command, "--public-code", "mixmash"]) == 4


def tried(right: int, of: int, both: int = 0, guessing: float = 0.1) -> Tried:
    """The first `both` right, and then so many others."""
    flags = np.zeros(of, bool)
    flags[both : both + right] = True
    flags[:both] = True
    return Tried(PixelForm("pixels / 255"), np.zeros(of), flags, guessing)


@pytest.mark.parametrize(
    "one, other, is_clear",
    [
        (tried(8, 10), tried(0, 10), True),
        (tried(7, 10), tried(0, 10), False),  # chance would do it once in 64 files
        (tried(10, 100, both=80), tried(0, 100, both=80), True),
        (tried(5, 100, both=80), tried(0, 100, both=80), False),
        (tried(54, 100), tried(0, 100), False),  # less than half of the way from guessing
        (tried(80, 100, guessing=0.9), tried(0, 100, guessing=0.9), False),
        (tried(10, 10), tried(10, 10), False),
    ],
)
def test_clearly_better_is_more_than_chance_and_well_above_guessing(one, other, is_clear):
    assert clearly_best({XTERNALZ: other, MIXMATCH: one}) == (MIXMATCH if is_clear else None)
    assert clearly_best({HUYVNPHAN: one, NO_FIRST_POOL: other}) == (HUYVNPHAN if is_clear else None)


def test_every_code_is_tried_here():
    assert set(BUILDS) == set(SHARED.values()) and set(SHARED) <= set(NETWORKS)


def test_a_repair_starts_from_what_examples_tell(home):
    from jaxtroj.repair.mend import examined

    pixels, labels = taught_pictures()
    patient = examined(entry(home, "mixmatch"), SETTINGS)
    (finding,) = told(patient.record.findings)
    assert finding.startswith("public code: mixmatch")
    logits = np.asarray(patient.model(pixels.astype(np.float32) / 255))
    assert (logits.argmax(1) == labels).mean() > 0.9
    params = {name: np.asarray(value) for name, value in patient.file.model.params.items()}
    (home / "again.pt").write_bytes(patient.file.contents(params))
    record = scan_model(entry(home, "again"), SETTINGS)
    assert told(record.findings) == [finding]
