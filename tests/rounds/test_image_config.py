"""config.json of image models of Rounds 2 to 4: round, cut, label; hostile content."""

import json

import numpy as np
import pytest
from PIL import Image

from jaxtroj.errors import DatasetError
from jaxtroj.rounds import iter_models, load_truth
from jaxtroj.rounds.examples import load_pictures, middle
from jaxtroj.rounds.image_config import ImageConfig, middle_of, read_image_config

FLAT = {"IMG_SIZE_PIXELS": 256, "CNN_IMG_SIZE_PIXELS": 224, "NUMBER_CLASSES": 12, "POISONED": True,
        "NUMBER_EXAMPLE_IMAGES": 10}  # fmt: skip
NAMED = {"py/object": "round_config.RoundConfig"} | {k.lower(): v for k, v in FLAT.items()}


def write(folder, content):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(("content", "name"), [
    (FLAT, "round2"),
    (NAMED, "round3"),
    (NAMED | {"number_example_images": 2}, "round4"),
    (NAMED | {"number_example_images": 5}, "round4"),
])  # fmt: skip
def test_the_round_and_what_is_used(tmp_path, content, name):
    found = read_image_config(write(tmp_path, content))
    assert found == ImageConfig(name, 224, 12, True)


@pytest.mark.parametrize("content", [
    {"model_type": "bert"}, {}, [], {"py/object": "round_config.RoundConfig", "embedding": "BERT"},
    {"cnn_img_size_pixels": 224}, '{"model_type": "vit", "model_type": "vit"}',
    {"py/object": "os.system", "cnn_img_size_pixels": 224},
])  # fmt: skip
def test_other_configs_say_nothing(tmp_path, content):
    assert read_image_config(write(tmp_path, content)) is None


@pytest.mark.parametrize(("content", "message"), [
    ("{", "is no model config"),
    ("[" * 100_000, "is no model config"),
    (FLAT | {"CNN_IMG_SIZE_PIXELS": "224"}, "cnn_img_size_pixels is '224'"),
    (FLAT | {"CNN_IMG_SIZE_PIXELS": -1}, "expected 1 to 4096"),
    (FLAT | {"CNN_IMG_SIZE_PIXELS": 1e400}, "cnn_img_size_pixels is"),
    (FLAT | {"CNN_IMG_SIZE_PIXELS": True}, "cnn_img_size_pixels is True"),
    (json.dumps(FLAT)[:-1] + ', "POISONED": true}', "the name 'POISONED' stands twice"),
    (FLAT | {"POISONED": "yes"}, "poisoned is 'yes'"),
    (FLAT | {"NUMBER_CLASSES": 10**9}, "number_classes"),
])  # fmt: skip
def test_hostile_content_is_one_error(tmp_path, content, message):
    with pytest.raises(DatasetError, match=message):
        read_image_config(write(tmp_path, content))


@pytest.mark.parametrize(("config", "name", "size", "side", "note"), [
    (None, None, (256, 256), None, ""),
    (None, "round1", (256, 256), None, ""),
    (None, "round2", (256, 256), 224, "config.json does not say it"),
    (None, "round4", (200, 200), None, "no config.json says which part of 200 x 200"),
    (ImageConfig("round2", 224), "round2", (256, 256), 224, ""),
    (ImageConfig("round3", 64), "round3", (74, 74), 64, ""),
    (ImageConfig("round3", 224), "round3", (224, 224), None, ""),
    (ImageConfig("round3", 224), "round3", (100, 120), None, "says 224 are taken"),
    (ImageConfig("round3"), "round3", (256, 256), 224, "config.json does not say it"),
])  # fmt: skip
def test_the_middle_that_is_taken(config, name, size, side, note):
    found = middle_of(config, name, size)
    assert found.side == side and note in found.note and bool(note) == bool(found.note)


def test_pictures_are_cut_as_nist_cuts_them(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (256, 256, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "class_0_example_0.png")
    cut = load_pictures(tmp_path).cut(224, ("note", ""))
    np.testing.assert_array_equal(cut.pixels[0], pixels[16:240, 16:240])
    assert cut.problems == ("note",)
    assert middle(pixels, 224).shape == (224, 224, 3)


def model(root, name, truth, config=None):
    home = root / name
    (home / "example_data").mkdir(parents=True)
    (home / "model.pt").write_bytes(b"")
    (home / "ground_truth.csv").write_text(truth)
    Image.new("RGB", (8, 8)).save(home / "example_data" / "class_0_example_0.png")
    if config is not None:
        write(home, config)


def test_a_folder_of_round2_with_a_model_without_config(tmp_path):
    root = tmp_path / "round2-train-dataset"
    model(root, "id-00000000", "1", FLAT)
    model(root, "id-00000001", "0")
    first, second = iter_models(root)
    assert (first.round, second.round) == ("round2", "round2")
    assert first.image_config == ImageConfig("round2", 224, 12, True)
    assert second.image_config is None and second.problem is None
    assert load_truth(root) == {"id-00000000": True, "id-00000001": False}


def test_one_model_alone_is_known_by_its_config(tmp_path):
    model(tmp_path, "id-00000000", "1", NAMED | {"number_example_images": 5})
    (entry,) = iter_models(tmp_path / "id-00000000")
    assert entry.round == "round4" and entry.kind == "image"


def test_a_config_that_contradicts_the_label_takes_it_away(tmp_path):
    root = tmp_path / "round2-train"
    model(root, "id-00000000", "0", FLAT)
    (entry,) = iter_models(root)
    assert entry.poisoned is None and "says poisoned is True, the label is 0" in entry.problem


def test_a_broken_config_is_a_problem_of_a_model_of_these_rounds_only(tmp_path):
    for name, is_told in (("round3-train", True), ("mine", False)):
        model(tmp_path / name, "id-00000000", "0", "{")
        (entry,) = iter_models(tmp_path / name)
        assert (entry.problem is not None) == is_told and entry.poisoned is False
