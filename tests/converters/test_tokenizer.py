"""Tokenizers: folders, pickles of three generations of transformers, and what is refused."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from converters.encoders.tokenizer import MAX_CHARACTERS, Tokenizer, load_tokenizer
from converters.errors import (
    ConversionError,
    CorruptFileError,
    LoadError,
    TooLargeError,
    UnknownFormatError,
    UnsafePickleError,
    UnsupportedArchitectureError,
)

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WORDS = (*SPECIAL, *"abcdefgh!,.^", "##b", "##e", "##s", "good", "bad", "##ly", "movie", "é")
PIECES = {word: number for number, word in enumerate(WORDS)}
MPNET = {
    word: number for number, word in enumerate(("<s>", "<pad>", "</s>", *WORDS[1:4], "<mask>"))
} | {word: number + 7 for number, word in enumerate(WORDS[5:])}
MERGES = [("g", "o"), ("go", "o"), ("goo", "d"), ("Ġ", "good"), ("b", "a")]
TEXTS = ["good movie!", "Bad, goodly GOOD", "", "xyz 中 é É", "^", "a\n\tb  c", "good " * 60]
PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def bytes_vocabulary() -> dict[str, int]:
    """GPT-2's 256 byte characters, the merged tokens, the end token."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = [*alphabet, *("".join(pair) for pair in MERGES), "<|endoftext|>"]
    return {word: number for number, word in enumerate(words)}


def made(kind: str):
    """A small tokenizer of transformers 5."""
    if kind == "GPT2Tokenizer":
        pairs: Any = MERGES  # typed as text; the library itself gives pairs
        return transformers.GPT2Tokenizer(vocab=bytes_vocabulary(), merges=pairs)
    vocabulary = MPNET if kind == "MPNetTokenizer" else PIECES
    return getattr(transformers, kind)(vocab=dict(vocabulary))


KINDS = ["BertTokenizer", "DistilBertTokenizer", "MPNetTokenizer", "GPT2Tokenizer"]


def same(found, reference, texts=TEXTS) -> None:
    for text in texts:
        want = reference(text, max_length=20, truncation=True)["input_ids"]
        assert found.rows([text], 20) == [want], text


@pytest.mark.parametrize("kind", KINDS)
def test_folders(kind, tmp_path):
    reference = made(kind)
    reference.save_pretrained(tmp_path)
    found = load_tokenizer(tmp_path)
    same(found, reference)
    assert found.vocabulary == reference.get_vocab()
    assert found.unknown_id == reference.unk_token_id


@pytest.mark.parametrize("kind", KINDS)
def test_folders_with_a_vocabulary_only(kind, tmp_path):
    """What folders of older models hold: no tokenizer.json, the class known from config.json."""
    reference = made(kind)
    if kind == "GPT2Tokenizer":
        (tmp_path / "vocab.json").write_text(json.dumps(bytes_vocabulary()))
        lines = "\n".join(" ".join(pair) for pair in MERGES)
        (tmp_path / "merges.txt").write_text(f"#version: 0.2\n{lines}\n")
    else:
        words = sorted(reference.get_vocab(), key=reference.get_vocab().__getitem__)
        (tmp_path / "vocab.txt").write_text("".join(f"{word}\n" for word in words))
    model = kind.removesuffix("Tokenizer").lower()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model}))
    same(load_tokenizer(tmp_path), reference)


def _with_older_files(kind: str, folder: Path) -> None:
    """A tokenizer of today beside the files that transformers 4 writes with it."""
    made(kind).save_pretrained(folder)
    model = json.loads((folder / "tokenizer.json").read_bytes())["model"]
    words = sorted(model["vocab"], key=model["vocab"].__getitem__)
    if "merges" in model:
        pairs = (" ".join(pair) for pair in model["merges"])
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
        (folder / "merges.txt").write_text("\n".join(("#version: 0.2", *pairs, "")))
    else:
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words))


@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_may_stand_twice(kind, tmp_path):
    _with_older_files(kind, tmp_path)
    same(load_tokenizer(tmp_path), made(kind))


@pytest.mark.parametrize(("name", "change"), [
    ("vocab.txt", lambda text: text.replace("good\n", "\n").replace("bad\n", "good\n")),
    ("vocab.txt", lambda text: text + "more\n"),
    ("vocab.json", lambda text: text.replace(": 1,", ": 0,", 1)),
    ("merges.txt", lambda text: "\n".join((text.split("\n")[0], *text.split("\n")[2:]))),
])  # fmt: skip
def test_two_vocabularies_of_one_folder_are_refused(name, change, tmp_path):
    _with_older_files("BertTokenizer" if name == "vocab.txt" else "GPT2Tokenizer", tmp_path)
    text = (tmp_path / name).read_text()
    (tmp_path / name).write_text(change(text))
    assert change(text) != text
    with pytest.raises(LoadError, match=f"{name} and tokenizer.json differ"):
        load_tokenizer(tmp_path)


