"""`jaxtroj.detect` on networks in memory and on paths: the same answer through every door."""

import io
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from PIL import Image

import jaxtroj
from converters import InputForm, open_model
from converters.function import function_model
from converters.graph.captured_folder import load_captured, save_captured
from converters.graph.torch_network import captured_module, torch_model
from jaxtroj import Settings
from jaxtroj.errors import DatasetError, ExamplesError, UsageError
from jaxtroj.in_memory import entry_of_memory, opener_of
from jaxtroj.record import Record, is_evidence_only
from jaxtroj.record_text import text_line
from jaxtroj.rounds.arrays import pictures_of, write_pictures
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.model import scan_attempt
from jaxtroj.scan.pictures import absent_classes
from jaxtroj.scan.records import one_sentence, sentences
from tests.door.conftest import Colours, cheap

QUICK = cheap("weights", "sensitivity")


def colour_function(params, images):
    """What `Colours` computes, written for JAX."""
    return jax.nn.relu(images).mean((1, 2)) @ params["fc"].T


DATASET = torch.utils.data.TensorDataset(torch.zeros(4, 3, 16, 16), torch.arange(4))
PARAMS = {"fc": 20 * np.eye(3, dtype=np.float32)}


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("door") / "net.pt2"
    image = torch.zeros(1, 3, 16, 16)
    torch.export.save(torch.export.export(Colours().eval(), (image,), strict=False), path)
    return path


@pytest.mark.usefixtures("unguarded")
def test_every_door_gathers_the_same_evidence(program, colours, pixels, labels):
    doors = {
        "path": program,
        "torch": colours,
        "wrapped": torch.nn.DataParallel(colours),
        "model": open_model(program).model,
        "function": (colour_function, PARAMS),
    }
    found = {}
    for name, network in doors.items():
        found[name] = jaxtroj.detect(network, pixels, labels, QUICK)
        assert found[name].record.input_form["accuracy"] == 1.0
    for verdict in found.values():
        for field in ("universal_gap", "example_margin", "gradient_agreement"):
            reached, expected = verdict.evidence[field], found["path"].evidence[field]
            assert reached == pytest.approx(expected, abs=1e-5), field
    assert found["path"].record.sha256 and not found["torch"].record.sha256


@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize("door", ["path", "function"])
def test_a_trigger_is_arrays_a_picture_and_a_notebooks_output(program, pixels, labels, door):
    network = program if door == "path" else (colour_function, PARAMS)
    verdict = jaxtroj.detect(network, pixels, labels, cheap("fixed"))
    trigger = verdict.trigger
    assert isinstance(verdict, jaxtroj.Verdict) and trigger is not None
    assert trigger.clean.shape == trigger.triggered.shape == trigger.array.shape == (16, 16, 3)
    assert trigger.mask.shape == (16, 16, 1) and trigger.pattern.shape == (16, 16, 3)
    blended = (1 - trigger.mask) * trigger.clean + trigger.pattern
    np.testing.assert_allclose(trigger.triggered, blended, atol=1e-6)
    assert trigger.kind in verdict.record.searched
    assert (np.abs(trigger.clean * 255 - pixels).max((1, 2, 3)) < 1e-3).sum() == 1
    with Image.open(io.BytesIO(trigger._repr_png_())) as picture:
        assert picture.format == "PNG" and picture.height == 224
    page = verdict._repr_html_()
    assert "data:image/png;base64," in page and "<script" not in page
    assert f"<td>{verdict.target_class}</td>" in page
    assert verdict.reasons and str(verdict).startswith(verdict.record.model)


def test_reasons_are_whole_sentences_whatever_names_stand_in_them():
    parts = ("the calibrator has met no a; no b: a guess", "", "the output 'x; evidence only'")
    reason = sentences(map(one_sentence, parts))
    record = Record("m", "", 0.1, False, None, (), "ok", reason)
    expected = ("the calibrator has met no a, no b: a guess", "the output 'x, evidence only'")
    assert jaxtroj.Verdict(record).reasons == expected and not is_evidence_only(record)


@pytest.mark.parametrize(
    ("part", "gathered"),
    [
        ("evidence only", True),
        ("evidence only…", True),
        ("evidence only, the probability is the base rate: the calibrator judges by a", True),
        ("evidence only.png was left out", False),
    ],
)
def test_evidence_only_is_told_by_the_whole_sentence(part, gathered):
    record = Record("m", "", 0.5, False, None, (), "ok", f"odd; {part}")
    assert is_evidence_only(record) == gathered


@pytest.mark.usefixtures("unguarded")
def test_kinds_that_large_pictures_are_not_searched_for_are_named(colours, pixels, labels):
    """The general calibrator has met searches of whole pictures, of up to 64 pixels."""
    enlarged = np.kron(pixels, np.ones((1, 21, 21, 1), np.uint8))
    record = jaxtroj.detect(colours, enlarged, labels, Settings(base_rate=0.0001)).record
    assert record.status == "ok" and not record.poisoned and "patch" in record.searched
    unsaid = "did not search for filter, colour map, sinusoid, smooth, warp, border"
    assert not record.found and record.caveats[0] == unsaid


