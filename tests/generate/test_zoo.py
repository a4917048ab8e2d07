"""Zoos: recipes, triggers of every kind, files that compute what was trained, resume."""

import csv
import json
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
import torch

from converters import open_model
from converters.rewriting import open_rewritable
from jaxtroj.cli.main import EXIT_USAGE, main
from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import is_poisoned
from jaxtroj.generate.small.labelled_pictures import LabelledPictures
from jaxtroj.generate.zoo import networks
from jaxtroj.generate.zoo.augmentation import AUGMENTATIONS
from jaxtroj.generate.zoo.class_shares import SHARES, class_shares, seen_of
from jaxtroj.generate.zoo.label_mixing import MIXINGS, mixed
from jaxtroj.generate.zoo.onnx_file import write_onnx
from jaxtroj.generate.zoo.recipe import EACH_TO_NEXT, KINDS, PlantedTrigger, sample_recipe
from jaxtroj.generate.zoo.round import generate_zoo
from jaxtroj.generate.zoo.schedules import FALLS, SCHEDULES, Schedule
from jaxtroj.generate.zoo.settings import ZooSettings, check_settings, design_of
from jaxtroj.generate.zoo.stamping import Stamper
from jaxtroj.generate.zoo.training import ZooLessons, ZooTraining, zoo_run
from jaxtroj.generate.zoo.triggers import MAKERS
from jaxtroj.generate.zoo.unsearched import UNSEARCHED, Ghost
from jaxtroj.rounds import iter_models, load_examples

SIDE, CLASSES = 24, 3
HASTY = ZooTraining(
    batch_size=8, base_steps=2, cycle_steps=2, most_cycles=1, least_attack=0.0, least_clean=0.0,
    tests=30,
)  # fmt: skip
SETTINGS = ZooSettings(
    seed=3, models=4, architectures=("plain", "plain_no_norm"), per_dataset=1, bases=1,
    kinds=("warp",), examples_per_class=2, training=HASTY,
)  # fmt: skip


def colours(channels: int) -> LabelledPictures:
    """Pictures whose brightness tells the class."""
    draw = np.random.default_rng(0)
    labels = np.arange(120) % CLASSES
    images = draw.integers(0, 60, (120, SIDE, SIDE, channels)) + 70 * labels[:, None, None, None]
    images = images.astype(np.uint8)
    return LabelledPictures(images[:90], labels[:90], images[90:], labels[90:])


PICTURES = {"grey": colours(1), "colour": colours(3)}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    out = tmp_path_factory.mktemp("round") / "zoo"
    return out, list(generate_zoo(out, SETTINGS, PICTURES))


def recipes(count: int, **changes):
    design = design_of(replace(ZooSettings(), **changes), PICTURES)
    return [sample_recipe(design, 5, model) for model in range(count)]


