"""Whole folders of Rounds 1 to 4 with hasty networks: layout, configs, tables, resume, refusals."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from converters import open_model
from converters.input_form import InputForm
from jaxtroj.cli.main import main
from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import is_poisoned
from jaxtroj.generate.traffic_signs.later import architectures
from jaxtroj.generate.traffic_signs.later.augment import augmented
from jaxtroj.generate.traffic_signs.later.bases import start_from
from jaxtroj.generate.traffic_signs.later.design import DESIGNS, ROUND1, ROUND2, ROUND4
from jaxtroj.generate.traffic_signs.later.recipe import sample_recipe
from jaxtroj.generate.traffic_signs.later.round import generate_later
from jaxtroj.generate.traffic_signs.later.settings import LaterSettings, check_settings
from jaxtroj.generate.traffic_signs.later.training import SignTraining
from jaxtroj.rounds import iter_models
from jaxtroj.rounds.examples import middle
from jaxtroj.rounds.image_config import shown_side

pytestmark = pytest.mark.usefixtures("unguarded")

SIDE, SHOWN = 34, 38
HASTY = SignTraining(
    batch_size=4, base_steps=2, cycle_steps=2, most_cycles=1, pictures=64, tests=40
)  # fmt: skip


def hasty(design, **changes) -> LaterSettings:
    plain = LaterSettings(
        design, seed=3, models=2, image_size=SIDE, architectures=("squeezenetv1_1",),
        examples_per_class=2, most_tries=2, trainings=("warm",), training=HASTY,
    )  # fmt: skip
    return replace(plain, **changes)


@pytest.fixture(scope="module", params=DESIGNS)
def made(request, tmp_path_factory):
    design = DESIGNS[request.param]
    out = tmp_path_factory.mktemp("round") / design.name
    return out, design, list(generate_later(out, hasty(design)))


def table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def homes(out, design):
    return sorted((out / design.layout.models).glob("id-*"))


def test_unconverged_models_are_retried_kept_and_marked(made):
    out, design, events = made
    kinds = [event.kind for event in events]
    assert kinds.count("rejected") == kinds.count("written") == 2
    assert all("not converged" in e.text for e in events if e.kind == "written")
    rows = table(out / "METADATA.csv")
    assert [row["converged"] for row in rows] == ["False", "False"]
    assert [row["sub_seed"] for row in rows] == ["1", "1"]


def test_layout_is_the_official_one(made):
    out, design, _ = made
    layout, poisoned_folder = design.layout, DESIGNS[design.name].layout.poisoned
    assert len(homes(out, design)) == 2
    for home in homes(out, design):
        poisoned = is_poisoned(3, int(home.name[3:]))
        assert (home / "ground_truth.csv").read_bytes() == str(int(poisoned)).encode()
        record = json.loads((home / "generation.json").read_bytes())
        classes = record["recipe"]["number_classes"]
        names = {p.name for p in (home / layout.clean).iterdir()}
        assert names == {f"class_{c}_example_{n}.png" for c in range(classes) for n in range(2)}
        with Image.open(home / layout.clean / "class_0_example_0.png") as image:
            side = SHOWN if layout.has_margin else SIDE
            assert (image.mode, image.size) == ("RGB", (side, side))
        assert (home / "config.json").exists() == bool(layout.config)
        assert (home / "foregrounds").exists() == bool(layout.config)
        if layout.config:
            assert len(list((home / "foregrounds").iterdir())) == classes
        has_poisoned = bool(poisoned_folder) and poisoned
        assert (home / "poisoned_example_data").exists() == has_poisoned
        is_zip = (home / "model.pt").read_bytes()[:2] == b"PK"
        assert is_zip != layout.is_legacy


def test_poisoned_examples_show_the_source_classes(made):
    out, design, _ = made
    for home in homes(out, design):
        recipe = json.loads((home / "generation.json").read_bytes())["recipe"]
        folder = home / "poisoned_example_data"
        if not folder.exists():
            continue
        sources = {c for one in recipe["triggers"] for c in one["source_classes"]}
        assert {int(p.name.split("_")[1]) for p in folder.iterdir()} == sources
        if design is ROUND4:
            assert all("_trigger_" in p.name for p in folder.iterdir())


def test_logits_are_what_the_file_computes_on_the_middle(made):
    out, design, _ = made
    if not design.layout.has_logits:
        return
    for home in homes(out, design):
        lines = (home / "clean-example-logits.csv").read_text().splitlines()
        assert lines[0] == "Example, Logits"
        name, _, numbers = lines[1].partition(", ")
        with Image.open(home / design.layout.clean / name) as image:
            pixels = middle(np.asarray(image)[None], SIDE).astype(np.float32) / 255
        wanted = np.array(numbers.split(","), np.float32)
        model = open_model(home / "model.pt", InputForm(image_size=(SIDE, SIDE))).model
        np.testing.assert_allclose(model(pixels)[0], wanted, rtol=1e-3, atol=1e-3)


def test_metadata_and_config_say_what_the_recipe_says(made):
    out, design, _ = made
    rows = {row["model_name"]: row for row in table(out / "METADATA.csv")}
    settings = hasty(design)
    for home in homes(out, design):
        recipe = sample_recipe(design, settings.choices, 3, int(home.name[3:]), 1)
        row, label = rows[home.name], "poisoned" if design.layout.config else "ground_truth"
        assert row[label] == str(recipe.poisoned)
        assert int(row["number_classes"]) == recipe.number_classes
        assert list(row)[:2] == ["model_name", label]
        if design.layout.config == "flat":
            config = json.loads((home / "config.json").read_bytes())
            assert all(key == key.upper() for key in config)
            assert (config["IMG_SIZE_PIXELS"], config["CNN_IMG_SIZE_PIXELS"]) == (SHOWN, SIDE)
            assert config["POISONED"] == recipe.poisoned
        if design.layout.config == "jsonpickle":
            config = json.loads((home / "config.json").read_bytes())
            assert config["py/object"] == "round_config.RoundConfig"
            assert len(config["triggers"] or ()) == len(recipe.triggers)
    explained = table(out / "METADATA_DICTIONARY.csv")
    assert [line["Column Name"] for line in explained] == list(rows[home.name])


def test_the_folder_is_read_as_its_round(made):
    out, design, _ = made
    entries = list(iter_models(out))
    assert [entry.round for entry in entries] == [design.name] * 2
    assert [entry.problem for entry in entries] == [None, None]
    assert [entry.poisoned for entry in entries] == [is_poisoned(3, 0), is_poisoned(3, 1)]


def test_infer_answers_a_model_as_the_harness_asks(made, tmp_path, capsys):
    """The flags of Rounds 0 to 4; the server calls the folder of examples example_data."""
    out, design, _ = made
    home = homes(out, design)[0]
    result = tmp_path / "result.txt"
    given = {"model": home / "model.pt", "result": result}
    flags = [word for name, path in given.items() for word in (f"--{name}_filepath", str(path))]
    flags += ["--scratch_dirpath", str(tmp_path), "--examples_dirpath", str(home / "example_data")]
    assert main(["infer", *flags, "--evidence-only", "--stages", "weights"]) == 0
    assert result.read_text().strip() == "0.5"
    taken = "no folder" in capsys.readouterr().err
    assert taken == (design.layout.clean != "example_data")


def test_a_second_run_keeps_what_is_there_and_other_settings_are_refused(made):
    out, design, _ = made
    again = list(generate_later(out, hasty(design)))
    assert [event.kind for event in again] == ["kept", "kept"]
    with pytest.raises(GenerationError, match="other settings"):
        list(generate_later(out, hasty(design, seed=4)))


def test_a_model_alone_is_the_model_of_the_round(tmp_path):
    """What is drawn depends on identity only: a larger round begins with the same models."""
    for models in (2, 4):
        settings = hasty(ROUND2, models=models, trainings=("scratch",), most_tries=1)
        list(generate_later(tmp_path / str(models), settings))
    for name in ("id-00000000", "id-00000001"):
        states = [
            torch.load(tmp_path / str(m) / name / "model.pt", weights_only=False).state_dict()
            for m in (2, 4)
        ]
        for key, value in states[0].items():
            torch.testing.assert_close(value, states[1][key], rtol=0, atol=0)


def test_bases_learn_on_pictures_of_their_own_size(tmp_path):
    small, large = (tmp_path / name / ".warm-start" for name in ("small", "large"))
    list(generate_later(small.parent, hasty(ROUND2, most_tries=1)))
    resized = hasty(ROUND2, most_tries=1, image_size=SIDE + 16, base_size=SIDE)
    list(generate_later(large.parent, resized))
    names = [path.name for path in sorted(small.glob("*.safetensors"))]
    assert names == ["squeezenetv1_1-0.safetensors"]
    assert (small / names[0]).read_bytes() == (large / names[0]).read_bytes()


@pytest.mark.parametrize(("changes", "message"), [
    ({"image_size": 32}, "at least 33 px"),
    ({"models": 3}, "even"),
    ({"architectures": ("inceptionv3",)}, "at least 75 px"),
    ({"architectures": ("resnet19",)}, "architectures must be some of"),
    ({"training": replace(HASTY, pictures=2)}, "at least the 4 of a batch"),
    ({"bases": 0}, "bases must be at least 1"),
    ({"base_size": 0}, "base_size must be at least 1"),
    ({"base_size": 32}, "at least 33 px, got 32"),
])  # fmt: skip
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(GenerationError, match=message):
        check_settings(hasty(ROUND2, **changes))


def test_sizes_are_the_official_ones():
    assert shown_side(224) == 256
    image = np.arange(256)[:, None, None] * np.ones((1, 256, 1))
    assert middle(image, 224)[[0, -1], 0, 0].tolist() == [16, 239]


def test_augmentation_keeps_pictures_and_mirrors_where_asked():
    images = np.full((64, SHOWN, SHOWN, 3), 120, np.uint8)
    images[:, :, : SHOWN // 2] = 30
    seen = augmented(images, SIDE, np.random.default_rng(0), is_mirrored=False).numpy()
    assert seen.shape == (64, SIDE, SIDE, 3) and 0 <= seen.min() <= seen.max() <= 1
    middle_rows = seen[:, SIDE // 2]
    assert (middle_rows[:, 8].mean(-1) < middle_rows[:, -8].mean(-1)).all()
    mirrored = augmented(images, SIDE, np.random.default_rng(0), is_mirrored=True).numpy()
    mirrored = mirrored[:, SIDE // 2]
    assert 0.2 < (mirrored[:, 8].mean(-1) > mirrored[:, -8].mean(-1)).mean() < 0.8


@pytest.mark.parametrize("name", architectures.ARCHITECTURES)
def test_constructors_exist(name):
    known = architectures.ARCHITECTURES[name]
    with torch.device("meta"):
        network = architectures.build(name, 7, 0)
    assert type(network).__name__ == known.cls
    assert known.name in ROUND1.architectures or known.rate <= 1


def test_trainings_that_diverge_are_rejected(tmp_path):
    settings = hasty(ROUND2, trainings=("scratch",), training=replace(HASTY, rate=1e30))
    events = list(generate_later(tmp_path, settings))
    assert [e.text for e in events if e.kind == "rejected"] == ["loss nan"] * 2
    assert not homes(tmp_path, ROUND2) and [e.kind for e in events][-2:] == ["failed"] * 2


@pytest.mark.parametrize("name", architectures.ARCHITECTURES)
def test_the_head_is_what_depends_on_the_number_of_classes(name):
    with torch.device("meta"):
        one, other = (architectures.build(name, classes, 0) for classes in (7, 9))
    shapes = {key: value.shape for key, value in other.state_dict().items()}
    differ = {key for key, value in one.state_dict().items() if value.shape != shapes[key]}
    head = architectures.head_of(one)
    assert differ == {f"{head}.weight", f"{head}.bias"}


def test_a_model_of_as_many_classes_as_its_base_has_a_head_of_its_own():
    fresh, base = (architectures.build("squeezenetv1_1", 7, seed) for seed in (0, 1))
    own = {name: value.clone() for name, value in fresh.state_dict().items()}
    weights = {name: value.numpy() for name, value in base.state_dict().items()}
    start_from(fresh, weights)
    for name, value in fresh.state_dict().items():
        wanted = own[name] if name.startswith("classifier.1.") else torch.tensor(weights[name])
        torch.testing.assert_close(value, wanted, rtol=0, atol=0)


def test_a_base_is_trained_once_and_leaves_the_head_alone(tmp_path):
    events = list(generate_later(tmp_path / "r", hasty(ROUND2, models=4, most_tries=1)))
    assert [e.kind for e in events].count("warm start") == 1
    manifest = json.loads((tmp_path / "r" / "manifest.json").read_bytes())
    assert list(manifest["bases"]) == ["squeezenetv1_1-0"]
