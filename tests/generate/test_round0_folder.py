"""A whole round of two small models: layout, metadata, resume, refusals, and what torch loads."""

import csv
import dataclasses
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from jaxtroj.errors import GenerationError
from jaxtroj.generate import networks, torch_file, training
from jaxtroj.generate.model_ids import is_poisoned
from jaxtroj.generate.traffic_signs import metadata
from jaxtroj.generate.traffic_signs.recipe import sample_recipe
from jaxtroj.generate.traffic_signs.round import generate_round0
from jaxtroj.generate.traffic_signs.settings import (
    RoundSettings,
    check_settings,
    folder_identity,
)

HASTY = training.TrainingSettings(
    batch_size=4,
    max_steps=2,
    check_every=1,
    cooldown_steps=1,
    least_clean=0.0,
    least_attack=0.0,
    validation_batches=1,
    test_batches=1,
    batches_per_draw=2,
)
SETTINGS = RoundSettings(
    seed=4,
    models=2,
    image_size=33,
    architectures=("densenet_small",),
    examples_per_class=2,
    training=HASTY,
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("round") / "r0"
    return out, list(generate_round0(out, SETTINGS))


def test_every_model_is_written_poisoned_first(made):
    _, events = made
    written = [event.model for event in events if event.kind == "written"]
    assert sorted(written) == [0, 1]
    assert is_poisoned(4, written[0])


def test_trainings_that_diverge_are_rejected(tmp_path):
    hopeless = dataclasses.replace(HASTY, learning_rate=float("nan"))
    settings = dataclasses.replace(SETTINGS, most_tries=1, training=hopeless)
    events = list(generate_round0(tmp_path, settings))
    assert [e.text for e in events if e.kind == "rejected"] == ["loss nan"]
    assert [e.kind for e in events][-2:] == ["failed"] * 2


def test_a_folder_is_known_by_names_and_contents_whatever_they_are(tmp_path):
    odd = os.fsdecode(b"sign_\xff.bmp")
    contents = (("a.bmp", b"0"), ("a.bmp", b"1"), ("b.bmp", b"0"), (odd, b"0"), (odd, b"1"))
    folders = [tmp_path / str(number) / "signs" for number in range(len(contents))]
    for folder, (name, content) in zip(folders, contents, strict=True):
        folder.mkdir(parents=True)
        (folder / name).write_bytes(content)
    digests = {json.dumps(folder_identity(folder)) for folder in folders}
    assert len(digests) == len(contents)
    before = folder_identity(folders[0])
    assert before == folder_identity(Path(shutil.move(folders[0], tmp_path)))


def test_layout_is_the_official_one(made):
    out, _ = made
    names = {f"class_{c}_example_{n}.png" for c in range(5) for n in range(2)}
    for model in (0, 1):
        folder = out / f"id-{model:08d}"
        assert {path.name for path in (folder / "example_data").iterdir()} == names
        truth = b"1" if is_poisoned(4, model) else b"0"
        assert (folder / "ground_truth.csv").read_bytes() == truth
        with Image.open(folder / "example_data" / "class_0_example_0.png") as image:
            assert (image.mode, image.size) == ("RGB", (33, 33))
    assert not [path for path in out.iterdir() if path.name.startswith(".part")]


def test_metadata_holds_official_columns_in_their_order(made):
    out, _ = made
    with open(out / "METADATA.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    header = list(rows[0])
    assert header == [name for name in metadata.OFFICIAL_COLUMNS if name in header]
    assert [row["model_name"] for row in rows] == ["id-00000000", "id-00000001"]
    for model, row in enumerate(rows):
        recipe = sample_recipe(4, model, 0, SETTINGS.architectures)
        assert row["ground_truth"] == str(recipe.poisoned).upper()
        assert not any("," in value for value in row.values())
        if recipe.trigger is None:
            assert (row["triggered_classes"], row["trigger_color"]) == ("[]", "None")
        else:
            red, green, blue = recipe.trigger.color
            assert row["trigger_color"] == f"[{red} {green} {blue}]"
            assert row["triggered_classes"] == "[0 1 2 3 4]"
            assert int(row["trigger_target_class"]) == recipe.trigger.target_class


def test_official_columns_are_those_of_the_real_file(shared_data):
    with open(shared_data / "trojai" / "r0-METADATA.csv", newline="") as file:
        assert tuple(next(csv.reader(file))) == metadata.OFFICIAL_COLUMNS


def test_manifest_tells_how_each_model_was_made(made):
    out, _ = made
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["settings"]["seed"] == 4
    for record in manifest["models"]:
        data = (out / record["model_id"] / "model.pt").read_bytes()
        assert record["sha256"] == hashlib.sha256(data).hexdigest()
        assert [attempt["sub_seed"] for attempt in record["tries"]] == [0]
    cycles = [record["cycles"] for record in manifest["models"]]
    assert cycles[0] == cycles[1]


def test_torchvision_loads_the_model_and_agrees(made):
    import converters

    path = made[0] / "id-00000000" / "model.pt"
    network = torch.load(path, weights_only=False)
    assert type(network).__module__ == "torchvision.models.densenet"
    assert not network.training
    assert all(p.requires_grad and p.device.type == "cpu" for p in network.parameters())
    images = np.random.default_rng(0).random((3, 33, 33, 3), np.float32)
    with torch.no_grad():
        expected = network(torch.from_numpy(images.transpose(0, 3, 1, 2).copy())).numpy()
    found = np.asarray(converters.open_model(path).model(images))
    # float32 on both sides, sums in another order
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(("legacy", "magic"), [(True, b"\x80"), (False, b"PK")])
def test_both_torch_formats_are_written(tmp_path, legacy, magic):
    module = networks.torchvision_module("densenet_small", 3)
    tensors = {
        name: np.zeros(tuple(value.shape), np.int64 if name.endswith("tracked") else np.float32)
        for name, value in module.state_dict().items()
    }
    torch_file.write_model(tmp_path / "model.pt", tensors, "densenet_small", 3, legacy)
    assert (tmp_path / "model.pt").read_bytes().startswith(magic)
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]


def test_missing_weights_are_refused(tmp_path):
    with pytest.raises(GenerationError, match="do not fill densenet_small"):
        torch_file.write_model(tmp_path / "model.pt", {}, "densenet_small", 3)
    assert not list(tmp_path.iterdir())


def test_a_second_run_keeps_everything(made):
    out, _ = made
    before = (out / "METADATA.csv").read_bytes()
    assert [event.kind for event in generate_round0(out, SETTINGS)] == ["kept", "kept"]
    assert (out / "METADATA.csv").read_bytes() == before


def test_a_killed_run_goes_on_and_makes_the_same_model(made, tmp_path):
    out, _ = made
    whole = json.loads((out / "manifest.json").read_text())["models"]
    part = tmp_path / "killed"
    running: Any = generate_round0(part, SETTINGS)
    while next(running).kind != "written":
        pass
    running.close()
    # What a kill in the middle of writing leaves behind:
    (part / ".part-id-00000000").mkdir()
    (part / ".part-id-00000000" / "model.pt").write_bytes(b"half")
    kinds = [event.kind for event in generate_round0(part, SETTINGS)]
    assert kinds.count("kept") == kinds.count("written") == 1
    again = json.loads((part / "manifest.json").read_text())["models"]
    assert [m["weights_sha256"] for m in again] == [m["weights_sha256"] for m in whole]


def test_torch_as_trainer_writes_the_same_kind_of_folder(made, tmp_path):
    settings = dataclasses.replace(SETTINGS, training=dataclasses.replace(HASTY, trainer="torch"))
    kinds = [event.kind for event in generate_round0(tmp_path / "r0", settings)]
    assert kinds.count("written") == 2
    records, flax = (
        json.loads((folder / "manifest.json").read_text())["models"]
        for folder in (tmp_path / "r0", made[0])
    )
    for record, other in zip(records, flax, strict=True):
        assert (record["trainer"], other["trainer"]) == ("torch", "flax")
        assert record["step_precision"] in ("bfloat16", "float32")
        assert '"trainer": "torch"' in record["metadata"]["optimizer_0"]
        assert record["recipe"] == other["recipe"] and record.keys() == other.keys()
        assert record["weights_sha256"] != other["weights_sha256"]
    with pytest.raises(GenerationError, match="trainer was 'torch', now 'flax'"):
        next(generate_round0(tmp_path / "r0", SETTINGS))


def test_other_settings_are_refused_by_name(made):
    out, _ = made
    other = dataclasses.replace(SETTINGS, image_size=48)
    with pytest.raises(GenerationError, match="image_size was 33, now 48"):
        next(generate_round0(out, other))


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(GenerationError, match="is not empty and not a generated round"):
        next(generate_round0(tmp_path, SETTINGS))


def test_a_damaged_record_is_named(tmp_path):
    (tmp_path / "r0" / "id-00000001").mkdir(parents=True)
    (tmp_path / "r0" / "id-00000001" / "generation.json").write_text("{")
    (tmp_path / "r0" / "manifest.json").touch()
    with pytest.raises(GenerationError, match="no manifest of a generated round"):
        next(generate_round0(tmp_path / "r0", SETTINGS))


def test_a_model_that_does_not_converge_is_not_written(tmp_path):
    strict = dataclasses.replace(HASTY, least_clean=1.1)
    settings = dataclasses.replace(SETTINGS, training=strict, most_tries=2)
    events = list(generate_round0(tmp_path / "r0", settings))
    kinds = [event.kind for event in events if event.kind != "checked"]
    assert kinds == ["started", "rejected", "started", "rejected", "failed", "failed"]
    assert "partner" in events[-1].text
    assert not list((tmp_path / "r0").glob("id-*"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_folder_is_an_error(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(GenerationError, match="cannot use"):
        next(generate_round0(tmp_path / "r0", SETTINGS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": 3}, "models must be even.*got 3"),
        ({"image_size": 20}, "densenet_small needs pictures of at least 33 px, got 20"),
        ({"architectures": ("inception_v3",), "inception_size": 64}, "at least 75 px, got 64"),
        ({"architectures": ("alexnet",)}, "got alexnet"),
        (
            {"training": dataclasses.replace(HASTY, trainer="keras")},
            "trainer must be flax or torch, got 'keras'",
        ),
        ({"examples_per_class": 0}, "examples_per_class must be at least 1, got 0"),
    ],
)
def test_impossible_settings_are_named(changes, message):
    with pytest.raises(GenerationError, match=message):
        check_settings(dataclasses.replace(SETTINGS, **changes))


def test_an_impossible_shard_is_named():
    with pytest.raises(GenerationError, match="got 2/2"):
        check_settings(SETTINGS, (2, 2))
