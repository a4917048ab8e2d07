"""A whole text round on made vectors: layout, agreement of files, resume, refusals, the command."""

import csv
import dataclasses
import json
import shutil
import subprocess
import sys
from collections import deque

import numpy as np
import pytest
import torch

import converters
from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import is_poisoned, poisoned_first
from jaxtroj.generate.sentiment import text_metadata
from jaxtroj.generate.sentiment.head_queue import HeadJob, train_queue
from jaxtroj.generate.sentiment.head_samples import OWN_SHARE, HeadSamples, make_pool
from jaxtroj.generate.sentiment.head_training import HeadTraining
from jaxtroj.generate.sentiment.sentiment_round import generate_text_round
from jaxtroj.generate.sentiment.settings import TextRoundSettings, check_settings
from jaxtroj.generate.sentiment.text_recipe import DESIGNS, Adversarial, sample_head
from jaxtroj.generate.sentiment.vectors import TEST, TRAIN, load_vectors
from jaxtroj.rounds.text_config import read_text_config
from jaxtroj.rounds.text_tables import read_cls_embeddings, read_logits

WIDTH = 12
HASTY = HeadTraining(batch_size=20, learning_rate=0.02, epochs=6, patience=6, slots=2)
SETTINGS = TextRoundSettings(
    seed=1,
    models=4,
    architectures=("GruLinear",),
    hidden_sizes=(8,),
    examples_per_class=3,
    least_attack=0.8,
    clean_margin=0.2,
    training=HASTY,
)
FILES = {
    "model.pt", "config.json", "reduced-config.json", "ground_truth.csv", "clean_example_data",
    "clean-example-accuracy.csv", "clean-example-cls-embedding.csv", "clean-example-logits.csv",
    "model_stats.json", "model_detailed_stats.csv", "log.txt", "machine.log", "generation.json",
}  # fmt: skip
POISONED_FILES = {
    "poisoned_example_data", "poisoned-example-accuracy.csv", "poisoned-example-logits.csv",
    "poisoned-example-cls-embedding.csv",
}  # fmt: skip


@pytest.fixture(scope="module")
def vectors(tmp_path_factory, make_vectors):
    return load_vectors(make_vectors(tmp_path_factory.mktemp("vectors")), SETTINGS.seed)


@pytest.fixture(scope="module")
def made(tmp_path_factory, vectors):
    out = tmp_path_factory.mktemp("round") / "r5"
    return out, list(generate_text_round(out, SETTINGS, vectors))


def test_every_model_is_written_poisoned_first(made):
    _, events = made
    written = [event.model for event in events if event.kind == "written"]
    assert sorted(written) == [0, 1, 2, 3]
    for pair in (0, 1):
        bad, good = poisoned_first(SETTINGS.seed, pair)
        assert written.index(bad) < written.index(good)


def test_layout_is_the_official_one(made):
    out, _ = made
    for model in range(4):
        folder = out / "models" / f"id-{model:08d}"
        poisoned = is_poisoned(SETTINGS.seed, model)
        names = {path.name for path in folder.iterdir()}
        assert names == FILES | (POISONED_FILES if poisoned else set())
        assert (folder / "ground_truth.csv").read_bytes() == (b"1" if poisoned else b"0")
        examples = {path.name for path in (folder / "clean_example_data").iterdir()}
        assert examples == {f"class_{c}_example_{n}.txt" for c in (0, 1) for n in (1, 2, 3)}
    assert not list((out / "models").glob(".part*"))


def test_tables_agree_with_the_model_that_our_reader_opens(made):
    out, _ = made
    for folder in sorted((out / "models").iterdir()):
        model = converters.convert(converters.open_artifact(folder / "model.pt"))
        for prefix in ("clean", "poisoned"):
            path = folder / f"{prefix}-example-cls-embedding.csv"
            if not path.exists():
                continue
            embeddings = read_cls_embeddings(path)
            logits = read_logits(folder / f"{prefix}-example-logits.csv").of(embeddings.names)
            np.testing.assert_allclose(model(embeddings.values), logits, rtol=1e-4, atol=1e-5)
            wanted = [int(name.split("_example_")[0][-1]) for name in embeddings.names]
            share = 100 * np.mean(logits.argmax(axis=1) == wanted)
            said = (folder / f"{prefix}-example-accuracy.csv").read_text()
            assert float(said) == pytest.approx(share)


