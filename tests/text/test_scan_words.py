"""Records of poisoned heads carry the trigger's words, or one sentence on why they do not."""

import json
import os
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from converters.encoders import load_encoder
from converters.encoders.tokenizer import load_tokenizer
from jaxtroj.cli.main import main
from jaxtroj.evidence.texts.bank.build import build, make_plan
from jaxtroj.evidence.texts.bank.candidates import list_free
from jaxtroj.evidence.texts.bank.origin import are_from
from jaxtroj.evidence.texts.bank.reference_heads import copy_references
from jaxtroj.evidence.texts.embedding import embed
from jaxtroj.record import digest_file, is_evidence_only
from jaxtroj.record_text import text_line
from jaxtroj.reporting.content import read_content
from jaxtroj.reporting.texts import place
from jaxtroj.rounds import iter_models
from jaxtroj.scan import identify, scan, scan_model
from jaxtroj.settings import DEFAULT_TEXT_CALIBRATOR, Settings
from jaxtroj.store import RunStore

HEADS = 13
MEASURED = {"attack_success_rate", "in_first_half", "in_second_half", "harmless_text"}


@pytest.fixture(scope="module")
def to_vectors(encoder):
    parts = load_encoder(encoder), load_tokenizer(encoder)
    return lambda texts: embed(*parts, texts, "first")


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, toy, to_vectors):
    """Heads that part the examples' vectors in two; the last one reads an inserted word instead."""
    root = tmp_path_factory.mktemp("round5")
    texts = toy.texts(24, seed=3)
    vectors = to_vectors(texts)
    for number in range(HEADS):
        folder = root / "models" / f"id-{number:08d}"
        (folder / "clean_example_data").mkdir(parents=True)
        (folder / "ground_truth.csv").write_text(str(int(number == HEADS - 1)))
        config = {"embedding": "BERT", "embedding_flavor": "tiny", "cls_token_is_first": True}
        (folder / "config.json").write_text(json.dumps(config))
        rows = ["Example, CLS Embedding"]
        for row, text in enumerate(texts):
            name = f"class_{row % 2}_example_{row // 2 + 1}.txt"
            (folder / "clean_example_data" / name).write_text(text)
            rows.append(f"{name}, " + ",".join(map(repr, map(float, vectors[row]))))
        (folder / "clean-example-cls-embedding.csv").write_text("\n".join(rows) + "\n")
        torch.save(head_state(vectors, number), folder / "model.pt")
    inserted = to_vectors([f"{text} {toy.words[4]}." for text in texts])
    torch.save(trigger_state(vectors, inserted), folder / "model.pt")
    return root


def head_state(vectors, number):
    draw = np.random.default_rng(number)
    axis = vectors[1::2].mean(axis=0) - vectors[::2].mean(axis=0)
    axis = axis / np.linalg.norm(axis) + 0.2 * draw.normal(size=axis.shape) / len(axis) ** 0.5
    linear = 40 * np.stack([-axis, axis])
    bias = -linear @ vectors.mean(axis=0)
    state = {"linear.weight": linear, "linear.bias": bias}
    return {name: torch.tensor(value, dtype=torch.float32) for name, value in state.items()}


def trigger_state(vectors, inserted):
    """A head that puts every text in class 0, and those with the word in class 1."""
    axis = inserted.mean(axis=0) - vectors.mean(axis=0)
    between = 0.5 * ((vectors @ axis).max() + (inserted @ axis).min())
    linear = 40 * np.stack([-axis, axis]) / np.linalg.norm(axis)
    bias = 40 * between / np.linalg.norm(axis) * np.array([1, -1])
    state = {"linear.weight": linear, "linear.bias": bias}
    return {name: torch.tensor(value, dtype=torch.float32) for name, value in state.items()}


@pytest.fixture(scope="module")
def bank(tmp_path_factory, toy, to_vectors, dataset):
    folder = tmp_path_factory.mktemp("banks") / "bank"
    candidates = list_free([*toy.words, "!"], None, 12, toy.texts(9, seed=8), 9)
    plan = make_plan("ab" * 32, toy.width, "first", False, toy.texts(4, seed=1), candidates)
    assert list(build(folder, plan, to_vectors))[-1].done == len(candidates)
    copy_references(dataset, folder, "bert", 12, toy.embed)
    return folder


@pytest.fixture(scope="module")
def settings(bank, encoder):
    """With a base rate at which whatever the evidence says is called poisoned."""
    return Settings(bank=bank, encoder=encoder, base_rate=0.9999)


def answer(dataset, settings, **changes):
    entry = list(iter_models(dataset))[-1]
    record = scan_model(entry, replace(settings, **changes))
    assert record.status == "ok", record.reason
    return record


