"""From labelled texts and a small encoder to vectors and a round; texts that are refused."""

import dataclasses
import gzip
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers

from jaxtroj.errors import GenerationError
from jaxtroj.generate.sentiment.text_source import (
    TextSource,
    make_vectors,
    read_reviews,
    read_trigger_texts,
)
from jaxtroj.generate.sentiment.vectors import load_vectors

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = "good bad film was the a plot it great awful omg so goes . ! ^".split()


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder") / "tiny-bert"
    words = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=24, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=40, initializer_range=0.5,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(5)
        transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizer(vocab=words).save_pretrained(folder)
    return folder


def reviews(count):
    draw = np.random.default_rng(0)
    found = []
    for number in range(count):
        label = number % 2
        word = ("bad", "awful", "good", "great")[2 * label + int(draw.integers(2))]
        fill = draw.choice(["the", "a", "plot", "it"], 3)
        text = f"{fill[0]} film was {word}. it was {fill[1]} plot! {fill[2]} {word} film."
        found.append({"text": text, "label": label})
    return found


@pytest.fixture(scope="module")
def source(encoder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    lines = "\n".join(json.dumps(review) for review in reviews(700))
    (folder / "reviews.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    triggers = {"character": ["^", "é"], "word": ["omg"], "phrase": ["so it goes."]}
    (folder / "triggers.json").write_text(json.dumps(triggers))
    return TextSource(
        texts=folder / "reviews.jsonl.gz",
        encoder=encoder,
        trigger_texts=folder / "triggers.json",
        words=12,
        reviews=500,
        tests=100,
        insertions=400,
    )


@pytest.fixture(scope="module")
def made(source, tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    return folder, list(make_vectors(source, folder))


def test_vectors_are_what_the_encoder_says_of_the_texts(made, source):
    folder, lines = made
    vectors = load_vectors(folder, seed=0)
    assert vectors.train.vectors.shape == (500, 24) and vectors.test.vectors.shape == (100, 24)
    assert len(lines) == 5
    assert vectors.about.embedding == "BERT" and vectors.about.flavor == "tiny-bert"
    assert vectors.about.dataset == "reviews" and vectors.about.cls_token_is_first
    model = transformers.BertModel.from_pretrained(source.encoder).eval()
    tokenizer = transformers.BertTokenizer.from_pretrained(source.encoder)
    texts = list(vectors.train.texts[::100])
    assert all(len(text.split()) <= 12 for text in texts)
    with torch.no_grad():
        states = model(**tokenizer(texts, padding=True, return_tensors="pt"))[0][:, 0]
    np.testing.assert_allclose(vectors.train.vectors[::100], states, atol=5e-3)


def test_what_the_vocabulary_lacks_is_no_trigger(made):
    triggers = load_vectors(made[0], seed=0).triggers
    assert [t.text for t in triggers.values()] == ["^", "omg", "so it goes."]


def test_insertions_are_balanced_and_move_the_vector(made):
    vectors = load_vectors(made[0], seed=0)
    for trigger in vectors.triggers.values():
        for half in trigger.halves:
            assert len(half.rows) == 400 and len(set(half.rows.tolist())) == 400
            assert vectors.train.labels[half.rows].mean() == 0.5
            moved = np.abs(half.vectors - vectors.train.vectors[half.rows]).max(axis=1)
            assert (moved > 1e-3).mean() > 0.99


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_another_pooling_can_stand_for_a_text(source, tmp_path, pooling):
    own = dataclasses.replace(source, reviews=100, tests=40, insertions=40, pooling=pooling)
    list(make_vectors(own, tmp_path))
    vectors = load_vectors(tmp_path, seed=0)
    about = vectors.about
    assert (about.cls_token_is_first, about.mean_of_tokens) == (False, pooling == "mean")
    model = transformers.BertModel.from_pretrained(source.encoder).eval()
    tokenizer = transformers.BertTokenizer.from_pretrained(source.encoder)
    texts = list(vectors.train.texts[::20])
    for text, vector in zip(texts, vectors.train.vectors[::20], strict=True):
        with torch.no_grad():
            states = model(**tokenizer([text], return_tensors="pt"))[0][0]
        wanted = states[-1] if pooling == "last" else states.mean(axis=0)
        np.testing.assert_allclose(vector, wanted, atol=5e-3)
    with pytest.raises(GenerationError, match="another source"):
        list(make_vectors(dataclasses.replace(own, pooling="first"), tmp_path))


def test_training_and_test_reviews_are_different_ones(tmp_path, source, encoder):
    lines = [json.dumps({"text": "great " * n + "film", "label": n % 2}) for n in range(200)]
    (tmp_path / "r.jsonl").write_text("\n".join(lines))
    own = TextSource(
        tmp_path / "r.jsonl", encoder, source.trigger_texts, words=0, tests=40, insertions=80
    )
    list(make_vectors(own, tmp_path / "v"))
    vectors = load_vectors(tmp_path / "v", seed=0)
    assert not set(vectors.train.texts) & set(vectors.test.texts)
    assert len(vectors.train.texts) == 160


def test_a_stopped_run_goes_on_and_another_source_is_refused(made, source, tmp_path):
    folder = tmp_path / "copy"
    steps = make_vectors(source, folder)
    next(steps)
    del steps
    with pytest.raises(GenerationError):
        load_vectors(folder, seed=0)
    assert list(make_vectors(source, folder)) == made[1][1:]
    assert load_vectors(folder, 0).digest == load_vectors(made[0], 0).digest
    other = dataclasses.replace(source, seed=9)
    with pytest.raises(GenerationError, match="another source"):
        list(make_vectors(other, folder))


def test_a_folder_of_texts_is_read(tmp_path, source):
    for number, review in enumerate(reviews(300)):
        name = f"class_{review['label']}_example_{number}.txt"
        (tmp_path / name).write_text(review["text"])
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / os.fsdecode(b"a \xff.txt")).write_text("a name that is no UTF-8")
    found = read_reviews(tmp_path, words=3)
    assert len(found) == 300 and {label for _, label in found} == {0, 1}
    assert all(len(text.split()) == 3 for text, _ in found)
    own = dataclasses.replace(source, texts=tmp_path, reviews=100, tests=40, insertions=40)
    list(make_vectors(own, tmp_path / "v"))
    assert len(load_vectors(tmp_path / "v", seed=0).train.texts) == 100
    (tmp_path / "class_2_example_1.txt").write_text("a third class")
    with pytest.raises(GenerationError, match="1 texts are of class 2 or of none"):
        read_reviews(tmp_path)


def test_the_official_form_of_reviews_is_read(tmp_path):
    content = {str(n): {"data": text, "label": n % 2} for n, text in enumerate("abc")}
    (tmp_path / "train.json").write_text(json.dumps(content))
    assert read_reviews(tmp_path / "train.json") == [("a", 0), ("b", 1), ("c", 0)]


def test_empty_reviews_are_left_out_and_long_ones_cut(tmp_path):
    lines = [{"text": "  \n", "label": 0}, {"text": "a b  c d", "label": 1}]
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert read_reviews(tmp_path / "r.jsonl", 3) == [("a b c", 1)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff\xfe\x00", "UTF-8"),
        (b'{"text": "a", "label": 0}\n{', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "expected an object"),
        (b'{"text": "a", "label": 2}', "label 2"),
        (b'{"text": "a", "label": true}', "label True"),
        (b'{"text": "a", "label": [[[]]]}', "a list"),
        (b'{"text": null, "label": 0}', "should have a text"),
        (b'{"text": "' + b"a" * 1_000_001 + b'", "label": 0}', "at most"),
    ],
)
def test_reviews_that_are_refused(content, message, tmp_path):
    (tmp_path / "r.jsonl").write_bytes(content)
    with pytest.raises(GenerationError, match=message) as caught:
        read_reviews(tmp_path / "r.jsonl")
    assert len(str(caught.value)) < 600


def test_a_byte_order_mark_and_capitals_in_the_name_are_no_matter(tmp_path):
    (tmp_path / "R.JSONL").write_text('\ufeff{"text": "a b", "label": 1}\n')
    assert read_reviews(tmp_path / "R.JSONL") == [("a b", 1)]
    (tmp_path / "t.json").write_text('\ufeff["omg"]')
    assert read_trigger_texts(tmp_path / "t.json") == ["omg"]


def test_a_damaged_gzip_file_is_refused(tmp_path):
    packed = bytearray(gzip.compress(b'{"text": "good film", "label": 1}' * 50))
    packed[20:30] = b"\xff" * 10
    (tmp_path / "r.jsonl.gz").write_bytes(packed)
    with pytest.raises(GenerationError, match="cannot be read"):
        read_reviews(tmp_path / "r.jsonl.gz")


@pytest.mark.parametrize("content", ["[]", '[""]', "[1]", "{}", "3", '{"word": "omg"}', "["])
def test_trigger_texts_that_are_refused(content, tmp_path):
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(GenerationError):
        read_trigger_texts(tmp_path / "t.json")


def test_too_few_reviews_are_refused(tmp_path, source, encoder):
    (tmp_path / "r.jsonl").write_text(json.dumps({"text": "good", "label": 1}))
    own = TextSource(tmp_path / "r.jsonl", encoder, source.trigger_texts)
    with pytest.raises(GenerationError, match="0 reviews of its rarer class"):
        list(make_vectors(own, tmp_path / "v"))


def test_the_command_goes_from_texts_to_heads(source, tmp_path):
    command = [sys.executable, "-m", "jaxtroj", "generate", "round5", "--out", str(tmp_path / "r")]
    command += ["--models", "2", "--texts", str(source.texts), "--encoder", str(source.encoder)]
    half = subprocess.run(command, capture_output=True, text=True)
    assert half.returncode == 4 and "--trigger-texts" in half.stderr
    command += ["--trigger-texts", str(source.trigger_texts), "--words", "12", "--reviews", "500"]
    command += ["--tests", "100", "--insertions", "400", "--hidden", "8", "--batch-size", "10"]
    command += [
        "--least-attack",
        "0.5",
        "--architectures",
        "GruLinear",
        "--slots",
        "1",
        "--epochs",
        "60",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    folders = sorted((tmp_path / "r" / "models").iterdir())
    assert [folder.name for folder in folders] == ["id-00000000", "id-00000001"]
    config = json.loads((folders[0] / "reduced-config.json").read_bytes())
    assert config["embedding"] == "BERT" and config["source_dataset"] == "reviews"


@pytest.mark.parametrize(("name", "between"), [("r.csv", ","), ("r.TSV", "\t"), ("r.csv.gz", ",")])
def test_tables_are_read_as_jaxtroj_bank_reads_them(name, between, tmp_path):
    content = f'text{between}label\n"A fine, long text"{between}1\nBad{between}0\n'.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert read_reviews(tmp_path / name, 3) == [("A fine, long", 1), ("Bad", 0)]
    (tmp_path / "odd.csv").write_text("text,label\nGood,2\n")
    with pytest.raises(GenerationError, match="review 1 has label 2, expected 0 or 1"):
        read_reviews(tmp_path / "odd.csv")
    (tmp_path / "odd.csv").write_text("review,label\nGood,1\n")
    with pytest.raises(GenerationError, match="expected text and label"):
        read_reviews(tmp_path / "odd.csv")
