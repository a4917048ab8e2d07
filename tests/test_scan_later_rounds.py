"""Models of Rounds 2 to 4 in a scan: form and cut, stored logits, classes that do not meet."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import jaxtroj
from converters import open_model
from jaxtroj.rounds import image_config, iter_models
from jaxtroj.rounds.examples import in_units, load_pictures
from jaxtroj.scan import identify, scan_model
from jaxtroj.settings import Settings

SHIPPED = Path(jaxtroj.__file__).parent / "data" / "examples" / "clean"
SETTINGS = Settings(calibrator=None, stages=("weights",))
PLAIN = replace(SETTINGS, channel_order="RGB", normalization="unit")
EDGE = 4


@pytest.fixture
def home(tmp_path):
    """The shipped clean model as one of Round 3: its pictures with an edge that is not taken."""
    home = tmp_path / "round3-train-dataset" / "id-00000000"
    shown = home / "clean_example_data"
    shown.mkdir(parents=True)
    shutil.copy(SHIPPED / "model.pt", home)
    for path in (SHIPPED / "example_data").glob("class_*_example_[01].png"):
        with Image.open(path) as image:
            pixels = np.asarray(image)
        wide = np.pad(pixels, ((EDGE, EDGE), (EDGE, EDGE), (0, 0)))
        Image.fromarray(wide).save(shown / path.name)
    (home / "ground_truth.csv").write_text("0")
    side = pixels.shape[0]
    config = {"py/object": "round_config.RoundConfig", "img_size_pixels": side + 2 * EDGE,
              "cnn_img_size_pixels": side, "number_classes": 5, "poisoned": False}  # fmt: skip
    (home / "config.json").write_text(json.dumps(config))
    return home


def entry(home):
    (found,) = iter_models(home.parent)
    return found


def write_logits(home, shift: float | np.ndarray = 0.0):
    pictures = load_pictures(SHIPPED / "example_data", 2)
    logits = np.asarray(
        open_model(home / "model.pt").model(in_units(pictures.pixels, "RGB", "unit"))
    )
    rows = zip(pictures.names, logits + shift, strict=True)
    lines = [f"{name}, {','.join(map(str, row))}" for name, row in rows]
    (home / "clean-example-logits.csv").write_text("\n".join(["Example, Logits", *lines]))


def test_form_and_cut_follow_from_the_folder(home):
    write_logits(home)
    record = scan_model(entry(home), SETTINGS)
    assert record.status == "ok", record.reason
    assert record.input_form["channel_order"] == "RGB"
    assert record.input_form["normalization"] == "unit"
    assert "logits-differ" not in record.reason  # they are those of the middle, RGB, / 255


def test_logits_of_another_network_raise_a_flag(home):
    write_logits(home, shift=np.array([9, 0, 0, 0, 0]))
    record = scan_model(entry(home), SETTINGS)
    assert record.reason.startswith("logits-differ: clean-example-logits.csv holds other logits")
    assert "is not the network that made these logits" in record.reason


@pytest.mark.parametrize(("text", "message"), [
    ("Example, Logits\nclass_0_example_0.png, 1,2\n", "holds 2 logits, the network computes 5"),
    ("Example, Logits\nother.png, 1,2,3,4,5\n", "names none of the examples"),
    ("\0", "NUL bytes"),
])  # fmt: skip
def test_odd_tables_of_logits_are_one_sentence(home, text, message):
    (home / "clean-example-logits.csv").write_text(text)
    record = scan_model(entry(home), SETTINGS)
    assert record.status == "ok" and message in record.reason


def test_without_a_config_other_sizes_are_taken_whole_and_the_reason_says_so(home):
    (home / "config.json").unlink()
    record = scan_model(entry(home), SETTINGS)
    assert record.status == "ok" and "they were taken whole" in record.reason


@pytest.fixture
def unsaid(home, monkeypatch):
    """The model where nothing says its round; NIST's sizes are those of its pictures."""
    side = json.loads((home / "config.json").read_text())["cnn_img_size_pixels"]
    monkeypatch.setattr(image_config, "TAKEN", side)
    monkeypatch.setattr(image_config, "SHOWN", side + 2 * EDGE)
    (home / "config.json").unlink()
    return home.parent.rename(home.parent.parent / "mine") / home.name


@pytest.mark.parametrize(("shift", "is_said", "cut"), [
    (0.0, False, True), (0.0, True, False), (np.array([9, 0, 0, 0, 0]), False, False),
])  # fmt: skip
def test_stored_logits_say_what_is_taken_where_nothing_else_does(unsaid, shift, is_said, cut):
    write_logits(unsaid, shift)
    size = (image_config.SHOWN, image_config.SHOWN) if is_said else None
    record = scan_model(entry(unsaid), replace(PLAIN, image_size=size))
    assert record.status == "ok", record.reason
    assert ("middle 64 pixels were taken, whose logits" in record.reason) == cut
    assert ("logits-differ" in record.reason) != cut


@pytest.mark.parametrize(("by_nist", "is_said", "cut"), [
    (True, False, True), (False, False, False), (True, True, False),
])  # fmt: skip
def test_pictures_as_large_as_nists_are_cut_where_its_flags_name_the_model(
    unsaid, by_nist, is_said, cut
):
    found = replace(entry(unsaid), by_nist=by_nist)
    size = (image_config.SHOWN, image_config.SHOWN) if is_said else None
    record = scan_model(found, replace(PLAIN, image_size=size))
    assert record.status == "ok", record.reason
    assert ("config.json does not say it: the middle 64 pixels" in record.reason) == cut
    plain = replace(found, by_nist=False)
    assert (identify(found, PLAIN) == identify(plain, PLAIN)) != by_nist


def test_classes_that_do_not_meet_are_told(home):
    config = json.loads((home / "config.json").read_text()) | {"number_classes": 9}
    (home / "config.json").write_text(json.dumps(config))
    for path in (home / "clean_example_data").glob("class_4_*"):
        path.unlink()
    record = scan_model(entry(home), SETTINGS)
    assert "config.json says 9 classes, the network has 5" in record.reason
    assert "1 of 5 classes have no example (4)" in record.reason


def test_examples_of_a_class_that_the_network_lacks_are_one_clear_record(home):
    folder = home / "clean_example_data"
    shutil.copy(folder / "class_0_example_0.png", folder / "class_7_example_0.png")
    record = scan_model(entry(home), SETTINGS)
    assert record.status == "failed" and "an example is of class 7" in record.reason


def test_a_label_that_contradicts_metadata_is_in_the_entry_and_the_scan_goes_on(home):
    (home.parent / "METADATA.csv").write_text("model_name,poisoned\nid-00000000,True\n")
    found = entry(home)
    assert found.poisoned is None and "METADATA says 1" in found.problem
    assert scan_model(found, SETTINGS).status == "ok"


def test_stored_logits_are_part_of_the_identity(home):
    keys = [identify(entry(home), SETTINGS)]
    for shift in (0.0, 9.0):
        write_logits(home, shift)
        keys.append(identify(entry(home), SETTINGS))
    assert len(set(keys)) == 3


def test_what_is_taken_is_part_of_the_identity(home):
    found = entry(home)
    assert found.image_config is not None
    other = replace(found, image_config=replace(found.image_config, taken=20))
    said = Settings(calibrator=None, channel_order="RGB", normalization="unit")
    assert identify(found, said) != identify(other, said)
    assert identify(found, said) == identify(entry(home), said)