def test_transformers_reads_two_vocabularies(tmp_path):
    """The control: its older tokenizer gives other tokens than its newer one."""
    from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

    _with_older_files("BertTokenizer", tmp_path)
    text = (tmp_path / "vocab.txt").read_text()
    (tmp_path / "vocab.txt").write_text(text.replace("good\n", "x\n").replace("bad\n", "good\n"))
    older = BertTokenizerLegacy.from_pretrained(str(tmp_path))
    newer = transformers.BertTokenizer.from_pretrained(str(tmp_path))
    assert older("good")["input_ids"] != newer("good")["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_pickles_of_today(kind, pickled):
    reference = made(kind)
    found = load_tokenizer(pickled(reference))
    same(found, reference)
    assert found.vocabulary == reference.get_vocab()


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kind", ["BertTokenizer", "DistilBertTokenizer"])
def test_word_pieces_of_transformers_4(kind, lower, old_class, pickled):
    """What TrojAI's tokenizer files hold: Python objects around one vocabulary."""
    path = pickled(old_pieces(old_class, kind, lower))
    reference = transformers.BertTokenizer(vocab=dict(PIECES), do_lower_case=lower)
    found = load_tokenizer(path)
    same(found, reference)
    assert found.unknown_id == PIECES["[UNK]"] and found.pad_id == PIECES["[PAD]"]
    assert found.rows(["good"], 9) == [[2, PIECES["good"], 3]], "not all unknown"


def old_pieces(old_class, kind: str, lower: bool, **changes):
    package = "transformers.models.bert.tokenization_bert"
    home = package if kind == "BertTokenizer" else package.replace("bert", "distilbert")
    value = old_class(f"{home}.{kind}")()
    basic = old_class(f"{package}.BasicTokenizer")()
    basic.__dict__.update(
        do_lower_case=lower, never_split=set(), tokenize_chinese_chars=True, strip_accents=None
    )
    pieces = old_class(f"{package}.WordpieceTokenizer")()
    pieces.__dict__.update(vocab=PIECES, unk_token="[UNK]", max_input_chars_per_word=100)
    names = dict(zip(("_pad", "_unk", "_cls", "_sep", "_mask"), SPECIAL, strict=True))
    value.__dict__.update(
        vocab=dict(PIECES), ids_to_tokens={number: word for word, number in PIECES.items()},
        do_basic_tokenize=True, basic_tokenizer=basic, wordpiece_tokenizer=pieces,
        added_tokens_encoder={}, added_tokens_decoder={}, unique_no_split_tokens=list(SPECIAL),
        model_max_length=512, _bos_token=None, _eos_token=None,
        **{f"{name}_token": word for name, word in names.items()},
    )  # fmt: skip
    value.__dict__.update(changes)
    return value


def old_merges(old_class, **changes):
    regex = pytest.importorskip("regex", reason="GPT-2's tokenizer holds a compiled pattern")
    value = old_class("transformers.models.gpt2.tokenization_gpt2.GPT2Tokenizer")()
    vocabulary = bytes_vocabulary()
    end = tokenizers.AddedToken("<|endoftext|>", normalized=True)
    value.__dict__.update(
        encoder=vocabulary, decoder={number: word for word, number in vocabulary.items()},
        errors="replace", byte_encoder={}, byte_decoder={}, cache={},
        bpe_ranks={pair: rank for rank, pair in enumerate(MERGES)}, add_prefix_space=False,
        pat=regex.compile(PATTERN), added_tokens_encoder={}, model_max_length=1024,
        _bos_token=end, _eos_token=end, _unk_token=end, _pad_token=None,
    )  # fmt: skip
    value.__dict__.update(changes)
    return value


def test_merges_of_transformers_4(old_class, pickled):
    path = pickled(old_merges(old_class))
    found = load_tokenizer(path)
    same(found, made("GPT2Tokenizer"))
    end = bytes_vocabulary()["<|endoftext|>"]
    assert found.pad_id == found.unknown_id == end, "the end token pads, as TrojAI has it"


def test_padding_and_mask(tmp_path):
    made("BertTokenizer").save_pretrained(tmp_path)
    tokens = load_tokenizer(tmp_path)(["good movie", "", "a b c d e f"], 6)
    assert tokens.ids.dtype == tokens.mask.dtype == np.int32
    assert tokens.ids.tolist() == [[2, 20, 23, 3, 0, 0], [2, 3, 0, 0, 0, 0], [2, 5, 6, 7, 8, 3]]
    assert tokens.mask.tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0], [1] * 6]
    assert load_tokenizer(tmp_path)([], 6).ids.shape == (0, 0)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("small")
    made("BertTokenizer").save_pretrained(folder)
    return load_tokenizer(folder)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=40), max_size=4), st.integers(2, 12))