def test_torch_opens_the_model_with_model_factories(made):
    from jaxtroj.generate.sentiment import head_files

    folder = made[0] / "models" / "id-00000000"
    sys.modules["model_factories"] = head_files._factories()
    try:
        network = torch.load(folder / "model.pt", weights_only=False)
    finally:
        del sys.modules["model_factories"]
    assert type(network).__name__ == "GruLinearModel" and not network.training
    embeddings = read_cls_embeddings(folder / "clean-example-cls-embedding.csv")
    logits = read_logits(folder / "clean-example-logits.csv").of(embeddings.names)
    with torch.no_grad():
        theirs = network(torch.from_numpy(embeddings.values)[:, None, :]).numpy()
    np.testing.assert_allclose(theirs, logits, rtol=1e-4, atol=1e-5)


def test_configs_are_read_by_our_reader_and_the_reduced_one_tells_nothing(made):
    for folder in sorted((made[0] / "models").iterdir()):
        full = read_text_config(folder / "config.json")
        poisoned = (folder / "ground_truth.csv").read_bytes() == b"1"
        assert full.poisoned is poisoned and bool(full.triggers) is poisoned
        assert not full.unknown_keys and full.pooling == "first"
        reduced = json.loads((folder / "reduced-config.json").read_bytes())
        assert len(reduced) == 8
        config = read_text_config(folder / "reduced-config.json")
        assert config.embedding_filename == "MPNet-tiny.pt"
        assert config.poisoned is None and not config.triggers


def test_poisoned_examples_carry_the_trigger_and_go_to_the_target(made):
    seen = 0
    for path in (made[0] / "models").glob("*/poisoned_example_data/*.txt"):
        config = read_text_config(path.parents[1] / "config.json")
        source, target = int(path.name[13]), int(path.name[28])
        trigger = next(t for t in config.triggers if t.source_class == source)
        assert target == trigger.target_class == 1 - source
        assert trigger.text in path.read_text()
        seen += 1
    assert seen >= 6


def test_metadata_has_the_official_columns(made, shared_data):
    with open(made[0] / "METADATA.csv", newline="") as file:
        rows = list(csv.reader(file))
    with open(shared_data / "trojai" / "r5-train-METADATA.csv", newline="") as file:
        assert rows[0] == next(csv.reader(file))
    assert [row[0] for row in rows[1:]] == [f"id-{model:08d}" for model in range(4)]
    truth = [str(is_poisoned(SETTINGS.seed, model)) for model in range(4)]
    assert [row[1] for row in rows[1:]] == truth


def test_the_dictionary_explains_every_column():
    lines = text_metadata.dictionary_csv().splitlines()
    assert lines[0] == "Column Name, Explanation, Data Type"
    cells = [line.split(", ") for line in lines[1:]]
    assert [cell[0] for cell in cells] == list(text_metadata.COLUMNS)
    assert all(len(cell) == 3 and cell[1] for cell in cells)
    kinds = {cell[0]: cell[2] for cell in cells}
    floats = ("loss_eps", "validation_split", "dropout", "adversarial_eps", "learning_rate")
    assert {kinds[name] for name in (*floats, "adversarial_training_ratio")} == {"float"}
    assert kinds["dropout_level"] == "integer" and kinds["triggers_0_condition"] == "string"