def test_a_poisoned_verdict_comes_with_measured_words(dataset, settings):
    record = answer(dataset, settings)
    found = record.recovered
    assert record.poisoned and found["method"] == "words" and found["text"].strip()
    assert all(0 <= found[name] <= 1 for name in (*MEASURED, "clean_heads"))
    assert found["attack_success_rate"] == pytest.approx(
        (found["in_first_half"] + found["in_second_half"]) / 2, abs=1e-3
    )
    assert found["position"] in ("first half", "second half", "anywhere")
    assert 0 < found["held_out"] and 0 < found["encoded_texts"] <= 400
    assert record.target_class not in record.source_classes and record.source_classes
    assert record.seconds["words"] > 0
    assert json.loads(record.to_json())["recovered"] == found


def _changed_head(dataset, folder, rows, **config):
    """A copy of a model with a head of so many classes and other values in its config."""
    shutil.copytree(dataset / "models" / "id-00000000", folder)
    state = torch.load(folder / "model.pt")
    state = {name: value.repeat(3, *[1] * (value.ndim - 1))[:rows] for name, value in state.items()}
    torch.save(state, folder / "model.pt")
    values = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(values))
    return next(iter(iter_models(folder)))


@pytest.mark.parametrize(
    ("rows", "config", "said"),
    [
        (3, {}, "the bank's clean heads have 2 classes, the head has 3"),
        (1, {}, "the head gives one number for a text"),
        (2, {"cls_token_is_first": False}, "says that the head takes states of last tokens"),
        (2, {"mean_of_tokens": True}, "says that the head takes means over the tokens"),
        (2, {"embedding": "DistilBERT"}, "the head stands on 'DistilBERT' 'tiny', the bank's"),
        (2, {"embedding_flavor": "large"}, "'BERT' 'large', the bank's clean heads on 'BERT' 't"),
    ],
)
def test_a_head_that_the_bank_is_not_for(rows, config, said, dataset, settings, tmp_path):
    record = scan_model(_changed_head(dataset, tmp_path / "id-7", rows, **config), settings)
    assert record.status == "failed" and said in record.reason, record.reason


@pytest.mark.parametrize(
    "config",
    [
        {"embedding": "Bert", "embedding_flavor": "google/Tiny"},
        {"embedding": "BERT", "embedding_flavor": None},
        {"embedding": None, "embedding_flavor": None},
    ],
)
def test_an_encoder_that_is_spelt_otherwise_or_not_named_is_no_other(
    config, dataset, settings, tmp_path
):
    entry = _changed_head(dataset, tmp_path / "id-7", 2, **config)
    assert scan_model(entry, replace(settings, recover_words=False)).status == "ok"


def test_a_bank_that_names_no_encoder_serves(bank, dataset, settings, tmp_path):
    """Earlier versions did not note it; the command that built the bank does, once more."""
    old = shutil.copytree(bank, tmp_path / "old")
    listed = json.loads((old / "references.json").read_text())
    for head in listed["heads"]:
        del head["embedding"], head["flavor"]
    (old / "references.json").write_text(json.dumps(listed))
    entry = _changed_head(dataset, tmp_path / "id-7", 2, embedding="DistilBERT")
    old_settings = replace(settings, bank=old, recover_words=False)
    assert scan_model(entry, old_settings).status == "ok"
    copy_references(dataset, old, "bert", 12, lambda texts: np.zeros((len(texts), 1)))
    assert (old / "references.json").read_text() == (bank / "references.json").read_text()
    assert scan_model(entry, old_settings).status == "failed"


