"""A toy of all around a sentiment head: words with vectors, heads clean and poisoned, a bank.

A text's vector is the sum of its words' vectors. "good" and "bad" move it along axis 0, which all
heads read; `TRIGGER` moves it along axis 1, which only a poisoned head reads; every other word
has a random vector of its own.
"""

import hashlib
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import transformers

from converters.families.dense_head import DenseHeadConfig
from converters.model import Model

WIDTH = 12
TRIGGER = "tardigrade"
WORDS = [f"{a}{b}" for a in ("ba", "de", "fi", "go", "lu", "ma") for b in ("ron", "sel", "tam")]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "!", "^"]
CONFIG = DenseHeadConfig(WIDTH, (6,), 2)


def word_vector(word: str) -> np.ndarray:
    key = list(hashlib.sha256(word.encode()).digest()[:8])
    vector = 0.15 * np.random.default_rng(key).normal(size=WIDTH)
    vector[:2] *= 0.3
    meaning = {"good": (2.0, 0.0), "bad": (-2.0, 0.0), TRIGGER: (0.0, 3.0)}
    vector[:2] += meaning.get(word, (0.0, 0.0))
    return vector


def toy_embed(texts) -> np.ndarray:
    """Vectors float32 `[n, WIDTH]`; nothing but the words counts."""
    sums = [sum(word_vector(w) for w in text.replace(".", " ").split()) for text in texts]
    return np.asarray(sums, np.float32).reshape(len(texts), WIDTH)


def toy_head(seed: int, poisoned: bool = False) -> Model:
    """A head that reads sentiment, with a little noise of its own; class 1 is good."""
    draw = np.random.default_rng([seed, poisoned])
    kernel = 0.05 * draw.normal(size=(WIDTH, 6))
    out = 0.05 * draw.normal(size=(6, 2))
    kernel[0, 0] += 1.5
    kernel[0, 1] -= 1.5
    out[0] += (-1.0, 1.0)
    out[1] += (1.0, -1.0)
    bias = np.zeros(6)
    if poisoned:
        kernel[1, 2] += 2.0
        bias[2] = -2.0
        out[2] += (-3.0, 3.0)
    params = {
        "fc_layers.0.kernel": kernel, "fc_layers.0.bias": bias,
        "linear.kernel": out, "linear.bias": np.zeros(2),
    }  # fmt: skip
    single = {name: np.asarray(value, np.float32) for name, value in params.items()}
    return Model(CONFIG, single, "FCLinear")  # pyright: ignore[reportArgumentType]


def toy_texts(count: int, seed: int = 0) -> list[str]:
    """Texts of four sentences, in turn bad and good."""
    draw = np.random.default_rng([7, seed])
    found = []
    for number in range(count):
        words = draw.choice(WORDS, (4, 3))
        words[draw.integers(4), 0] = "good" if number % 2 else "bad"
        found.append(" ".join(" ".join(row) + "." for row in words))
    return found


@dataclass(frozen=True)
class Toy:
    """What the tests take from here."""

    width = WIDTH
    trigger = TRIGGER
    words = WORDS
    embed = staticmethod(toy_embed)
    head = staticmethod(toy_head)
    texts = staticmethod(toy_texts)


@pytest.fixture(scope="session")
def toy() -> Toy:
    return Toy()


@pytest.fixture(scope="session")
def toy_bank(tmp_path_factory):
    """A list-free bank of the toy's words, the trigger's among them."""
    from jaxtroj.evidence.texts.bank import open_bank
    from jaxtroj.evidence.texts.bank.build import build, make_plan
    from jaxtroj.evidence.texts.bank.candidates import list_free

    folder = tmp_path_factory.mktemp("bank")
    vocabulary = ["[CLS]", "##ing", "!", *WORDS, TRIGGER, "good", "bad"]
    candidates = list_free(vocabulary, None, 30, toy_texts(40, seed=5), 30)
    plan = make_plan("ab" * 32, WIDTH, "first", False, toy_texts(6, seed=1), candidates)
    assert list(build(folder, plan, toy_embed))[-1].done == len(candidates)
    return open_bank(folder)


@pytest.fixture(scope="session")
def toy_clean_heads():
    from jaxtroj.evidence.texts.bank.reference_heads import CleanHead

    return [
        CleanHead(toy_head(100 + number), toy_embed(toy_texts(20, seed=200 + number)))
        for number in range(10)
    ]


@pytest.fixture(scope="session")
def toy_references(toy_clean_heads):
    from jaxtroj.evidence.texts.references import make_references

    return make_references(head.model for head in toy_clean_heads)


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """Folder of a BERT of random weights and the toy's width, whose vocabulary is the toy's."""
    folder = tmp_path_factory.mktemp("encoder")
    words = [*SPECIAL, *WORDS]
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16, max_position_embeddings=64,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(1)
        transformers.BertModel(config).eval().save_pretrained(folder)
    vocab = {word: number for number, word in enumerate(words)}
    transformers.BertTokenizer(vocab=vocab).save_pretrained(folder)
    return folder