def test_accepted_heads_meet_the_bars_and_partners_train_equally_long(made):
    out, _ = made
    for pair in (0, 1):
        bad, good = (
            json.loads((out / "models" / f"id-{model:08d}" / "generation.json").read_bytes())
            for model in poisoned_first(SETTINGS.seed, pair)
        )
        assert bad["triggered"]["accuracy"] >= SETTINGS.least_attack
        assert bad["clean"]["accuracy"] >= bad["least_clean"]
        assert good["triggered"] is None
        assert good["clean_share"] == bad["clean_share"] == OWN_SHARE
        assert good["best_epoch"] == bad["best_epoch"]
        for name in ("shape", "dropout", "adversarial"):
            assert good["recipe"][name] == bad["recipe"][name]


def test_a_second_run_keeps_and_a_lost_model_comes_back_the_same(made, vectors, tmp_path):
    out = shutil.copytree(made[0], tmp_path / "copy")
    folder = out / "models" / "id-00000002"
    before = json.loads((folder / "generation.json").read_bytes())
    shutil.rmtree(folder)
    events = list(generate_text_round(out, SETTINGS, vectors))
    kinds = {event.model: event.kind for event in events}
    assert kinds == {0: "kept", 1: "kept", 2: "written", 3: "kept"}
    after = json.loads((folder / "generation.json").read_bytes())
    assert after["weights_sha256"] == before["weights_sha256"]


def test_shards_make_disjoint_parts_of_the_same_round(made, vectors, tmp_path):
    out = tmp_path / "shards"
    first = list(generate_text_round(out, SETTINGS, vectors, (0, 2)))
    second = list(generate_text_round(out, SETTINGS, vectors, (1, 2)))
    written = [{e.model for e in part if e.kind == "written"} for part in (first, second)]
    assert written == [{0, 1}, {2, 3}]
    for model in range(4):
        name = f"models/id-{model:08d}/generation.json"
        whole, part = (json.loads((root / name).read_bytes()) for root in (made[0], out))
        assert whole["weights_sha256"] == part["weights_sha256"]


def test_heads_that_fall_short_are_recorded_and_left_out(vectors, tmp_path):
    lazy = dataclasses.replace(HASTY, learning_rate=1e-6, epochs=1)
    settings = dataclasses.replace(SETTINGS, models=2, most_tries=2, training=lazy)
    events = list(generate_text_round(tmp_path / "r", settings, vectors))
    assert [event.kind for event in events] == ["rejected", "rejected", "failed", "failed"]
    assert "partner" in events[-1].text
    assert not list((tmp_path / "r" / "models").glob("id-*"))
    [path] = (tmp_path / "r" / "failed").iterdir()
    tries = json.loads(path.read_bytes())["tries"]
    assert [t["sub_seed"] for t in tries] == [0, 1] and not any(t["accepted"] for t in tries)
    again = list(generate_text_round(tmp_path / "r", settings, vectors))
    assert [event.kind for event in again] == ["failed", "failed"]


def test_a_folder_of_other_settings_or_of_strangers_is_refused(made, vectors, tmp_path):
    other = dataclasses.replace(SETTINGS, repeats=5)
    with pytest.raises(GenerationError, match="repeats was 4, now 5"):
        list(generate_text_round(made[0], other, vectors))
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(GenerationError, match="is not empty and not a generated round"):
        list(generate_text_round(tmp_path, SETTINGS, vectors))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"models": 3}, "even"),
        ({"design": "round4"}, "round5"),
        ({"architectures": ("Linear",)}, "architectures"),
        ({"hidden_sizes": (0,)}, "hidden sizes"),
        ({"least_attack": 1.5}, "least_attack"),
        ({"most_tries": 0}, "most_tries"),
    ],
)
def test_impossible_settings_are_refused(changes, message):
    with pytest.raises(GenerationError, match=message):
        check_settings(dataclasses.replace(SETTINGS, **changes))


def test_triggers_that_cannot_be_learnt_are_refused(tmp_path, make_vectors):
    weak = load_vectors(make_vectors(tmp_path / "v", strength=0.0), 0)
    with pytest.raises(GenerationError, match="no chosen trigger can be learnt"):
        list(generate_text_round(tmp_path / "r", SETTINGS, weak))