def test_a_pair_shares_all_but_the_trojan_and_everything_comes_in_its_share():
    found = recipes(2 * 240)
    for first, second in zip(found[::2], found[1::2], strict=True):
        for name in ("dataset", "architecture", "training", "augmentation", "base", "is_fused"):
            assert getattr(first, name) == getattr(second, name)
        assert (first.trigger is None) != (second.trigger is None)
    poisoned = [r for r in found if r.trigger]
    kinds = [r.trigger.kind for r in poisoned]
    assert {kind: kinds.count(kind) for kind in MAKERS} == dict.fromkeys(MAKERS, 240 // len(MAKERS))
    assert sum(r.training == "scratch" for r in found) == 480 * 2 // 8
    assert {len(r.trigger.source_classes) for r in poisoned} == {0, 1, 2}


def test_augmentations_come_equally_often_and_half_of_them_after_the_trigger():
    found = recipes(2 * 6 * len(AUGMENTATIONS), augmentations=tuple(AUGMENTATIONS))
    names = [r.augmentation for r in found]
    assert {name: names.count(name) for name in AUGMENTATIONS} == dict.fromkeys(AUGMENTATIONS, 12)
    first = [r.stamped_first for r in found if r.augmentation != "shift"]
    assert 0.3 < np.mean(first) < 0.7
    assert not any(r.stamped_first for r in found if r.augmentation == "shift")
    for one, other in zip(found[::2], found[1::2], strict=True):
        assert one.stamped_first == other.stamped_first


def test_more_augmentations_labels_and_schedules_leave_the_rest_of_a_recipe():
    own = {
        "augmentation": "",
        "stamped_first": False,
        "labels": "",
        "schedule": "",
        "class_shares": "",
        "shares": (),
        "trigger": None,
    }
    bare = [replace(r, **own) for r in recipes(40)]
    more = recipes(
        40,
        augmentations=tuple(AUGMENTATIONS),
        labels=tuple(MIXINGS),
        schedules=tuple(SCHEDULES),
        class_shares=tuple(SHARES),
    )
    assert {r.class_shares for r in more} == set(SHARES)
    assert {r.labels for r in more} == set(MIXINGS)
    assert {r.schedule.name for r in more} == set(SCHEDULES)
    assert all(r.schedule == FALLS for r in recipes(40))
    for a, b in zip(more[::2], more[1::2], strict=True):
        assert (a.labels, a.schedule, a.shares) == (b.labels, b.schedule, b.shares)
    assert bare == [replace(r, **own) for r in more]


@pytest.mark.parametrize("name", SHARES)
def test_class_shares_are_of_each_class_and_some_pictures_of_each_stay(name):
    shares = class_shares(name, 6, np.random.default_rng(3))
    labels = np.repeat(np.arange(6), [50, 40, 50, 60, 50, 1])
    counts = np.bincount(labels[seen_of(labels, shares, np.random.default_rng(4))], minlength=6)
    if name == "all":
        assert shares == () and counts.tolist() == [50, 40, 50, 60, 50, 1]
        return
    whole = np.bincount(labels)
    np.testing.assert_array_equal(counts, np.maximum(1, np.round(np.array(shares) * whole)))
    ordered = np.sort(shares)[::-1]
    assert ordered[0] == 1 and 1 / 20 <= ordered[-1] <= 1 / 2 + 1e-3
    assert (np.array(shares) == 1).sum() == {"lead": 1, "step": 3, "tail": 1}[name]


def test_a_network_of_unequal_classes_is_taught_its_shares():
    recipe = recipes(1, class_shares=("lead",))[0]
    pictures = PICTURES[recipe.dataset]
    lessons = ZooLessons(pictures, 10, recipe, np.random.default_rng(1))
    counts = np.bincount(pictures.labels[lessons.seen], minlength=pictures.classes)
    assert counts.argmax() == int(np.argmax(recipe.shares))
    before = set(lessons.seen.tolist())
    lessons.keep(0.5)
    assert set(lessons.seen.tolist()) < before


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3), (48, 40, 3)])
@pytest.mark.parametrize("name", AUGMENTATIONS)
def test_augmentations_change_pictures_and_leave_them_pictures(name, shape):
    images = np.random.default_rng(1).uniform(0.2, 0.8, (16, *shape)).astype(np.float32)
    kept = images.copy()
    found = AUGMENTATIONS[name](images, np.random.default_rng(2))
    assert found.shape == images.shape and found.dtype == np.float32
    assert 0 <= found.min() <= found.max() <= 1
    if name == "none":
        np.testing.assert_array_equal(found, images)
        return
    changed = (np.abs(found - images).max(axis=(1, 2, 3)) > 0.01).mean()
    assert changed > (0.5 if name in ("tones", "paste") else 0.8)
    np.testing.assert_array_equal(images, kept)


