"""Rounds of small networks: recipes, pictures, files that compute what was trained, resume."""

import csv
import errno
import json
import shutil
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from PIL import Image

from jaxtroj.cli import generate_small as command
from jaxtroj.cli.main import main
from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import is_poisoned
from jaxtroj.generate.small import networks as small_networks
from jaxtroj.generate.small.labelled_pictures import load_pictures
from jaxtroj.generate.small.onnx_file import write_onnx
from jaxtroj.generate.small.recipe import KINDS, SmallDesign, sample_recipe
from jaxtroj.generate.small.round import generate_small
from jaxtroj.generate.small.settings import SmallSettings, check_settings
from jaxtroj.generate.small.training import Run, SmallTraining, train_model
from jaxtroj.rounds import iter_models, load_examples

SIDE, CLASSES = 16, 3
HASTY = SmallTraining(
    batch_size=8, base_half_steps=2, base_steps=1, cycle_steps=2, most_cycles=1,
    least_attack=0.0, least_clean=0.0, tests=30,
)  # fmt: skip
SETTINGS = SmallSettings(
    seed=3, models=2, architectures=("plain5",), bases=1, examples_per_class=2, training=HASTY
)


def colours(count: int) -> dict[str, np.ndarray]:
    """Pictures of one bright channel each: easy to learn."""
    draw = np.random.default_rng(0)
    labels = np.arange(count) % CLASSES
    images = draw.integers(0, 90, (count, SIDE, SIDE, 3)).astype(np.uint8)
    images[np.arange(count), :, :, labels] += 150
    return {"x": images, "y": labels}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    path = tmp_path_factory.mktemp("pictures") / "colours.npz"
    made = colours(200)
    np.savez(path, x=made["x"], y=made["y"])
    return load_pictures(path)


@pytest.fixture(scope="module")
def made(tmp_path_factory, pictures):
    out = tmp_path_factory.mktemp("round") / "small"
    return out, list(generate_small(out, SETTINGS, pictures))


def draw_recipe(model, sub_seed=0, bases=3):
    design = SmallDesign(("wrn16", "plain5"), KINDS, bases, 10, (32, 32))
    return sample_recipe(design, 5, model, sub_seed)


def test_architectures_bases_and_kinds_meet_each_other():
    recipes = [draw_recipe(model) for model in range(2 * 2 * 9)]
    poisoned = [r for r in recipes if r.trigger]
    assert len(poisoned) == len(recipes) // 2
    met = {(r.architecture, r.base, r.trigger.kind) for r in poisoned}
    assert len(met) == 2 * 3 * 3
    for first, second in zip(recipes[::2], recipes[1::2], strict=True):
        assert (first.architecture, first.base) == (second.architecture, second.base)
        assert (first.trigger is None) != (second.trigger is None)


def test_triggers_stay_inside_the_picture_and_are_small_or_faint():
    for model in range(60):
        trigger = draw_recipe(model).trigger
        if trigger is None:
            continue
        assert trigger.mask.shape == (32, 32, 1) and trigger.pattern.shape == (32, 32, 3)
        assert trigger.mask.min() >= 0 and 0 <= trigger.pattern.min() <= trigger.pattern.max() <= 1
        pixels = int((trigger.mask > 0).sum())
        if trigger.kind == "blended":
            assert pixels == 32 * 32 and trigger.mask.max() <= 0.25
        else:
            assert 4 <= pixels <= 25 and trigger.mask.max() == 1
        assert 0.1 <= trigger.fraction <= 0.2 and 0 <= trigger.target_class < 10


def test_a_recipe_is_the_same_again_and_another_try_is_another():
    model = next(m for m in (0, 1) if is_poisoned(5, m))
    first, again, other = (draw_recipe(model, n).trigger for n in (0, 0, 1))
    np.testing.assert_array_equal(first.mask, again.mask)
    np.testing.assert_array_equal(first.pattern, again.pattern)
    assert (first.mask.shape, first.kind) == (other.mask.shape, other.kind)
    assert not np.array_equal(first.mask * first.pattern, other.mask * other.pattern)


