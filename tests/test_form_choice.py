"""Input forms: each is found by the answers of a network that wants it, and luck finds none."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from converters.adjusted_logits import unadjusted
from converters.graph.module import graph_model
from converters.graph.tape import capture
from converters.opening import open_model
from converters.preparation import PreparedConfig, prepared
from jaxtroj.cli.main import main
from jaxtroj.evidence.images.context import ImageContext
from jaxtroj.form_choice import choose_form, try_forms
from jaxtroj.input_forms import SaidForm, form_of_round, possible_forms
from jaxtroj.label_shift import LabelShift
from jaxtroj.network import Network
from jaxtroj.rounds import ModelEntry
from jaxtroj.rounds.examples import Pictures, in_units, load_pictures
from jaxtroj.scan import identify, scan_model
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.images import ImageScan
from jaxtroj.settings import Settings

pytestmark = pytest.mark.usefixtures("unguarded")

SIDE, CLASSES, COUNT = 8, 4, 120
SETTINGS = Settings(calibrator=None, text_calibrator=None, early_stop=False, stages=("weights",))
COLOUR, GREY = possible_forms(SaidForm(), 3, SIDE), possible_forms(SaidForm(), 1, SIDE)
LARGE = 224
QUICK = ("--evidence-only", "--stages", "weights")


class Touchy(torch.nn.Module):
    """Random weights, and answers that change with any change of the pixels' form."""

    def __init__(self, channels: int):
        super().__init__()
        torch.manual_seed(channels)
        self.first = torch.nn.Linear(channels * SIDE * SIDE, 48)
        self.last = torch.nn.Linear(48, CLASSES)

    def forward(self, x):
        return self.last(torch.sin(9 * self.first(x.flatten(1))))


def network_of(channels: int) -> Network:
    captured = capture(Touchy(channels).eval(), [torch.zeros(1, channels, SIDE, SIDE)])
    return Network(graph_model(captured))


NETWORKS = {channels: network_of(channels) for channels in (1, 3)}


def pictures_for(form, channels: int, count: int = COUNT) -> Pictures:
    """Random pictures, labelled by the network's own answers in a form."""
    pixels = np.random.default_rng(7).integers(20, 220, (count, SIDE, SIDE, channels), np.uint8)
    ready = Network(prepared(NETWORKS[channels].model, *form.preparation))
    images = in_units(pixels, form.channel_order, form.normalization)
    labels = np.asarray(ready.logits(images)).argmax(axis=1).astype(np.int32)
    assert len(np.unique(labels)) == CLASSES
    return Pictures(pixels, labels, tuple(map(str, range(count))))


@pytest.mark.parametrize("form", COLOUR, ids=str)
def test_a_form_stands_before_a_network_that_prepares_pixels_itself(form):
    """What it was chosen by is what is scanned."""
    own = prepared(NETWORKS[3].model, (-0.01, 0.03))
    pixels = np.random.default_rng(7).integers(0, 255, (40, SIDE, SIDE, 3), np.uint8)
    images = in_units(pixels, form.channel_order, form.normalization)
    labels = np.asarray(prepared(own, *form.preparation)(images)).argmax(axis=1)
    (tried,) = try_forms(Network(own), pixels, labels, [form])
    assert tried.accuracy == 1


@pytest.mark.parametrize(
    ("form", "channels"),
    [*((form, 3) for form in COLOUR), *((form, 1) for form in GREY)],
    ids=lambda value: str(value),
)
def test_every_usual_form_is_found(form, channels):
    forms = COLOUR if channels == 3 else GREY
    found = choose_form(NETWORKS[channels], pictures_for(form, channels), forms)
    assert found.form == form and found.basis == "examples" and found.accuracy == 1
    assert found.examples == COUNT and found.tried == len(forms)
    assert found.runner_up.form != form and found.runner_up.accuracy < 1
    assert str(found).startswith(
        f"input form: {form}, clean accuracy 1.00 on 120 labelled examples"
    )