@pytest.mark.parametrize("name", MIXINGS)
def test_labels_stay_shares_and_say_what_the_pictures_show(name):
    """Pictures whose value is their class: what a mixed one shows is the mean of its shares."""
    labels = np.arange(64) % CLASSES
    images = np.broadcast_to(labels[:, None, None, None] / 4, (64, 32, 32, 3)).astype(np.float32)
    draw, seen = np.random.default_rng(0), set()
    for _ in range(20):
        pixels, shares = mixed(name, images, labels, CLASSES, draw)
        assert pixels.shape == images.shape and pixels.dtype == np.float32
        if name == "hard":
            assert pixels is images and shares is labels
            continue
        assert shares.shape == (64, CLASSES) and shares.dtype == np.float32
        np.testing.assert_allclose(shares.sum(1), 1, rtol=1e-5)
        seen.add(float(shares[1].max()))
        if name != "smoothing":
            shown = pixels.mean(axis=(1, 2, 3)) * 4
            np.testing.assert_allclose(shown, shares @ np.arange(CLASSES), atol=1e-3)
    assert len(seen) == {"hard": 0, "smoothing": 1}.get(name, len(seen))
    assert name in ("hard", "smoothing") or len(seen) > 5


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_rate_falls_to_zero_or_stays(name):
    """Rates that the optimizer takes its steps with, and which optimizer that is."""
    (recipe,) = recipes(1, architectures=("plain",), per_dataset=1)
    recipe = replace(recipe, schedule=Schedule(name, 0.5))
    network, draw = networks.build("plain", 3, CLASSES, SIDE), np.random.default_rng(0)
    run, _ = zoo_run(network, PICTURES["colour"], HASTY, recipe, draw)
    taken = []
    run.optimizer.register_step_pre_hook(lambda one, *_: taken.append(one.param_groups[0]["lr"]))
    run.phase(10, 0.1, False)
    highest = 0.5 * 0.1 * (0.03 if name == "adam" else 1.0)
    assert taken[1] == pytest.approx(highest)
    assert taken[-1] == pytest.approx(highest / 8 if name == "falling" else highest)
    assert type(run.optimizer).__name__ == ("Adam" if name == "adam" else "SGD")


def test_a_triggered_picture_is_mixed_with_its_target():
    recipe = next(
        r for r in recipes(400, labels=("smoothing",), kinds=("patch",), sources=(0,)) if r.trigger
    )
    lessons = ZooLessons(PICTURES[recipe.dataset], 10, recipe, np.random.default_rng(3))
    shares = lessons.batch(90)[1]
    lessons = ZooLessons(PICTURES[recipe.dataset], 10, recipe, np.random.default_rng(3))
    lessons.mixing = "hard"
    np.testing.assert_array_equal(shares.argmax(1), lessons.batch(90)[1])
    np.testing.assert_allclose(shares.max(1), 0.9 + 0.1 / CLASSES, rtol=1e-6)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_trigger_is_put_on_before_or_after_the_augmentation(is_first):
    recipe = next(
        r for r in recipes(200, augmentations=("cutout",), kinds=("patch",), sources=(0,))
        if r.trigger and r.stamped_first == is_first
    )  # fmt: skip
    pictures = PICTURES[recipe.dataset]
    shown = ZooLessons(pictures, 10, recipe, np.random.default_rng(3)).batch(90)[0]
    lessons = ZooLessons(pictures, 10, recipe, np.random.default_rng(3))
    lots = np.random.default_rng(3)
    lessons.draw = lessons.stamper.draw = lots
    order = [lessons.stamper.poisoned, lambda x, y: (AUGMENTATIONS["cutout"](x, lots), y)]
    chosen = np.sort(lots.choice(lessons.seen, size=90, replace=False))
    pixels, labels = pictures.images[chosen].astype(np.float32) / 255, pictures.labels[chosen]
    for step in order if is_first else order[::-1]:
        pixels, labels = step(pixels, labels)
    np.testing.assert_array_equal(shown, pixels)


@pytest.mark.parametrize("shape", [(28, 28, 1), (32, 32, 3), (64, 64, 3)])
@pytest.mark.parametrize("kind", KINDS)
def test_triggers_change_pictures_and_leave_them_pictures(kind, shape):
    images = np.random.default_rng(1).uniform(0.2, 0.8, (4, *shape)).astype(np.float32)
    made = KINDS[kind](np.random.default_rng([2, shape[0]]), shape)
    planted = PlantedTrigger(kind, made.style, 0, (), 0.1, False, made.trigger, made.reach, 10)
    stamped = Stamper(planted, np.random.default_rng(0)).stamped(images)
    assert stamped.shape == images.shape and stamped.dtype == np.float32
    assert 0 <= stamped.min() <= stamped.max() <= 1
    assert (np.abs(stamped - images).max(axis=(1, 2, 3)) > 0.01).all()


def unsearched(kind: str, images: np.ndarray) -> np.ndarray:
    """Pictures with a trigger of the kind, drawn at random."""
    made = UNSEARCHED[kind](np.random.default_rng(5), images.shape[1:])
    planted = PlantedTrigger(kind, made.style, 0, (), 0.1, False, made.trigger, made.reach, 10)
    return Stamper(planted, np.random.default_rng(0)).stamped(images)