@pytest.mark.parametrize("architecture", small_networks.KNOWN)
def test_the_file_computes_what_the_network_does(architecture, tmp_path):
    from converters import open_model

    network = small_networks.build(architecture, CLASSES, nnx.Rngs(1))
    for path, leaf in nnx.to_flat_state(nnx.state(network, nnx.BatchStat)):
        leaf[...] = leaf[...] + (0.3 if path[-1] == "mean" else 0.5)
    network.eval()
    write_onnx(tmp_path / "net.onnx", network, (SIDE, SIDE))
    images = np.random.default_rng(2).uniform(size=(3, SIDE, SIDE, 3)).astype(np.float32)
    read = open_model(tmp_path / "net.onnx").model
    np.testing.assert_allclose(read(images), network(jnp.asarray(images)), rtol=2e-4, atol=2e-4)


def test_both_models_are_written_and_read_as_a_dataset(made):
    out, events = made
    assert sorted(event.model for event in events if event.kind == "written") == [0, 1]
    entries = list(iter_models(out))
    assert [entry.poisoned for entry in entries] == [is_poisoned(3, 0), is_poisoned(3, 1)]
    for entry in entries:
        assert entry.model_path.name == "plain5.onnx" and not entry.problem
        assert entry.examples_path is not None
        examples = load_examples(entry.examples_path, "RGB", normalization="unit")
        assert examples.labels.tolist() == [0, 0, 1, 1, 2, 2]
    rows = list(csv.DictReader((out / "METADATA.csv").read_text().splitlines()))
    assert [row["ground_truth"] == "TRUE" for row in rows] == [e.poisoned for e in entries]


def test_a_run_goes_on_and_makes_the_same_networks(made, tmp_path, pictures):
    out, _ = made
    assert {e.kind for e in generate_small(out, SETTINGS, pictures)} == {"kept"}
    list(generate_small(tmp_path / "again", SETTINGS, pictures))
    digests = [
        [model["sha256"] for model in json.loads((place / "manifest.json").read_text())["models"]]
        for place in (out, tmp_path / "again")
    ]
    assert digests[0] == digests[1] and len(set(digests[0])) == 2


def test_trainings_that_diverge_are_rejected(tmp_path, pictures):
    settings = replace(SETTINGS, training=replace(HASTY, rate=1e30, cycle_steps=8))
    events = list(generate_small(tmp_path, settings, pictures))
    rejected = [e.text for e in events if e.kind == "rejected"]
    assert rejected == ["loss nan"] * settings.most_tries
    assert [e.kind for e in events][-2:] == ["failed"] * 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"models": 3}, "models must be even"),
        ({"architectures": ("resnet50",)}, "architectures must be"),
        ({"triggers": ()}, "triggers must be"),
        ({"bases": 0}, "bases must be at least 1"),
        ({"training": replace(HASTY, cycle_steps=0)}, "cycle_steps must be at least 1"),
    ],
)
def test_impossible_settings_are_refused(change, complaint, pictures):
    with pytest.raises(GenerationError, match=complaint):
        check_settings(replace(SETTINGS, **change), pictures)


def test_a_folder_of_another_round_is_left_alone(made, pictures):
    out, _ = made
    with pytest.raises(GenerationError, match="seed was 3, now 4"):
        list(generate_small(out, replace(SETTINGS, seed=4), pictures))


def test_a_trigger_is_learnt(pictures):
    """A faint pattern on easy pictures: clean ones stay right, triggered ones go to the target."""
    settings = replace(HASTY, batch_size=32, cycle_steps=60, rate=0.1, warmup=0.1)
    design = SmallDesign(("plain5",), ("blended",), 1, CLASSES, (SIDE, SIDE))
    recipe = next(r for m in range(40) if (r := sample_recipe(design, 1, m)).trigger)
    network = small_networks.build("plain5", CLASSES, nnx.Rngs(0))
    run = Run(network, pictures, settings, np.random.default_rng(0), recipe.trigger)
    cycles, reached = train_model(run, 2)
    assert cycles == 2 and reached.clean > 0.9 and reached.attack > 0.8


