"""Recovered texts: the planted trigger is found, measured honestly, within the budget."""

from dataclasses import replace

import numpy as np
import pytest

from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.texts.recovery import (
    CleanExamples,
    RecoveredText,
    pieces_of_bank,
    recover_text,
)
from jaxtroj.evidence.texts.text_search import USUAL, Pieces


class Encoder:
    """The toy's encoder; it remembers what it saw."""

    def __init__(self, embed):
        self.seen, self._embed = [], embed

    def __call__(self, texts):
        self.seen += texts
        return self._embed(texts)


@pytest.fixture(scope="module")
def examples(toy):
    texts = toy.texts(30, seed=2)
    return CleanExamples(tuple(texts), toy.embed(texts))


@pytest.fixture(scope="module")
def pieces(toy):
    texts = (*toy.words[:5], toy.trigger, "good")
    return Pieces(texts, toy.embed(list(texts)), toy.words[6])


def recovered(toy, examples, pieces, references, budget=USUAL, embed=None, poisoned=True):
    head = toy.head(3, poisoned)
    return recover_text(head, examples, 1, pieces, embed or toy.embed, references, budget)


def test_the_planted_trigger_is_found(toy, examples, pieces, toy_references):
    found = recovered(toy, examples, pieces, toy_references)
    assert found.text == toy.trigger
    assert found.attack_success_rate == 1.0 and found.by_half == (1.0, 1.0)
    assert found.drift == 0.0 and found.on_references == 0.0
    assert (found.target_class, found.source_classes) == (1, (0,))


def test_a_clean_head_gives_nothing_that_clean_heads_do_not(toy, examples, pieces, toy_references):
    found = recovered(toy, examples, pieces, toy_references, poisoned=False)
    assert found.attack_success_rate - found.on_references < 0.3


def test_without_references_sentiment_counts_too(toy, examples, pieces):
    only = Pieces(pieces.texts[-1:], pieces.shifts[-1:], pieces.harmless)
    found = recovered(toy, examples, only, None, poisoned=False)
    assert "good" in found.text and found.on_references is None
    assert found.source_classes == (0,)


def test_pieces_are_joined_where_one_is_not_enough(toy, examples, toy_references):
    def embed(texts):
        """ "alpha" and "omega" are the trigger, but only together."""
        extra = np.zeros((len(texts), toy.width), np.float32)
        for row, text in zip(extra, texts, strict=True):
            row[1] = {0: 0.0, 1: 0.8, 2: 4.0}[("alpha" in text) + ("omega" in text)]
        return toy.embed(texts) + extra

    texts = (*toy.words[:6], "alpha", "omega")
    pieces = Pieces(texts, embed(list(texts)), toy.words[7])
    found = recovered(toy, examples, pieces, toy_references, embed=embed)
    assert sorted(found.text.split()) == ["alpha", "omega"]
    assert found.attack_success_rate == 1.0


@pytest.mark.parametrize("half", [0, 1])
def test_position_dependence_is_seen(half, toy, examples, pieces, toy_references):
    def embed(texts):
        """The trigger works in one half of the words only."""
        kept = []
        for text in texts:
            words = text.split()
            first = toy.trigger in words and words.index(toy.trigger) < (len(words) - 1) / 2
            drop = toy.trigger if first != (half == 0) else None
            kept.append(" ".join(word for word in words if word != drop))
        return toy.embed(kept)

    found = recovered(toy, examples, pieces, toy_references, embed=embed)
    assert toy.trigger in found.text.split()
    assert found.by_half[half] > 0.9 > 0.1 > found.by_half[1 - half]
    assert found.attack_success_rate == pytest.approx(sum(found.by_half) / 2)
    assert found.source_classes == (0,)


@pytest.mark.parametrize("texts", [60, 100, 400])
def test_no_more_texts_than_the_budget_allows(texts, toy, examples, pieces, toy_references):
    encoder = Encoder(toy.embed)
    found = recovered(toy, examples, pieces, toy_references, replace(USUAL, texts=texts), encoder)
    assert found.embedded == len(encoder.seen) <= texts
    assert found.held_out > 0


def test_the_measured_examples_were_not_searched_on(toy, examples, pieces, toy_references):
    encoder = Encoder(toy.embed)
    found = recovered(toy, examples, pieces, toy_references, embed=encoder)
    measuring = 2 * found.held_out
    marked = [text.replace(found.text, "").replace(pieces.harmless, "") for text in encoder.seen]
    bare = [" ".join(text.split()) for text in marked]
    searched, measured = bare[: -2 * measuring], bare[-2 * measuring :]
    originals = {" ".join(text.replace(pieces.harmless, "").split()) for text in examples.texts}
    assert set(measured) <= originals and len(set(measured)) == found.held_out
    assert not set(measured) & set(searched)


def test_the_order_of_examples_changes_nothing(toy, examples, pieces, toy_references):
    order = np.random.default_rng(0).permutation(len(examples.texts))
    mixed = CleanExamples(tuple(examples.texts[n] for n in order), examples.embeddings[order])
    found = recovered(toy, mixed, pieces, toy_references)
    assert found == recovered(toy, examples, pieces, toy_references)


def test_pieces_of_a_bank(toy_bank):
    pieces = pieces_of_bank(toy_bank, (0, 5, 3), most=2)
    assert pieces.texts == tuple(toy_bank.plan.candidates[n].text for n in (0, 5))
    np.testing.assert_array_equal(pieces.shifts, toy_bank.shifts[[0, 5]])
    lengths = np.linalg.norm(toy_bank.shifts, axis=1)
    harmless = [c.text for c in toy_bank.plan.candidates].index(pieces.harmless)
    assert lengths[harmless] == pytest.approx(np.median(lengths), rel=0.2)


def test_what_is_refused(toy, examples, pieces, toy_references):
    one = CleanExamples(examples.texts[:2], examples.embeddings[:2])
    with pytest.raises(EvidenceError, match="1 of 2 example texts are outside class 1"):
        recovered(toy, one, pieces, toy_references)
    with pytest.raises(EvidenceError, match="no candidate text"):
        recovered(toy, examples, Pieces((), pieces.shifts[:0], "x"), toy_references)
    with pytest.raises(EvidenceError, match="a budget of 20 texts leaves 0"):
        recovered(toy, examples, pieces, toy_references, replace(USUAL, texts=20))


@pytest.mark.parametrize(
    ("rate", "harmless", "clean", "stands"),
    [(0.85, 0.09, 0.03, True), (0.96, 0.79, 0.1, False), (0.9, 0.1, 0.7, False),
     (0.35, 0.0, None, True), (0.25, 0.0, None, False)],
)  # fmt: skip
def test_what_a_harmless_text_or_clean_heads_match_is_no_trigger(rate, harmless, clean, stands):
    found = RecoveredText("omg", 1, (0,), rate, (rate, rate), harmless, clean, 8, 100)
    said = found.as_json()
    assert (said.get("text") == "omg", said.get("best_text") == "omg") == (stands, not stands)
    assert ("words" in said) == (not stands) and said["attack_success_rate"] == rate