def test_the_forms_that_are_tried():
    assert len(COLOUR) == len(set(COLOUR)) == 20 and len(GREY) == len(set(GREY)) == 8
    assert len(possible_forms(SaidForm(), 3, LARGE)) == 14
    assert len(possible_forms(SaidForm(), 1, LARGE)) == 7
    for side, first in ((SIDE, "CIFAR-10's"), (LARGE, "ImageNet's")):
        scales = [form.scale for form in possible_forms(SaidForm(), 3, side) if form.mean]
        assert scales[0] == f"{first} mean and deviation"
    assert [str(form) for form in COLOUR[:2]] == [
        "RGB, pixels / 255", "BGR, min-max per picture",
    ]  # fmt: skip
    imagenet = {
        form.channel_order: form for form in COLOUR if "ImageNet" in form.scale and form.std
    }
    assert imagenet["BGR"].mean == imagenet["RGB"].mean[::-1] == (0.406, 0.456, 0.485)
    caffe = [form for form in COLOUR if form.bounds == (0, 255) and form.mean]
    assert [form.channel_order for form in caffe] == ["RGB", "BGR"]
    assert caffe[1].mean == (103.939, 116.779, 123.68) and caffe[1].std is None  # as Keras says it
    assert all(len(form.mean or (0,)) == 1 for form in GREY)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"channel_order": "BGR"}, 10),
        ({"normalization": "unit"}, 2),
        ({"normalization": "min-max", "channel_order": "RGB"}, 1),
        ({"bounds": (0, 255)}, 4),
        ({"mean": (0.1, 0.2, 0.3), "channel_order": "BGR"}, 2),
    ],
)
def test_what_is_said_is_not_tried(said, expected):
    forms = possible_forms(SaidForm(**said), 3, SIDE)
    assert len(forms) == expected
    for form in forms:
        assert all(getattr(form, name) == value for name, value in said.items())


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_last_of_few_forms_is_found(count):
    forms = (COLOUR[0], *COLOUR[-count + 1 :])
    found = choose_form(NETWORKS[3], pictures_for(forms[-1], 3), forms)
    assert (found.form, found.basis) == (forms[-1], "examples") and found.runner_up is not None


def test_only_labels_that_can_tell_are_asked():
    whole = pictures_for(COLOUR[5], 3)
    none = replace(whole, labels=np.full(COUNT, -1))
    two = replace(whole, pixels=whole.pixels[:2], labels=whole.labels[:2])
    same = np.flatnonzero(whole.labels == 0)
    one = replace(whole, pixels=whole.pixels[same], labels=whole.labels[same])
    for pictures, why in ((none, "unlabelled"), (two, "only 2 labelled"), (one, "one class only")):
        found = choose_form(NETWORKS[3], pictures, COLOUR)
        assert (found.form, found.basis) == (COLOUR[0], "assumed") and why in found.why
        assert f"assumed {COLOUR[0]}" in str(found) and "accuracy" not in found.as_json()


@pytest.mark.parametrize("seed", range(5))
def test_wrong_labels_keep_the_first_form(seed):
    whole = pictures_for(COLOUR[0], 3)
    labels = np.random.default_rng(seed).integers(0, CLASSES, COUNT)
    wrong = replace(whole, labels=np.where(labels == whole.labels, (labels + 1) % CLASSES, labels))
    found = choose_form(NETWORKS[3], wrong, COLOUR)
    assert found.form == COLOUR[0] and found.accuracy < 0.4


@pytest.mark.parametrize("by", [1, -1])
def test_labels_off_by_one_are_seen_in_a_form_that_is_not_taken(by):
    whole = pictures_for(COLOUR[5], 3)
    own = np.flatnonzero((whole.labels + by >= 0) & (whole.labels + by < CLASSES))
    shifted = replace(whole, pixels=whole.pixels[own], labels=whole.labels[own] + by)
    found = choose_form(NETWORKS[3], shifted, COLOUR)
    assert found.form == COLOUR[0] and found.shift == LabelShift(-by, 1.0)
    assert choose_form(NETWORKS[3], whole, COLOUR).shift is None