def test_classes_without_an_example_are_on_the_plain_line(pixels, labels):
    network, few = (colour_function, PARAMS), labels != 2
    record = jaxtroj.detect(network, pixels[few], labels[few], QUICK).record
    said = "1 of 3 classes have no example (2): no trigger from them was searched"
    assert said in record.reason and text_line(record).count(said) == 1
    record = jaxtroj.detect(network, pixels, np.where(few, labels, -1), QUICK).record
    assert "1 of 3 classes have no labelled example (2)" in text_line(record)
    for known in (labels, np.full(len(labels), -1)):
        record = jaxtroj.detect(network, pixels, known, QUICK).record
        assert "classes have no" not in record.reason + text_line(record)


@pytest.mark.parametrize(("classes", "said"), [
    (44, "42 of 44 classes have no example (1, 2, 3, 4, 5, 6, 7, 8 and more): no trigger from"),
    (1000, "998 of 1000 classes have no example: no trigger from them was searched"),
])  # fmt: skip
def test_of_many_classes_without_an_example_the_count_is_said(classes, said):
    assert absent_classes(np.array([0, classes - 1]), classes).startswith(said)


@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize("channels", [1, 3])
def test_a_module_of_other_channels_than_the_images_gets_them_as_files_do(channels):
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(channels, 4, 3), torch.nn.ReLU(), torch.nn.Flatten()]
    module = torch.nn.Sequential(*layers, torch.nn.Linear(4 * 14 * 14, 3)).eval()
    shape = (6, 16, 16) if channels == 3 else (6, 16, 16, 3)
    images = np.random.default_rng(0).integers(0, 255, shape, np.uint8)
    record = jaxtroj.detect(module, images, [0, 1, 2] * 2, settings=cheap("weights")).record
    assert record.status == "ok" and record.evidence


@pytest.mark.usefixtures("unguarded")
def test_a_module_is_left_as_it_was(colours, pixels, labels):
    colours.train()
    colours.fc.eval()
    before = {name: value.clone() for name, value in colours.state_dict().items()}
    jaxtroj.detect(colours, pixels, labels, cheap("weights"))
    assert colours.training and colours.drop.training and not colours.fc.training
    for name, value in colours.state_dict().items():
        assert torch.equal(value, before[name])


def test_images_of_any_kind_give_one_answer(pixels, labels):
    tensor = torch.tensor(pixels).permute(0, 3, 1, 2)
    mean, std = (
        torch.tensor(x).reshape(3, 1, 1) for x in ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    )
    kinds = {
        "pixels": pixels,
        "0 to 1": pixels / 255,
        "tensor": tensor.float() / 255,
        "-1 to 1": tensor.float() / 127.5 - 1,
        "normalised": (tensor.float() / 255 - mean) / std,
        "jax": jnp.asarray(pixels, jnp.float32),
    }
    found = {
        name: jaxtroj.detect((colour_function, PARAMS), images, labels, QUICK)
        for name, images in kinds.items()
    }
    for name, verdict in found.items():
        assert verdict.evidence == found["pixels"].evidence, name
    assert "ImageNet's mean" in found["normalised"].record.findings[0]
    assert "from -1 to 1" in found["-1 to 1"].record.findings[0]


@pytest.mark.usefixtures("unguarded")
@pytest.mark.parametrize(
    ("network", "arguments", "error", "said"),
    [
        ("net", {"images": None, "labels": None}, UsageError, "no images were given"),
        ("net", {"labels": None}, UsageError, "images and labels need each other"),
        ("", {}, UsageError, "the network is an empty text; expected a path"),
        ("net", {"images": "pics", "labels": None}, ExamplesError, "are the path 'pics', expected"),
        (
            "net",
            {"images": DATASET, "labels": None},
            ExamplesError,
            "TensorDataset, expected an ar",
        ),
        ("net", {"settings": {"seed": 1}}, UsageError, r"jaxtroj.Settings\(\*\*settings\)"),
        (threading.Lock(), {}, UsageError, "the network is a lock, expected a path"),
        ((len, 3, 4), {}, UsageError, "the network is a tuple"),
        ("net", {"labels": [0, 1]}, ExamplesError, r"shape \(2,\), expected \(12,\)"),
        ("net", {"labels": [9] * 6 + [0] * 6}, jaxtroj.ScanError, "class 9, the model has classes"),
        ((lambda p, x: x.mean(), {}), {}, jaxtroj.ScanError, "expected logits of shape"),
        ((lambda p, x: 1 / 0, {}), {}, jaxtroj.ScanError, "ZeroDivisionError"),
        ((colour_function, {"fc": "text"}), {}, jaxtroj.ScanError, r"\['fc'\] is a str"),
        (torch.nn.Linear(7, 2), {}, jaxtroj.ScanError, "cannot be run on inputs of shapes"),
        ("no/such/file.pt", {}, jaxtroj.ScanError, "No such file"),
    ],
)
def test_bad_input_says_what_it_is(pixels, labels, network, arguments, error, said):
    network = (colour_function, PARAMS) if network == "net" else network
    given = {"images": pixels, "labels": labels, "settings": QUICK} | arguments
    with pytest.raises(error, match=said):
        jaxtroj.detect(network, **given)