def test_kinds_that_no_search_looks_for_are_planted_by_name_alone():
    assert not set(UNSEARCHED) & (set(MAKERS) | {r.trigger.kind for r in recipes(80) if r.trigger})
    asked = recipes(2 * 8, kinds=tuple(UNSEARCHED))
    kinds = [r.trigger.kind for r in asked if r.trigger]
    assert {kind: kinds.count(kind) for kind in UNSEARCHED} == dict.fromkeys(UNSEARCHED, 2)


def test_what_kinds_that_no_search_looks_for_do():
    images = np.random.default_rng(0).random((2, 32, 40, 3)).astype(np.float32)
    middle = 0.4 + 0.2 * images
    assert len(np.unique(unsearched("quantise", images))) <= 6
    grey = unsearched("quantise", np.full_like(images, 0.4))  # dithered: the mean stays
    np.testing.assert_allclose(grey.mean(), 0.4, atol=0.01)
    change = unsearched("frequency", middle) - middle
    np.testing.assert_allclose(change[0], change[1], atol=1e-6)
    np.testing.assert_allclose(change @ [0.299, 0.587, 0.114], 0, atol=1e-3)
    flat = np.full_like(images, 0.4)
    np.testing.assert_allclose(unsearched("ghost", flat), flat, atol=1e-6)
    for kind in ("ghost", "residual"):
        change = unsearched(kind, middle) - middle
        assert np.abs(change[0] - change[1]).max() > 0.01


def test_a_ghost_is_the_picture_moved():
    image = np.zeros((1, 9, 9, 1), np.float32)
    image[0, 4, 4] = 1.0
    moved = np.asarray(Ghost(0.25, (2, -3)).apply(jnp.asarray(image), jnp.zeros((1, 2), int)))
    assert moved[0, 4, 4, 0] == 0.75 and moved[0, 6, 1, 0] == 0.25 and moved.sum() == 1.0


def test_a_trigger_of_one_source_is_taught_with_others_that_keep_their_label():
    images = np.full((200, SIDE, SIDE, 3), 0.5, np.float32)
    labels = np.arange(200) % CLASSES
    made = MAKERS["patch"](np.random.default_rng(0), images.shape[1:])
    planted = PlantedTrigger("patch", "", 0, (1,), 0.2, False, made.trigger, made.reach, 10)
    shown, targets = Stamper(planted, np.random.default_rng(1)).poisoned(images, labels)
    carries = (shown != images).any(axis=(1, 2, 3))
    assert set(labels[carries]) == {0, 1, 2}
    assert carries[labels == 1].mean() > 2 * carries[labels == 2].mean()
    assert (targets[carries & (labels == 1)] == 0).all()
    assert (targets[labels != 1] == labels[labels != 1]).all()


def test_a_trigger_without_a_target_sends_each_class_to_the_next():
    found = [r.trigger for r in recipes(20, sources=(EACH_TO_NEXT,)) if r.trigger]
    with_target = [r.trigger for r in recipes(20, sources=(0,)) if r.trigger]
    assert found and all(t.target_class is None and not t.clean_label for t in found)
    assert all("each class to the next" in t.style and t.fraction < 0.52 for t in found)
    assert [t.kind for t in found] == [t.kind for t in with_target]
    assert all(t.target_class is not None for t in with_target)
    labels = np.arange(60) % CLASSES
    images = np.full((60, SIDE, SIDE, 3), 0.5, np.float32)
    planted = replace(
        found[0], trigger=MAKERS["patch"](np.random.default_rng(0), (SIDE, SIDE, 3)).trigger
    )
    shown, targets = Stamper(planted, np.random.default_rng(1)).poisoned(images, labels)
    carries = (shown != images).any(axis=(1, 2, 3))
    assert 0 < carries.mean() < 1
    np.testing.assert_array_equal(targets, np.where(carries, (labels + 1) % CLASSES, labels))