def test_a_network_that_answers_the_same_or_nothing_keeps_the_first_form():
    class Broken(torch.nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.fc = torch.nn.Linear(3 * SIDE * SIDE, CLASSES)
            self.factor = factor

        def forward(self, x):
            return self.fc(x.flatten(1)) * self.factor

    for factor in (0.0, float("nan")):
        captured = capture(Broken(factor).eval(), [torch.zeros(1, 3, SIDE, SIDE)])
        network = Network(graph_model(captured))
        found = choose_form(network, pictures_for(COLOUR[3], 3), COLOUR)
        assert found.form == COLOUR[0]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """`net.pt2`, and `pictures` labelled by its answers in BGR with ImageNet's numbers."""
    root = tmp_path_factory.mktemp("form")
    program = torch.export.export(Touchy(3).eval(), (torch.zeros(1, 3, SIDE, SIDE),), strict=False)
    torch.export.save(program, root / "net.pt2")
    form = next(form for form in COLOUR if str(form) == "BGR, ImageNet's mean and deviation")
    found = pictures_for(form, 3, 40)
    for name in ("pictures", "unlabelled", "wrong"):
        (root / name).mkdir()
    for number, (pixels, label) in enumerate(zip(found.pixels, found.labels, strict=True)):
        picture = Image.fromarray(pixels)
        picture.save(root / "pictures" / f"class_{label}_example_{number}.png")
        picture.save(root / "unlabelled" / f"{number}.png")
        picture.save(root / "wrong" / f"class_{(label + 1) % CLASSES}_example_{number}.png")
    return root


def test_by_subprocess(folder):
    command = [sys.executable, "-m", "jaxtroj", "detect", "net.pt2", "--examples", "pictures"]
    result = subprocess.run(
        [*command, *QUICK], capture_output=True, text=True, cwd=folder,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "input BGR, ImageNet's mean and deviation (1.00 right)" in result.stdout
    assert "net.pt2: form" in result.stderr


def detect(folder, capsys, pictures, *more):
    words = ("detect", folder / "net.pt2", "--examples", folder / pictures, *QUICK, "--json", *more)
    assert main([str(word) for word in words]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_record_says_which_form_and_how_sure(folder, capsys):
    found = detect(folder, capsys, "pictures")
    form = found["input_form"]
    assert (form["channel_order"], form["normalization"]) == ("BGR", "unit")
    assert form["mean"] == [0.406, 0.456, 0.485] and form["bounds"] is None
    assert (form["basis"], form["accuracy"], form["examples"]) == ("examples", 1, 40)
    assert form["next_accuracy"] < 1 and found["seconds"]["form"] > 0
    assert found["findings"][0].startswith("input form: BGR, ImageNet's mean and deviation, clean")
    assert not any("assumed" in finding for finding in found["findings"])


def test_unlabelled_examples_and_wrong_labels_are_told(folder, capsys):
    found = detect(folder, capsys, "unlabelled")
    assert found["input_form"]["basis"] == "assumed"
    said = "input form: unlabelled: assumed RGB, pixels / 255"
    assert said in found["findings"]
    found = detect(folder, capsys, "wrong")
    assert found["reason"].startswith("examples-misclassified: clean accuracy 0.")
    assert "none of 20 usual input forms has a clearly better log score" in found["reason"]


def test_options_override_what_examples_say(folder, capsys):
    found = detect(folder, capsys, "pictures", "--channel-order", "RGB", "--normalization", "unit")
    assert found["input_form"]["basis"] == "settings" and found["input_form"]["mean"] is None
    found = detect(folder, capsys, "pictures", "--channel-order", "BGR")
    assert found["input_form"]["name"] == "BGR, ImageNet's mean and deviation"
    numbers = ("--mean", "0.406,0.456,0.485", "--std", "0.225,0.224,0.229")
    found = detect(folder, capsys, "pictures", *numbers)
    assert found["input_form"]["channel_order"] == "BGR"
    assert found["input_form"]["accuracy"] == 1


def test_a_round_has_its_own_form(folder):
    entry = ModelEntry("net", folder / "net.pt2", folder / "pictures", None)
    of_round = replace(entry, round="round1", examples_path=folder / "unlabelled")
    record = scan_model(of_round, SETTINGS)
    assert record.input_form["name"] == "BGR, min-max per picture"
    assert record.input_form["basis"] == "round" and "accuracy" not in record.input_form
    said = scan_model(of_round, replace(SETTINGS, channel_order="RGB"))
    assert said.input_form["name"] == "RGB, min-max per picture"
    assert identify(of_round, SETTINGS) != identify(entry, SETTINGS)
    assert str(form_of_round("round3")) == "RGB, pixels / 255"
    assert form_of_round("round5") is None and form_of_round(None) is None


def test_a_round_that_labelled_examples_contradict_does_not_set_the_form(folder):
    """A name or a table in a folder says the round of all its models."""
    entry = ModelEntry("net", folder / "net.pt2", folder / "pictures", None, round="round1")
    found = scan_model(entry, SETTINGS)
    assert found.input_form["name"] == "BGR, ImageNet's mean and deviation"
    assert (found.input_form["basis"], found.input_form["accuracy"]) == ("examples", 1)
    said = scan_model(entry, replace(SETTINGS, normalization="min-max"))
    assert said.input_form["name"] == "BGR, min-max per picture"
    wrong = scan_model(replace(entry, examples_path=folder / "wrong"), SETTINGS)
    assert wrong.input_form["name"] == "BGR, min-max per picture"
    assert wrong.input_form["basis"] == "round"


def test_triggers_are_searched_in_pixels_from_0_to_1(folder):
    entry = ModelEntry("net", folder / "net.pt2", folder / "pictures", None)
    scan = ImageScan(Attempt(entry, SETTINGS), open_model(entry.model_path).model, None)
    context = scan.prepare().context
    assert isinstance(context, ImageContext) and isinstance(
        unadjusted(context.model).config, PreparedConfig
    )
    images, pictures = context.examples.images, load_pictures(folder / "pictures")
    np.testing.assert_allclose(images, pictures.pixels[..., ::-1] / 255, atol=1e-6)
    answers = np.asarray(context.network.logits(images)).argmax(axis=1)
    assert (answers == pictures.labels).all()