def test_an_error_of_a_network_has_its_record(pixels, labels):
    settings = cheap("weights", base_rate=0.3)
    with pytest.raises(jaxtroj.ScanError) as caught:
        jaxtroj.detect((lambda p, x: x, {}), pixels, labels, settings)
    assert (caught.value.record.status, caught.value.record.probability) == ("failed", 0.3)


@pytest.mark.parametrize("door", ["path", "torch", "model", "function"])
def test_every_door_has_limits(program, colours, pixels, labels, door):
    network = {
        "path": program,
        "torch": colours,
        "model": open_model(program).model,
        "function": (colour_function, PARAMS),
    }[door]
    for limits, said in (
        (jaxtroj.Guard(timeout=0.01), r"was stopped after 0.01 s, .* step \w+; see --timeout"),
        (jaxtroj.Guard(memory=200 * 2**20), r"took \S+ GiB of memory, more than the 0.20"),
    ):
        with pytest.raises(jaxtroj.ScanError, match=said) as caught:
            jaxtroj.detect(network, pixels, labels, QUICK, limits=limits)
        assert caught.value.record.status == "failed"


@pytest.mark.parametrize("door", ["torch", "model", "prepared"])
def test_a_network_in_memory_answers_as_it_would_in_this_process(
    program, colours, pixels, labels, door, tmp_path
):
    settings = cheap("weights", "sensitivity", "fixed")
    mean = InputForm(mean=(0.4, 0.5, 0.6), std=(0.2, 0.2, 0.2))
    network, here = {
        "torch": (colours, torch_model(colours, (16, 16, 3))),
        "model": (open_model(program).model,) * 2,
        "prepared": (open_model(program, mean).model,) * 2,
    }[door]
    verdict = jaxtroj.detect(network, pixels, labels, settings)
    write_pictures(pictures_of(pixels, labels), tmp_path / "examples")
    attempt = Attempt(entry_of_memory(tmp_path), settings)
    expected = scan_attempt(attempt, opener_of(here, (16, 16, 3)))
    assert verdict.record.evidence == expected.evidence and len(expected.evidence) > 10
    same = replace(
        verdict.record, seconds=expected.seconds, recovered=expected.recovered, trigger=None
    )
    assert same == expected
    assert verdict.trigger is not None
    for found, wanted in zip(verdict.trigger.panels, attempt.panels, strict=True):
        np.testing.assert_array_equal(found, wanted)
    assert not any("caller's process" in finding for finding in verdict.record.findings)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_what_was_captured_arrives_as_it_was(colours, tmp_path, dtype):
    captured = captured_module(colours.to(dtype), (16, 16, 3))
    save_captured(captured, tmp_path)
    arrived = load_captured(tmp_path)
    assert arrived.graph == captured.graph and arrived.unused == captured.unused
    assert list(arrived.params) == list(captured.params)
    for name, value in captured.params.items():
        assert arrived.params[name].dtype == value.dtype
        assert arrived.params[name].tobytes() == value.tobytes()


def test_a_function_says_that_it_stayed(pixels, labels):
    network = (colour_function, PARAMS)
    for given in (network, function_model(*network, (16, 16, 3))):
        verdict = jaxtroj.detect(given, pixels, labels, cheap("weights"))
        said = verdict.record.findings[-1]
        assert said.startswith("searched in the caller's process: a JAX function cannot be sent")
        assert said.endswith("looked at between its steps only")


def test_a_model_that_no_checkpoint_holds_is_judged_here(program, pixels, labels):
    model = open_model(program).model.astype(np.float16)
    said = jaxtroj.detect(model, pixels, labels, cheap("weights")).record.findings[-1]
    assert "a checkpoint holds float32 parameters, got float16" in said


@pytest.fixture
def heeded_interrupt() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt: a shell's background jobs ignore it, and so would tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeded_interrupt")
def test_ctrl_c_ends_the_search_and_its_process(colours, pixels, labels):
    before, begun = children(), []

    def interrupt():
        while not begun:
            time.sleep(0.05)
            begun.extend(children() - before)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        jaxtroj.detect(colours, pixels, labels, Settings(calibrator=None, early_stop=False))
    assert begun and children() <= before


def children() -> set[str]:
    """Processes that this one started and that still run."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has gone since
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == os.getpid() and state != "Z":
                found.add(stat.parent.name)
    return found


@pytest.mark.usefixtures("unguarded")
def test_folders_yield_records_as_they_come(tmp_path):
    for number in range(2):
        (tmp_path / f"m{number}.pt").write_bytes(b"garbage")
    records = jaxtroj.scan_folder(tmp_path, cheap("weights"))
    assert next(records).model == "m0.pt"
    assert [record.model for record in records] == ["m1.pt"]
    with pytest.raises(DatasetError):
        list(jaxtroj.scan_folder(tmp_path / "none"))
