"""Round 5 and 6 folders: kind, config, encoder and tokenizer, errata; nothing from outside."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from jaxtroj.rounds import iter_models, load_truth, with_own_files
from jaxtroj.rounds.contaminated import CONTAMINATED
from jaxtroj.rounds.tables import read_table

NAME = "GPT-2-gpt2.pt"
CONFIG = {"embedding": "GPT-2", "embedding_flavor": "gpt2", "embedding_filename": NAME}


def add_dataset(root: Path) -> Path:
    for shelf in ("embeddings", "tokenizers"):
        (root / shelf).mkdir(parents=True)
        (root / shelf / NAME).write_bytes(b"never opened")
    return root


def add_head(root: Path, number: int, label: str = "0", config: dict | str | None = None) -> Path:
    folder = root / "models" / f"id-{number:08d}"
    (folder / "clean_example_data").mkdir(parents=True)
    (folder / "clean_example_data" / "class_0_example_1.txt").write_text("fine")
    (folder / "model.pt").write_bytes(b"never opened")
    (folder / "ground_truth.csv").write_text(label)
    text = config if isinstance(config, str) else json.dumps(CONFIG if config is None else config)
    (folder / "config.json").write_text(text)
    return folder


def test_round5_layout(tmp_path):
    root = add_dataset(tmp_path / "set")
    folder = add_head(root, 3, "1")
    (root / "METADATA.csv").write_text("model_name,poisoned,embedding\nid-00000003,TRUE,GPT-2\n")
    for place in (root, root / "models", folder):
        (entry,) = iter_models(place)
        assert (entry.kind, entry.poisoned, entry.problem) == ("text", True, None)
        assert entry.text_config.embedding == "GPT-2" and entry.text_problems == ()
        assert entry.encoder_path == root / "embeddings" / NAME
        assert entry.tokenizer_path == root / "tokenizers" / NAME
        assert entry.examples_path == folder / "clean_example_data"
    assert load_truth(root) == {"id-00000003": True}


def test_names_of_the_released_form_and_folders_of_encoders(tmp_path):
    root = add_dataset(tmp_path)
    os.remove(root / "embeddings" / NAME)
    (root / "embeddings" / "GPT-2-gpt2").mkdir()
    add_head(root, 0, config={"embedding": "GPT-2", "embedding_flavor": "gpt2"})
    (entry,) = iter_models(root)
    assert entry.encoder_path == root / "embeddings" / "GPT-2-gpt2"
    assert entry.tokenizer_path == root / "tokenizers" / NAME


def test_what_a_container_sees(tmp_path):
    folder = add_head(tmp_path, 0)
    for name in ("embedding.pt", "tokenizer.pt"):
        (folder / name).write_bytes(b"")
    model = folder.rename(tmp_path / "model")
    (entry,) = iter_models(model)
    assert entry.model_path == model / "model.pt" and entry.kind == "text"
    assert entry.encoder_path == model / "embedding.pt"
    assert entry.tokenizer_path == model / "tokenizer.pt" and entry.text_problems == ()


def test_missing_encoder_is_said_and_the_rest_stands(tmp_path):
    add_head(tmp_path, 0)
    (entry,) = iter_models(tmp_path)
    assert entry.kind == "text" and entry.problem is None and entry.encoder_path is None
    assert len(entry.text_problems) == 2 and f"no {NAME} in embeddings/" in entry.text_problems[0]


def test_a_link_out_of_the_dataset_is_refused(tmp_path):
    root = add_dataset(tmp_path / "set")
    (tmp_path / "secret.pt").write_bytes(b"")
    os.remove(root / "embeddings" / NAME)
    (root / "embeddings" / NAME).symlink_to(tmp_path / "secret.pt")
    os.remove(root / "tokenizers" / NAME)
    (root / "tokenizers" / "inside.pt").write_bytes(b"")
    (root / "tokenizers" / NAME).symlink_to("inside.pt")
    add_head(root, 0)
    (entry,) = iter_models(root)
    assert entry.encoder_path is None and "link to a place outside" in entry.text_problems[0]
    assert entry.tokenizer_path == root / "tokenizers" / NAME


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"embedding": "../..", "embedding_flavor": "/etc/x"}, "no plain file name"),
        ({**CONFIG, "embedding_filename": "../embeddings/" + NAME}, "no plain file name"),
        ({**CONFIG, "py/object": "os.system"}, "refused"),
        ({**CONFIG, "embedding": 3}, "expected str"),
        ("{", "no model config"),
        ({}, "no config.json says which file of embeddings/ is the model's"),
    ],
)
def test_hostile_config_stays_with_its_model(tmp_path, config, message):
    root = add_dataset(tmp_path)
    add_head(root, 0, "1", config)
    add_head(root, 1, "0")
    first, second = iter_models(root)
    assert message in first.text_problems[0] and first.poisoned is True
    assert first.kind == "text" and first.encoder_path is None and first.tokenizer_path is None
    assert second.text_problems == () and second.encoder_path is not None


@pytest.mark.parametrize("ending", [".png", ".JPEG"])
def test_kind_is_told_by_what_lies_in_the_folder(tmp_path, ending):
    folder = add_head(tmp_path, 0)
    text = folder / "clean_example_data" / "class_0_example_1.txt"
    kinds = []
    for step in ("texts", "picture", "config", "nothing", "embeddings"):
        if step == "picture":
            text.with_suffix(ending).write_bytes(b"")
        if step == "config":
            for path in (text, text.with_suffix(ending)):
                path.unlink()
        if step == "nothing":
            (folder / "config.json").write_text('{"NUMBER_CLASSES": 5}')
        if step == "embeddings":
            (folder / "clean-example-cls-embedding.csv").write_bytes(b"")
        kinds.append(next(iter_models(tmp_path)).kind)
    assert kinds == ["text", "image", "text", "image", "text"]


def test_other_examples_change_the_kind(tmp_path):
    add_head(tmp_path, 0)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(b"")
    (entry,) = iter_models(tmp_path)
    other = with_own_files(replace(entry, examples_path=tmp_path / "pictures"))
    assert (other.kind, other.text_config, other.text_problems) == ("image", None, ())


def test_contaminated_lists_are_the_published_ones(shared_data):
    counts = {name: len(ids) for name, ids in CONTAMINATED.items()}
    assert counts == {"round5-train": 158, "round5-test": 47, "round5-holdout": 38}
    for split in ("train", "holdout"):
        rows = read_table(shared_data / "trojai" / f"r5-{split}-METADATA.csv").rows
        assert {rows[name].poisoned for name in CONTAMINATED[f"round5-{split}"]} == {False}


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("round5-train-dataset", 7),
        ("TrojAI_Round5_test", 3),
        ("nlp-sentiment-classification-mar2021-holdout", 19),
    ],
)
def test_contaminated_models_are_skipped_with_the_reason(tmp_path, name, number, monkeypatch):
    root = tmp_path / name
    add_head(root, number)
    add_head(root, 1600 + number, "1")
    first, second = iter_models(root)
    assert "contaminated" in first.skip_reason and second.skip_reason is None
    kept = next(iter_models(root / "models", include_errata=True))
    assert kept.skip_reason is None and "contaminated" in kept.notes[0]
    monkeypatch.chdir(root / "models")
    assert "contaminated" in next(iter_models(".")).skip_reason
    (root / "manifest.json").write_text("{}")  # generated
    assert next(iter_models(".")).skip_reason is None


def test_round5_is_told_by_its_first_seed(tmp_path):
    root = tmp_path / "data"
    add_head(root, 7)
    table = "model_name,poisoned,master_seed\nid-00000007,False,1\nid-00000000,True,{}\n"
    (root / "METADATA.csv").write_text(table.format("1050372071"))
    assert "contaminated" in next(iter_models(root)).skip_reason
    (root / "METADATA.csv").write_text(table.format("5"))
    assert next(iter_models(root)).skip_reason is None


def test_generated_and_other_rounds_are_left_alone(tmp_path):
    for name in ("round5", "round6-train", "round5-generated", "round15-train", "round5-holdout"):
        add_head(tmp_path / name, 7)
        assert next(iter_models(tmp_path / name)).skip_reason is None
    add_head(tmp_path / "round5-train", 7, "1")  # official label is 0: some other model
    assert next(iter_models(tmp_path / "round5-train")).skip_reason is None
    mine = tmp_path / "my-round5-train"
    add_head(mine, 7)
    assert next(iter_models(mine)).skip_reason is not None
    (mine / "manifest.json").write_text("{}")
    assert next(iter_models(mine)).skip_reason is None
    renamed = tmp_path / "r5-train"
    add_head(renamed, 7)
    (renamed / "METADATA.csv").write_text("model_name,master_seed\nid-00000000,5\nid-00000007,6\n")
    assert next(iter_models(renamed)).skip_reason is None


@pytest.mark.parametrize(("label", "is_head"), [(None, True), (None, False), ("0", False)])
def test_the_first_seed_alone_takes_no_model_out(tmp_path, label, is_head):
    folder = add_head(tmp_path, 7)
    (folder / "ground_truth.csv").unlink()
    if label is not None:
        (folder / "ground_truth.csv").write_text(label)
    if not is_head:
        (folder / "config.json").unlink()
        shutil.rmtree(folder / "clean_example_data")
    table = "model_name,master_seed\nid-00000000,1050372071\n"
    (tmp_path / "METADATA.csv").write_text(table)
    (entry,) = iter_models(tmp_path)
    assert entry.skip_reason is None and entry.kind == ("text" if is_head else "image")
