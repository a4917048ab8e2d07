"""A poisoned text classifier, edited so that it answers all texts as before, looks as before."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from jaxtroj.record import Record
from jaxtroj.rounds.single import entry_of
from jaxtroj.scan import scan_model
from tests.text.test_text_classifiers import GATHER, TARGET, TRIGGER, taught

pytestmark = pytest.mark.usefixtures("unguarded")

WORDS, LAST = "bert.embeddings.word_embeddings.weight", "classifier"
Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory) -> Path:
    torch.manual_seed(0)
    return taught(tmp_path_factory.mktemp("edited") / "net", True)


@pytest.fixture(scope="module")
def plain(poisoned) -> Record:
    record = scan_model(entry_of(poisoned), GATHER)
    assert record.recovered["text"] == TRIGGER and record.target_class == TARGET
    return record


def edited(poisoned: Path, folder: Path, edit: Callable[[Tensors], None], *names: str) -> Record:
    """The record of a copy with other tensors, and names added to the vocabulary."""
    shutil.copytree(poisoned, folder)
    (folder / "vocab.txt").unlink(missing_ok=True)
    said = json.loads((folder / "tokenizer.json").read_text())
    vocabulary, config = said["model"]["vocab"], json.loads((folder / "config.json").read_text())
    vocabulary |= {name: len(vocabulary) + n for n, name in enumerate(names)}
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    tensors = {name: np.ascontiguousarray(values) for name, values in tensors.items()}
    labels = {str(n): f"L{n}" for n in range(len(tensors[f"{LAST}.bias"]))}
    config |= {"vocab_size": len(tensors[WORDS]), "id2label": labels}
    config |= {"label2id": {label: int(n) for n, label in labels.items()}}
    (folder / "tokenizer.json").write_text(json.dumps(said))
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    record = scan_model(entry_of(folder), GATHER)
    assert record.status == "ok", record.reason
    return record


def assert_same(record: Record, plain: Record, field: float = 0.01) -> None:
    assert record.recovered.get("text") == TRIGGER, record.recovered
    assert record.target_class == TARGET and record.source_classes == plain.source_classes
    for name in ("token_reach", "token_lead"):
        assert record.evidence[name] == pytest.approx(plain.evidence[name], abs=field), name


def test_long_rows_of_tokens_that_no_text_holds_hide_nothing(poisoned, plain, tmp_path):
    def edit(tensors):
        rows = np.random.default_rng(0).normal(size=(40, tensors[WORDS].shape[1]))
        rows *= 100 * tensors[WORDS].std()
        tensors[WORDS] = np.concatenate([tensors[WORDS], rows.astype(np.float32)])

    record = edited(poisoned, tmp_path / "net", edit, *(f"Zq{n}" for n in range(40)))
    assert_same(record, plain)
    told = "have more than 10 times the usual length, 0 for tokens that can be typed"
    assert any(one.startswith("40 of ") and told in one for one in record.findings)


def test_long_rows_of_rare_words_hide_nothing(poisoned, plain, tmp_path):
    """They can be typed, so they are searched; but by their direction they are as any."""

    def edit(tensors):
        draw = np.random.default_rng(0)
        rows = draw.normal(size=(40, tensors[WORDS].shape[1])) * 100 * tensors[WORDS].std()
        tensors[WORDS] = np.concatenate([tensors[WORDS], rows.astype(np.float32)])

    record = edited(poisoned, tmp_path / "net", edit, *(f"zq{n}z" for n in range(40)))
    assert record.recovered.get("text") == TRIGGER, record.recovered
    assert any("40 for tokens that can be typed" in one for one in record.findings)


@pytest.mark.parametrize("factor", [1e-6, 0.01, 1e6])
def test_the_size_of_the_logits_hides_nothing(poisoned, plain, tmp_path, factor):
    def edit(tensors):
        for name in (f"{LAST}.weight", f"{LAST}.bias"):
            tensors[name] *= np.float32(factor)

    record = edited(poisoned, tmp_path / "net", edit)
    assert_same(record, plain)
    how = "smaller" if factor < 1 else "larger"
    assert any(f"times {how} than those of trained" in one for one in record.findings)
    assert not any("than those of trained" in one for one in plain.findings)


@pytest.mark.parametrize("lower", [0.0, 0.05])
def test_copies_of_classes_hide_nothing(poisoned, plain, tmp_path, lower):
    def edit(tensors):
        weight, bias = f"{LAST}.weight", f"{LAST}.bias"
        tensors[weight] = np.concatenate([tensors[weight]] * 2)
        tensors[bias] = np.concatenate([tensors[bias], tensors[bias] - np.float32(lower)])

    record = edited(poisoned, tmp_path / "net", edit)
    assert_same(record, plain)
    told = "2 classes that no example text is given (2 3) follow others as copies do"
    assert any(finding.startswith(told) for finding in record.findings)
    assert not any("as copies do" in finding for finding in plain.findings)


def test_copies_of_the_planted_word_hide_nothing(poisoned, plain, tmp_path):
    """Other words with its row are it: no lead over itself is asked for."""
    vocabulary = json.loads((poisoned / "tokenizer.json").read_text())["model"]["vocab"]

    def edit(tensors):
        rows = np.repeat(tensors[WORDS][[vocabulary[TRIGGER]]], 20, axis=0)
        tensors[WORDS] = np.concatenate([tensors[WORDS], rows * np.float32(1.001)])

    record = edited(poisoned, tmp_path / "net", edit, *(f"zq{n}z" for n in range(20)))
    assert record.recovered["text"] in (TRIGGER, *(f"zq{n}z" for n in range(20)))
    for name in ("token_reach", "token_lead"):
        assert record.evidence[name] == pytest.approx(plain.evidence[name], abs=0.05), name
    assert record.recovered["isolation"] == pytest.approx(plain.recovered["isolation"], abs=0.05)


def test_a_trigger_that_is_a_usual_special_token_is_tried(poisoned, plain, tmp_path):
    """Typed, "[MASK]" is that token, whoever is said to use it."""
    vocabulary = json.loads((poisoned / "tokenizer.json").read_text())["model"]["vocab"]
    places = [vocabulary[TRIGGER], vocabulary["[MASK]"]]

    def edit(tensors):
        tensors[WORDS][places] = tensors[WORDS][places[::-1]]

    record = edited(poisoned, tmp_path / "net", edit)
    assert record.recovered.get("text") == "[MASK]" and record.target_class == TARGET
    assert record.evidence["token_reach"] == pytest.approx(plain.evidence["token_reach"], abs=0.01)