def test_any_text_gives_tokens_within_the_limits(small, texts, most):
    tokens = small(texts, most)
    lengths = tokens.mask.sum(axis=1)
    assert (lengths >= 2).all() and (lengths <= most).all()
    assert ((tokens.ids >= 0) & (tokens.ids < len(WORDS))).all()
    assert (np.diff(tokens.mask, axis=1) <= 0).all(), "padding is on the right"


@pytest.mark.parametrize("text, error, message", [
    (b"bytes", ConversionError, "text 1 is b'bytes'"),
    (None, ConversionError, "text 1 is None"),
    ("a\ud800", ConversionError, "half a surrogate pair at 1"),
    ("a" * (MAX_CHARACTERS + 1), TooLargeError, "text 1 has 1048577 characters"),
])  # fmt: skip
def test_texts_that_are_refused(text, error, message, small):
    with pytest.raises(error, match=message):
        small(["good", text], 8)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("changes, error, message", [
    ({"vocab": {"a": 0, "b": 0}}, CorruptFileError, "one id to two tokens"),
    ({"vocab": {"a": -1}}, CorruptFileError, "'a': -1"),
    ({"vocab": {1: 1}}, CorruptFileError, "1: 1"),
    ({"vocab": {}}, CorruptFileError, "the vocabulary is"),
    ({"vocab": None}, CorruptFileError, "the vocabulary is None"),
    ({"vocab": {"a": 0}}, CorruptFileError, "not in the vocabulary"),
    ({"basic_tokenizer": None}, UnsupportedArchitectureError, "expected BERT's kind"),
    ({"added_tokens_encoder": {"<new>": 99}}, UnsupportedArchitectureError, "'<new>'"),
])  # fmt: skip
def test_word_pieces_that_are_refused(changes, error, message, old_class, pickled):
    with pytest.raises(error, match=message):
        load_tokenizer(pickled(old_pieces(old_class, "BertTokenizer", True, **changes)))


@pytest.mark.parametrize("changes, error, message", [
    ({"pat": "other"}, UnsupportedArchitectureError, "splits text otherwise"),
    ({"bpe_ranks": {("a", "b"): "0"}}, CorruptFileError, "no table of numbers"),
    ({"bpe_ranks": {"ab": 0}}, CorruptFileError, "no pair"),
    ({"bpe_ranks": {("a", "zz"): 0}}, CorruptFileError, "not in the vocabulary"),
    ({"bpe_ranks": {("a", "b", "c"): 0}}, CorruptFileError, "a tuple is a dict key"),
    ({"add_prefix_space": 1}, CorruptFileError, "add_prefix_space is 1"),
])  # fmt: skip
def test_merges_that_are_refused(changes, error, message, old_class, pickled):
    with pytest.raises(error, match=message):
        load_tokenizer(pickled(old_merges(old_class, **changes)))


class _Call:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_nothing_in_a_pickle_is_executed(old_class, pickled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    value = old_pieces(old_class, "BertTokenizer", True, name_or_path=_Call())
    with pytest.raises(UnsafePickleError, match="system"):
        load_tokenizer(pickled(value))
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("value", [{"vocab": PIECES}, [1], "text", None])
def test_pickles_without_a_tokenizer(value, tmp_path):
    (tmp_path / "t.pt").write_bytes(pickle.dumps(value))
    with pytest.raises(UnknownFormatError, match="expected a pickled tokenizer"):
        load_tokenizer(tmp_path / "t.pt")


def test_folders_that_are_refused(tmp_path):
    with pytest.raises(LoadError):
        load_tokenizer(tmp_path / "nothing")
    with pytest.raises(LoadError, match="config.json"):
        load_tokenizer(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"tokenizer_class": "XLNetTokenizer"}')
    with pytest.raises(UnsupportedArchitectureError, match="'XLNetTokenizer'"):
        load_tokenizer(tmp_path)
    config.write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(LoadError, match="has no vocabulary"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0", "model": 7}')
    with pytest.raises(LoadError, match="holds no BertTokenizer"):
        load_tokenizer(tmp_path)


def test_code_of_a_folder_is_not_run(tmp_path):
    made("BertTokenizer").save_pretrained(tmp_path)
    (tmp_path / "evil.py").write_text("open('executed', 'w')\nclass Evil: pass\n")
    file = tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text())
    config["auto_map"] = {"AutoTokenizer": ["evil.Evil", "evil.Evil"]}
    file.write_text(json.dumps(config))
    same(load_tokenizer(tmp_path), made("BertTokenizer"))
    assert not os.path.exists("executed")


def test_importing_loads_nothing_heavy():
    code = (
        "import sys, converters.encoders.tokenizer, converters.encoders.tokenizer_pickle, "
        "converters.encoders; "
        "print({'jax', 'torch', 'transformers', 'tokenizers'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_panic_of_the_rust_package_is_told(tmp_path):
    """It is no `Exception`: until it was caught, it took the thread that read the file along."""
    made("BertTokenizer").save_pretrained(tmp_path)
    path = tmp_path / "tokenizer.json"
    broken = {"type": "Precompiled", "precompiled_charsmap": "YWI="}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"normalizer": broken}))
    with pytest.raises(LoadError, match="the package tokenizers panicked: Precompiled"):
        load_tokenizer(tmp_path)