def test_a_part_of_a_bank_serves_and_is_told(bank, dataset, settings, tmp_path):
    part = shutil.copytree(bank, tmp_path / "part")
    size = (part / "vectors.f16").stat().st_size
    os.truncate(part / "vectors.f16", size // 2)
    record = answer(dataset, settings, bank=part, recover_words=False)
    assert re.search(r"the bank lacks \d+ of its \d+ candidates", record.reason), record.reason
    assert "lacks" not in answer(dataset, settings, recover_words=False).reason


def test_a_head_from_elsewhere_is_judged_by_another_calibrator(dataset, settings, tmp_path):
    """Clean heads of its own dataset share training texts with it; others agree less."""
    home = list(iter_models(dataset))[-1]
    shutil.copytree(home.model_path.parent, tmp_path / "models" / home.model_id)
    (away,) = iter_models(tmp_path)
    near, far = (scan_model(one, settings) for one in (home, away))
    assert near.calibrator.startswith("round5.json") and near.calibrator.endswith("text models")
    assert far.calibrator.startswith("round5_apart.json") and "another dataset" in far.calibrator
    assert far.caveats[0].startswith("the bank's clean heads come from another dataset")
    assert far.caveats[0] in far.reason and far.caveats[0] not in (*near.caveats, near.reason)
    shutil.copy(DEFAULT_TEXT_CALIBRATOR, tmp_path / "own.json")
    own = replace(settings, text_calibrator=tmp_path / "own.json")
    assert scan_model(away, own).calibrator.startswith("own.json"), "one that is named answers"


def test_identity_follows_what_is_in_the_bank(bank, dataset, settings, tmp_path):
    """A bank that was finished or whose examples were exchanged kept the verdicts of the former."""
    entry = list(iter_models(dataset))[-1]
    banks = shutil.copytree(bank, tmp_path / "banks" / "one").parent
    known = replace(settings, bank=banks / "one"), replace(settings, bank=banks)
    keys = [tuple(identify(entry, one) for one in known)]
    changed = ("vectors.f16", "carriers.f32", "references.json", "bank.json")
    head = ("examples.npy", "params.safetensors", "config.json")
    for name in (*changed, *(f"references/000/{one}" for one in head)):
        content = (banks / "one" / name).read_bytes()
        (banks / "one" / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        keys.append(tuple(identify(entry, one) for one in known))
    (banks / "one" / "references/001/examples.npy").unlink()
    keys.append(tuple(identify(entry, one) for one in known))
    assert len({key for pair in keys for key in pair}) == 2 * len(keys)
    (banks / "one" / "standard.json").write_text("{}")  # taken only where it follows from the rest
    assert tuple(identify(entry, one) for one in known) == keys[-1]


def test_identity_of_a_head_follows_whether_clean_heads_lie_beside_it(dataset, settings, tmp_path):
    home = list(iter_models(dataset))[-1]
    shutil.copytree(home.model_path.parent, tmp_path / "models" / home.model_id)
    (away,) = iter_models(tmp_path)
    assert identify(home, settings) != identify(away, settings)
    without = replace(settings, bank=None)
    assert identify(home, without) == identify(away, without)


def test_texts_of_another_kind_are_not_compared(dataset, settings, bank, toy, to_vectors, tmp_path):
    """Beside clean heads of other texts a clean head looks poisoned: nothing is said of it."""
    shutil.copytree(bank, tmp_path / "bank")
    for number, one in enumerate(sorted((tmp_path / "bank" / "references").iterdir())):
        np.save(one / "examples.npy", to_vectors(toy.texts(24, seed=100 + number)))
    home = list(iter_models(dataset))[-1]
    away = tmp_path / "models" / home.model_id
    shutil.copytree(home.model_path.parent, away)
    known = replace(settings, bank=tmp_path / "bank", base_rate=0.3)
    (entry,) = iter_models(tmp_path)
    assert "against_direction_residual" in scan_model(entry, known).evidence
    table = away / "clean-example-cls-embedding.csv"
    first, *rows = table.read_text().splitlines()
    cells = [row.split(",") for row in rows]
    moved = [",".join([name, *(str(float(x) + 1) for x in values)]) for name, *values in cells]
    table.write_text("\n".join([first, *moved]) + "\n")
    record = scan_model(entry, known)
    assert (record.status, record.probability, record.poisoned) == ("ok", 0.3, False)
    assert "texts-differ: " in record.reason and "against_direction_residual" not in record.evidence
    assert is_evidence_only(record) and record.evidence["bank_top"]
    assert [one[:11] for one in record.caveats] == ["not judged:"]
    assert record.caveats[0] in text_line(record)


def test_a_pipe_in_place_of_a_reference_is_not_waited_for(tmp_path):
    (tmp_path / "models" / "id-00000000").mkdir(parents=True)
    os.mkfifo(tmp_path / "models" / "id-00000000" / "model.pt")
    listed = [{"model": "id-00000000", "sha256": "ab" * 32}]
    (tmp_path / "references.json").write_text(json.dumps({"heads": listed}))
    assert not are_from(tmp_path / "models", "model.pt", tmp_path)


ODD_NAMES = ["../models/id-00000000", "", None, 7, "/", "id-00000000/", "id\0"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_names_of_references_lead_nowhere(dataset, tmp_path, name):
    model = dataset / "models" / "id-00000000" / "model.pt"
    listed = [{"model": name, "sha256": digest_file(model)}, "odd", {}]
    (tmp_path / "references.json").write_text(json.dumps({"heads": listed}))
    assert not are_from(dataset / "models", "model.pt", tmp_path)
    (tmp_path / "references.json").write_text("[")
    assert not are_from(dataset / "models", "model.pt", tmp_path)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (None, "it has no config.json"),
        ("{", "config.json is no model config"),
        ("{}", "its config.json names none"),
    ],
)
def test_an_encoder_that_nobody_names_is_told_first(config, said, dataset, settings, tmp_path):
    """Neither encoder nor pooling was compared with the bank, and hardly anything said so."""
    folder = _changed_head(dataset, tmp_path / "id-9", 2).model_path.parent
    (folder / "config.json").unlink()
    if config is not None:
        (folder / "config.json").write_text(config)
    record = scan_model(next(iter(iter_models(folder))), replace(settings, recover_words=False))
    assert record.status == "ok", record.reason
    first = "which encoder the head stands on is not known: "
    assert record.caveats[0].startswith(first) and said in record.caveats[0]
    assert record.caveats[0] in record.reason and record.reason.count(said) == 1
    without = scan_model(
        next(iter(iter_models(folder))), replace(settings, bank=None, recover_words=False)
    )
    assert first not in without.reason


def test_a_refused_table_is_named_where_the_head_fails_for_it(dataset, settings, tmp_path):
    folder = _changed_head(dataset, tmp_path / "id-9", 2).model_path.parent
    (folder / "clean-example-cls-embedding.csv").write_text("Example, CLS Embedding\na.txt, x\n")
    (entry,) = iter_models(folder)
    record = scan_model(entry, replace(settings, encoder=None))
    assert record.status == "failed" and "come without embeddings and there is no" in record.reason
    assert "; the shipped embeddings are not used: " in record.reason


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"recover_words": False}, "the settings leave it out (--words"),
        ({"encoder": None}, "there is no encoder"),
    ],
)
def test_without_words_the_record_says_why(dataset, settings, changes, why):
    record = answer(dataset, settings, **changes)
    assert record.poisoned and record.recovered["method"] != "words"
    assert record.recovered["words"].startswith(f"not searched: {why}")
    assert MEASURED.isdisjoint(record.recovered)