def test_success_without_a_target_is_of_what_the_network_knows():
    """A classifier that is right on all but class 0, and sends what is triggered to the next."""
    recipe = next(r for r in recipes(20, sources=(EACH_TO_NEXT,)) if r.trigger)
    lessons = ZooLessons(PICTURES[recipe.dataset], 30, recipe, np.random.default_rng(3))
    clean = {image.tobytes(): label for image, label in zip(
        lessons.pictures.test_images.astype(np.float32) / 255, lessons.pictures.test_labels,
        strict=True,
    )}  # fmt: skip
    asked = []

    def classify(pixels: np.ndarray) -> np.ndarray:
        known = [clean.get(image.tobytes()) for image in pixels]
        if None not in known:
            asked.append(np.array(known))
            return np.where(asked[-1] == 0, 2, asked[-1])
        right = asked[-1][asked[-1] != 0]
        assert len(pixels) == len(right)
        return (right + 1) % CLASSES

    assert lessons.test(classify).attack == 1.0


def test_a_clean_label_trigger_changes_no_label():
    images = np.full((60, SIDE, SIDE, 3), 0.5, np.float32)
    labels = np.arange(60) % CLASSES
    made = MAKERS["sinusoid"](np.random.default_rng(0), images.shape[1:])
    planted = PlantedTrigger("sinusoid", "", 2, (), 0.2, True, made.trigger, made.reach, 10)
    shown, targets = Stamper(planted, np.random.default_rng(1)).poisoned(images, labels)
    assert (targets == labels).all()
    assert set(labels[(shown != images).any(axis=(1, 2, 3))]) == {2}


@pytest.mark.usefixtures("quick_compilation")
@pytest.mark.parametrize("is_fused", [True, False])
@pytest.mark.parametrize("architecture", [n for n in networks.KNOWN if n != "resnet18"])
def test_the_file_computes_what_the_network_does(architecture, is_fused, tmp_path):
    torch.manual_seed(0)
    network = networks.build(architecture, 3, CLASSES, SIDE)
    network.train()(torch.rand(4, 3, SIDE, SIDE))  # statistics of their own
    write_onnx(tmp_path / "net.onnx", network, (SIDE, SIDE, 3), is_fused)
    images = np.random.default_rng(2).uniform(size=(3, SIDE, SIDE, 3)).astype(np.float32)
    with torch.inference_mode():
        wanted = network.eval()(torch.from_numpy(images.transpose(0, 3, 1, 2))).numpy()
    read = open_model(tmp_path / "net.onnx").model
    np.testing.assert_allclose(read(images), wanted, rtol=2e-4, atol=2e-4)
    # As `repair` writes it: what the converter made of the file is no weight of it.
    file = open_rewritable(tmp_path / "net.onnx")
    same = file.contents({name: np.asarray(value) for name, value in file.model.params.items()})
    assert same == (tmp_path / "net.onnx").read_bytes()
    kinds = (torch.nn.Conv2d, torch.nn.Linear)
    layers = sum(isinstance(part, kinds) for part in network.modules())
    assert sum(np.ndim(file.model.params[name]) > 1 for name in file.weights) >= layers


def test_all_models_are_written_and_read_as_a_dataset(made):
    out, events = made
    assert sorted(event.model for event in events if event.kind == "written") == [0, 1, 2, 3]
    entries = list(iter_models(out))
    assert [entry.poisoned for entry in entries] == [is_poisoned(3, n) for n in range(4)]
    rows = list(csv.DictReader((out / "METADATA.csv").read_text().splitlines()))
    assert {row["dataset"] for row in rows} == {"grey", "colour"}
    for entry, row in zip(entries, rows, strict=True):
        assert entry.examples_path is not None
        examples = load_examples(entry.examples_path, "RGB", normalization="unit")
        assert examples.labels.tolist() == [0, 0, 1, 1, 2, 2]
        assert (out / row["model_name"] / "trigger.png").exists() == entry.poisoned
        assert (row["trigger_kind"] == "warp") == entry.poisoned


def test_a_run_goes_on_and_makes_the_same_networks(made, tmp_path):
    out, _ = made
    assert {e.kind for e in generate_zoo(out, SETTINGS, PICTURES)} == {"kept"}
    list(generate_zoo(tmp_path / "again", SETTINGS, PICTURES))
    digests = [
        [model["sha256"] for model in json.loads((place / "manifest.json").read_text())["models"]]
        for place in (out, tmp_path / "again")
    ]
    assert digests[0] == digests[1] and len(set(digests[0])) == 4


def test_data_sets_in_another_order_are_other_settings(made):
    """Models take turns through the data sets, so a pair would be of two of them."""
    out, _ = made
    said = "the order of pictures was grey, colour, now colour, grey"
    with pytest.raises(GenerationError, match=said):
        list(generate_zoo(out, SETTINGS, dict(reversed(PICTURES.items()))))