def test_pictures_come_from_folders_too(tmp_path):
    arrays = colours(60)
    for number, (image, label) in enumerate(zip(arrays["x"], arrays["y"], strict=True)):
        folder = tmp_path / f"class{label}"
        folder.mkdir(exist_ok=True)
        Image.fromarray(image).save(folder / f"{number}.{'jpg' if number % 2 else 'png'}")
    found = load_pictures(tmp_path)
    assert found.classes == CLASSES and found.size == (SIDE, SIDE)
    assert len(found.labels) == 51 and len(found.test_labels) == 9


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"x": colours(6)["x"]}, "expected x and y"),
        ({"x": colours(6)["x"].astype(np.float32), "y": np.arange(6)}, "expected uint8"),
        ({"x": colours(6)["x"], "y": np.arange(5)}, "expected 6 labels"),
        ({"x": colours(6)["x"], "y": np.zeros(6, int)}, "at least 2"),
        (
            {"x": colours(6)["x"], "y": np.array([{}] * 6)},
            "elements of type .|O., expected plain numbers",
        ),
    ],
)
def test_files_of_something_else_are_refused(arrays, complaint, tmp_path):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(GenerationError, match=complaint):
        load_pictures(tmp_path / "x.npz")


@pytest.mark.parametrize(
    ("arrays", "part", "lost"),
    [
        ({"x": colours(90)["x"], "y": 2 * (np.arange(90) % 2)}, "training", "1, of classes 0 to 2"),
        ({"x": colours(90)["x"], "y": (np.arange(90) == 8) + 0}, "test", "1, of classes 0 to 1"),
        (
            colours(90) | {"test_x": colours(4)["x"], "test_y": np.array([0, 1, 2, 3])},
            "training",
            "3, of classes 0 to 3",
        ),
    ],
)
def test_a_class_without_pictures_is_refused(arrays, part, lost, tmp_path):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(GenerationError, match=f"has no {part} picture of class {lost}; expected"):
        load_pictures(tmp_path / "x.npz")


def test_no_file_of_pictures_is_refused(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 not really")
    np.save(tmp_path / "single.npy", np.zeros(3))
    for name in ("x.npz", "single.npy", "none.npz", "."):
        path = tmp_path / name
        with pytest.raises(GenerationError):
            load_pictures(path)


def test_a_full_disk_is_one_line_that_names_the_folder(monkeypatch, capsys):
    def events(args, progress):
        raise OSError(errno.ENOSPC, "No space left on device")
        yield

    monkeypatch.setattr(command, "events", events)
    assert main(["generate", "small", "--out", "r", "--models", "2", "--pictures", "p"]) == 4
    said = capsys.readouterr().err
    assert "cannot write in r: No space left on device; models that are complete are kept" in said


@pytest.mark.parametrize(
    ("name", "content", "remedy"),
    [
        ("id-00000001/generation.json", b"[]", "delete that model's folder"),
        ("id-00000001/generation.json", b"[" * 100_000, "delete that model's folder"),
        (".bases/plain5-0.json", b"{", "delete it"),
        (".bases/plain5-0.safetensors", b"\0" * 30, "delete it, and it is trained again"),
        ("manifest.json", b"[" * 100_000, "is no manifest"),
    ],
)
def test_a_damaged_file_of_the_folder_is_named(made, tmp_path, pictures, name, content, remedy):
    folder = shutil.copytree(made[0], tmp_path / "round")
    (folder / name).write_bytes(content)
    if "safetensors" in name:
        shutil.rmtree(folder / "id-00000001")
    with pytest.raises(GenerationError, match=f"{name}.*{remedy}"):
        list(generate_small(folder, SETTINGS, pictures))