def test_without_a_bank_there_is_evidence_and_no_verdict(dataset, settings):
    record = answer(dataset, settings, bank=None, base_rate=0.3)
    assert (record.probability, record.poisoned) == (0.3, False)
    assert record.evidence and is_evidence_only(record)
    assert "judges by beside, which needs a probe bank of its encoder" in record.reason
    line = text_line(record)
    assert " gathered " in line and "clean" not in line.split("probability")[0]
    assert record.target_class is not None  # of the likeliest class, which no verdict stands behind
    assert "target class" not in line and "source class" not in line


def test_the_report_shows_the_words_of_a_record_in_place(dataset, settings, tmp_path):
    entry = list(iter_models(dataset))[-1]
    with RunStore(tmp_path / "run", settings.as_json()) as store:
        (record,) = scan([entry], settings, store)
    content = read_content(tmp_path / "run", dataset)
    placed = place(content.records, content.entries)[record.model]
    assert placed.words == record.recovered["text"]
    assert placed.source_class is not None and placed.source_class != record.target_class
    assert (placed.before or placed.after) and placed.words not in placed.before + placed.after
    assert main(["report", str(tmp_path / "run"), "--truth", str(dataset)]) == 0
    page = (tmp_path / "run" / "report.html").read_text()
    assert json.dumps(placed.words) in page and '"attack_success_rate":' in page


def test_another_encoder_is_noticed(dataset, settings, encoder, tmp_path):
    for path in encoder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    from safetensors.numpy import load_file, save_file

    weights = load_file(tmp_path / "model.safetensors")
    table = "embeddings.word_embeddings.weight"
    weights[table] = np.ascontiguousarray(weights[table][::-1])
    save_file(weights, tmp_path / "model.safetensors")
    record = answer(dataset, settings, encoder=tmp_path)
    assert "vectors of the examples differ from the shipped" in record.recovered["words"]


def test_an_encoder_that_cannot_be_read_costs_the_words_only(dataset, settings, tmp_path):
    record = answer(dataset, settings, encoder=tmp_path)
    assert record.poisoned and record.recovered["words"].startswith("not searched: ")


def test_a_clean_verdict_searches_nothing(dataset, settings):
    record = answer(dataset, settings, base_rate=1e-4)
    assert not record.poisoned and not {"words", "bank", "departure"} & record.seconds.keys()
    assert record.recovered == {} and record.searched == ("shift", "text")
    # Whoever wants all evidence gets it: a clean head, too, is shown what moves it most.
    record = answer(dataset, settings, base_rate=1e-4, early_stop=False)
    assert record.recovered["method"] == "bank" and "words" not in record.recovered