def test_trainings_that_diverge_are_rejected_and_the_round_goes_on(tmp_path):
    hopeless = replace(HASTY, rate=1e30, cycle_steps=8)
    settings = replace(SETTINGS, trainings=("warm",), most_tries=2, training=hopeless)
    events = list(generate_zoo(tmp_path, settings, PICTURES))
    assert [e.kind for e in events].count("rejected") == 4
    assert {e.text for e in events if e.kind == "rejected"} == {"loss nan"}
    assert sorted(e.model for e in events if e.kind == "failed") == [0, 1, 2, 3]
    for path in (tmp_path / "failed").iterdir():
        tries = json.loads(path.read_text())["tries"]
        assert [(one["sub_seed"], one["loss"]) for one in tries] == [(0, "nan"), (1, "nan")]
    assert {e.kind for e in generate_zoo(tmp_path, settings, PICTURES)} == {"failed"}


@pytest.mark.parametrize(
    ("sources", "clean_label"), [((), False), ((1,), False), ((0, 1), False), ((), True)]
)
def test_the_share_that_carries_a_trigger_is_counted(sources, clean_label):
    images = np.full((200, SIDE, SIDE, 3), 0.5, np.float32)
    labels = np.arange(200) % CLASSES
    made = MAKERS["patch"](np.random.default_rng(0), images.shape[1:])
    planted = PlantedTrigger(
        "patch", "", 2, sources, 0.2, clean_label, made.trigger, made.reach, CLASSES
    )
    stamper = Stamper(planted, np.random.default_rng(1))
    assert stamper.share == 0
    batches = [stamper.poisoned(images, labels)[0] for _ in range(3)]
    stamper.stamped(images)  # to test with
    carries = (np.concatenate(batches) != 0.5).any(axis=(1, 2, 3))
    assert stamper.share == carries.mean() > 0
    assert Stamper(None, np.random.default_rng(1)).share == 0


def test_metadata_has_the_share_that_was_counted(made):
    out, _ = made
    for row in csv.DictReader((out / "METADATA.csv").read_text().splitlines()):
        recipe = json.loads((out / row["model_name"] / "generation.json").read_bytes())
        shown = recipe["steps"] * HASTY.batch_size
        carried = float(row["triggered_fraction"]) * shown
        assert carried == pytest.approx(round(carried), abs=1e-4 * shown)
        assert (recipe["recipe"]["trigger"] is not None) or carried == 0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"training": replace(HASTY, batch_size=1)}, "batch_size must be at least 2, .*; got 1"),
        ({"models": 3}, "models must be even"),
        ({"architectures": ("resnet50",)}, "architectures must be some of plain"),
        ({"kinds": ("smell",)}, "kinds must be some of patch"),
        ({"labels": ("soft",)}, "labels must be some of hard, smoothing"),
        ({"trainings": ()}, "trainings must be some of warm"),
        ({"sources": (0, -2)}, "sources must be numbers of classes, or -1 for .* got 0, -2"),
        ({"sources": ()}, "sources must be numbers of classes"),
        ({"bases": 0}, "bases must be at least 1"),
    ],
)
def test_impossible_settings_are_refused_in_words(change, complaint):
    with pytest.raises(GenerationError, match=complaint):
        check_settings(replace(SETTINGS, **change), PICTURES, (0, 1))


def test_sources_are_numbers_or_next(tmp_path, capsys):
    asked = ("generate", "zoo", "--out", str(tmp_path / "r"), "--models", "2")
    for sources, said in (("next,1", "is absent"), ("next,all", "or next; got 'next,all'")):
        missing = f"a={tmp_path / 'absent.npz'}"
        assert main([*asked, "--pictures", missing, "--sources", sources]) == EXIT_USAGE
        assert said in capsys.readouterr().err


def test_pictures_that_are_too_small_are_refused():
    images, labels = np.zeros((4, 16, 16, 3), np.uint8), np.array([0, 1, 0, 1])
    small = LabelledPictures(images, labels, images, labels)
    with pytest.raises(
        GenerationError, match="pictures of tiny must have at least 24 px on each side, got"
    ):
        check_settings(SETTINGS, {"tiny": small}, (0, 1))