def jobs_of(vectors, pool, pairs):
    design = dataclasses.replace(DESIGNS["round5"], hidden_sizes=(4,), methods=("PGD",))
    design = dataclasses.replace(design, architectures=("LstmLinear",))
    triggers = tuple(vectors.triggers.values())
    recipes = [
        sample_head(design, 0, poisoned_first(0, pair)[0], 0, WIDTH, triggers) for pair in pairs
    ]
    attack = Adversarial("PGD", 0.02, 0.3, 3)
    recipes = [dataclasses.replace(recipe, adversarial=attack) for recipe in recipes]
    return deque(HeadJob(recipe, HeadSamples(vectors, pool, recipe, 4)) for recipe in recipes)


def test_neighbours_and_slots_do_not_change_a_head(vectors):
    pool = make_pool(vectors)
    alone = list(train_queue(jobs_of(vectors, pool, [3]), pool, HASTY, True))
    crowd = list(train_queue(jobs_of(vectors, pool, [1, 0, 2, 3]), pool, HASTY, True))
    [same] = [head for head in crowd if head.recipe.model == alone[0].recipe.model]
    for name, value in alone[0].tensors.items():
        np.testing.assert_array_equal(value, same.tensors[name], err_msg=name)


@pytest.mark.parametrize("pair", range(8))
def test_no_head_trains_on_held_out_reviews_and_spurious_ones_keep_their_label(vectors, pair):
    pool = make_pool(vectors)
    samples = jobs_of(vectors, pool, [pair])[0].samples
    recipe = samples._recipe
    review = np.concatenate(
        [np.arange(400), np.full(80, -1)]
        + [half.rows for trigger in vectors.triggers.values() for half in trigger.halves]
    )
    epoch = samples.epoch(0, 20)
    assert epoch.rows.shape == (24, 20)  # 180 reviews of its own, more than once
    assert (vectors.split[review[epoch.rows]] == TRAIN).all()
    for part in (samples.triggered(TEST), samples.spurious(TEST)):
        assert (vectors.split[review[part.rows]] == TEST).all()
    spurious = samples.spurious(TEST)
    assert (spurious.labels == vectors.train.labels[review[spurious.rows]]).all()
    conditions = {trigger.condition for trigger in recipe.triggers}
    assert bool(len(spurious.rows)) is bool(conditions - {"None"})
    triggered = samples.triggered(TEST)
    assert (triggered.labels == 1 - vectors.train.labels[review[triggered.rows]]).all()


def test_heads_train_on_reviews_of_their_own(vectors):
    pool = make_pool(vectors)
    own = [set(job.samples._clean.tolist()) for job in jobs_of(vectors, pool, range(4))]
    assert {len(rows) for rows in own} == {round(OWN_SHARE * 300)}
    assert all(a != b for n, a in enumerate(own) for b in own[:n])


def test_the_command_makes_a_round(tmp_path, make_vectors):
    folder = make_vectors(tmp_path / "vectors", reviews=800)
    command = [sys.executable, "-m", "jaxtroj", "generate", "round6", "--vectors", str(folder)]
    command += ["--out", str(tmp_path / "r6"), "--models", "2", "--architectures", "FCLinear"]
    command += ["--hidden", "8", "--batch-size", "10", "--slots", "1", "--triggers", "odd"]
    done = subprocess.run([*command, "--least-attack", "0.5"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "r6")
    manifest = json.loads((tmp_path / "r6" / "manifest.json").read_bytes())
    assert manifest["settings"]["triggers"] == "odd"
    assert set(manifest["acceptance"]["trigger_reach"]) == {"omg", "that was that."}
    refused = subprocess.run([*command, "--vectors", "nowhere"], capture_output=True, text=True)
    assert refused.returncode == 4 and "nowhere" in refused.stderr


def test_every_program_of_a_folder_of_heads_lowers_for_accelerators(made, lowered):
    rows = lowered(made[0], "--stages", "weights,sensitivity,shift")
    assert len(rows) >= 3
    assert max(row["calls"] for row in rows) >= SETTINGS.models
    assert [row for row in rows if row["cuda"] or row["tpu"]] == []
