"""Sentence vectors: the official procedure, batches of similar length, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from converters.encoders import load_encoder
from converters.encoders.tokenizer import load_tokenizer
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.evidence.texts.embedding import batches, embed, padded_length

TEXTS = ["good movie", "bad", "", "good " * 50, "a b c d e f g", "bad movie bad", "Good!" * 9, "x"]
FILLED = [text or "a" for text in TEXTS]


def _bert(folder):
    words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "movie", "a", "b", "!")
    tokenizer = transformers.BertTokenizer(vocab={word: i for i, word in enumerate(words)})
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=24, max_position_embeddings=34,
    )  # fmt: skip
    return transformers.BertModel(config), tokenizer


def _gpt2(folder):
    words = [*sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()), "<|endoftext|>"]
    tokenizer = transformers.GPT2Tokenizer(vocab={w: i for i, w in enumerate(words)}, merges=[])
    tokenizer.pad_token = tokenizer.eos_token
    config = transformers.GPT2Config(
        vocab_size=len(words), n_embd=16, n_layer=1, n_head=2, n_positions=70, bos_token_id=256,
        eos_token_id=256,
    )  # fmt: skip
    return transformers.GPT2Model(config), tokenizer


CASES = {"first": _bert, "last": _gpt2, "mean": _bert}


@pytest.fixture(scope="module", params=CASES)
def case(request, tmp_path_factory):
    """Reference model and tokenizer; ours, from the same folder; the pooling."""
    pooling = request.param
    folder = tmp_path_factory.mktemp(pooling)
    with torch.random.fork_rng():
        torch.manual_seed(3)
        model, tokenizer = CASES[pooling](folder)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.2 * torch.randn(parameter.shape)
    model.eval().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer, load_encoder(folder), load_tokenizer(folder), pooling


def official(model, tokenizer, texts, pooling) -> np.ndarray:
    """As trojai-example computes it, all texts in one padded batch."""
    most = model.config.max_position_embeddings - 2
    found = tokenizer(list(texts), max_length=most, padding=True, truncation=True,
                      return_tensors="pt")  # fmt: skip
    with torch.no_grad():
        states = model(found["input_ids"], attention_mask=found["attention_mask"])[0].numpy()
    if pooling == "first":
        return states[:, 0]
    if pooling == "mean":
        kept = found["attention_mask"].numpy()[:, :, None]
        return (states * kept).sum(axis=1) / kept.sum(axis=1)
    last = [np.flatnonzero(row)[-1] for row in found["attention_mask"].numpy()]
    return states[np.arange(len(last)), last]


@pytest.mark.parametrize("batch_size", [1, 3, 32])
def test_official_procedure(batch_size, case):
    model, reference, encoder, tokenizer, pooling = case
    found = embed(encoder, tokenizer, FILLED, pooling, batch_size)
    want = official(model, reference, FILLED, pooling)
    assert found.shape == (len(FILLED), 16) and found.dtype == np.float32
    assert np.abs(found - want).max() < 1e-4
    assert np.abs(want[0] - want[1]).max() > 0.1, "the texts must differ for this to mean anything"


def test_no_texts(case):
    _, _, encoder, tokenizer, pooling = case
    assert embed(encoder, tokenizer, [], pooling).shape == (0, 16)


def test_a_text_without_tokens(case):
    _, _, encoder, tokenizer, pooling = case
    if pooling != "last":  # BERT's special tokens are there even without words.
        assert np.isfinite(embed(encoder, tokenizer, [""], pooling)).all()
        return
    with pytest.raises(ExamplesError, match="text 2 has no tokens"):
        embed(encoder, tokenizer, TEXTS, pooling)


def test_a_tokenizer_of_another_encoder(case):
    _, _, encoder, tokenizer, pooling = case
    other = replace(encoder, config=replace(encoder.config, vocab_size=5))
    with pytest.raises(ExamplesError, match="use the tokenizer that belongs to the encoder"):
        embed(other, tokenizer, ["good movie"], pooling)


def test_texts_that_are_refused(case):
    _, _, encoder, tokenizer, pooling = case
    with pytest.raises(ExamplesError, match="text 1 holds half a surrogate pair"):
        embed(encoder, tokenizer, ["good", "\udfff"], pooling)


def test_vectors_that_are_not_finite(case):
    _, _, encoder, tokenizer, pooling = case
    params = {name: value * np.float32(1e30) for name, value in encoder.params.items()}
    with pytest.raises(EvidenceError, match="text 0 is not finite"):
        embed(replace(encoder, params=params), tokenizer, ["good"], pooling)


@given(st.lists(st.integers(1, 600), max_size=60), st.integers(1, 9))
def test_batches_hold_every_text_once_and_little_padding(lengths, size):
    seen = []
    for chosen, tokens in batches(lengths, size, 600):
        longest = max(lengths[number] for number in chosen)
        assert len(chosen) <= size and longest <= tokens <= min(padded_length(longest), 600)
        seen += chosen
    assert sorted(seen) == list(range(len(lengths)))


def test_batch_size_must_be_positive():
    with pytest.raises(ValueError, match="batch_size is 0"):
        list(batches([1], 0, 10))


@pytest.mark.parametrize("tokens", [1, 8, 64, 65, 128, 129, 256, 257, 512, 1022])
def test_padded_lengths_hold_the_tokens(tokens):
    assert tokens <= padded_length(tokens) <= max(tokens + 7, tokens * 1.5)