class Panic(BaseException):
    """What a panic looks like in Python."""


class Backend:
    """A tokenizer of transformers that opens and then raises."""

    def __init__(self, fault: type[BaseException]):
        self.fault = fault

    def __call__(self, *texts, **options):
        raise self.fault("at work")

    def decode(self, ids):
        raise self.fault("at work")


def test_a_panic_at_work_is_told_and_what_ends_a_program_goes_on():
    found = Tokenizer(Backend(Panic), 0, None, {})
    with pytest.raises(LoadError, match="panicked: at work"):
        found(["good"], 8)
    with pytest.raises(LoadError, match="panicked: at work"):
        found.text([1])
    for fault in (KeyboardInterrupt, ValueError):
        with pytest.raises(fault):
            Tokenizer(Backend(fault), 0, None, {})(["good"], 8)


def test_a_tokenizer_in_a_file_of_another_name_is_refused(tmp_path):
    """transformers loads the one that `fast_tokenizer_files` names for its version."""
    made("BertTokenizer").save_pretrained(tmp_path)
    file = tmp_path / "tokenizer_config.json"
    config = json.loads(file.read_text())
    other = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = other["model"]["vocab"]
    first, last = list(vocabulary)[-2:]
    vocabulary[first], vocabulary[last] = vocabulary[last], vocabulary[first]
    (tmp_path / "tokenizer.4.0.0.json").write_text(json.dumps(other))
    file.write_text(json.dumps(config | {"fast_tokenizer_files": ["tokenizer.4.0.0.json"]}))
    theirs = transformers.BertTokenizer.from_pretrained(tmp_path)
    assert theirs.get_vocab() != made("BertTokenizer").get_vocab()
    with pytest.raises(LoadError, match="expected no such entry, and the tokenizer in tokenizer.j"):
        load_tokenizer(tmp_path)
    file.write_text(json.dumps(config | {"fast_tokenizer_files": ["tokenizer.json"]}))
    same(load_tokenizer(tmp_path), made("BertTokenizer"))


def changed(folder, name, change):
    values = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    change(values)
    (folder / name).write_text(json.dumps(values))


@pytest.mark.parametrize("kind", ["BertTokenizer", "DistilBertTokenizer"])
def test_a_tokenizer_without_padding_needs_none(kind, tmp_path):
    """What stands behind a text is masked, whatever its id."""
    made(kind).save_pretrained(tmp_path)
    changed(tmp_path, "tokenizer_config.json", lambda v: v.update(pad_token=None))
    found = load_tokenizer(tmp_path)(["good movie", "bad"], 9)
    assert found.mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]
    words = ("[CLS]", "good", "movie", "[SEP]")
    assert found.ids[0].tolist() == [PIECES[word] for word in words]


@pytest.mark.parametrize("name", ["vocab", "merges", "gguf_file", "tokenizer_object"])
def test_a_vocabulary_from_elsewhere_is_refused(name, tmp_path):
    made("BertTokenizer").save_pretrained(tmp_path)
    changed(tmp_path, "tokenizer_config.json", lambda v: v.update({name: "/etc/passwd"}))
    with pytest.raises(LoadError, match=f"has {name} taken from elsewhere"):
        load_tokenizer(tmp_path)


def test_the_class_that_config_json_names_is_taken(tmp_path):
    """`AutoTokenizer` follows it where tokenizer_config.json names none."""
    made("RobertaTokenizer").save_pretrained(tmp_path)
    changed(tmp_path, "tokenizer_config.json", lambda v: v.pop("tokenizer_class"))
    config = {"model_type": "bert", "tokenizer_class": "RobertaTokenizer"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    same(load_tokenizer(tmp_path), made("RobertaTokenizer"))


def test_a_vocabulary_without_its_unknown_word_is_told(tmp_path):
    made("BertTokenizer").save_pretrained(tmp_path)
    changed(tmp_path, "tokenizer.json", lambda v: v["model"]["vocab"].pop("[UNK]"))
    changed(tmp_path, "tokenizer.json", lambda v: v.update(added_tokens=[]))
    with pytest.raises(LoadError):
        load_tokenizer(tmp_path).rows(["zzz"], 20)
