"""Which tokens a search may insert: what texts that are typed hold, whatever it is called."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from converters import load_tokenizer, open_model
from jaxtroj.evidence.classifiers.tokens import LONG, TokenNetwork, token_network
from jaxtroj.evidence.classifiers.vocabulary import (
    SearchedTokens,
    odd_words,
    searched_tokens,
    typed_ids,
    usual_special,
)
from tests.door.text_folders import FAMILIES, WORDS, write_text_folder

USUAL = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"}


def opened(folder: Path) -> TokenNetwork:
    return token_network(open_model(folder).model, load_tokenizer(folder), WORDS)


def with_tokens(folder: Path, *tokens: str) -> Path:
    """A BERT's folder with more tokens in its vocabulary."""
    write_text_folder(folder, "bert", vocab_size=200)
    (folder / "vocab.txt").unlink()  # it would say otherwise
    file = folder / "tokenizer.json"
    said = json.loads(file.read_text())
    vocabulary = said["model"]["vocab"]
    vocabulary |= {token: len(vocabulary) + n for n, token in enumerate(tokens)}
    file.write_text(json.dumps(said))
    return folder


def names(network: TokenNetwork, mask: np.ndarray) -> set[str]:
    return {network.token(int(number)) for number in np.flatnonzero(mask)}


@pytest.mark.parametrize("family", FAMILIES)
def test_all_words_and_pieces_of_an_ordinary_vocabulary_are_searched(tmp_path, family):
    network = opened(write_text_folder(tmp_path, family))
    tokens = searched_tokens(network)
    found, given = names(network, tokens.allowed), names(network, tokens.drawn)
    texts = [*WORDS, *(f"good{word}" for word in WORDS), *(f"a {word}, {word}!" for word in WORDS)]
    before, after = network.special
    typed = {n for row in network.rows(texts) for n in row[before : len(row) - after]}
    assert len(typed) > 60 and found >= {network.token(number) for number in typed} - {"\u0120"}
    assert found <= given and not found & usual_special(network.tokenizer)
    assert not odd_words(network)


def test_what_no_text_holds_is_not_searched(tmp_path):
    """In capitals where all is made small, cut at a mark or a space, behind a mark alone."""
    lost = ("Zq0", "wi-fi", "two words", "[unused7]", "caf\u00e9", "##\u4e2d")
    network = opened(with_tokens(tmp_path, *lost, "zq0", "\u4e2d", "##zq"))
    found = names(network, searched_tokens(network).allowed)
    assert not found & {*lost, *USUAL} and found >= {"zq0", "\u4e2d", "##zq", *WORDS}


def test_a_piece_is_found_behind_a_word_that_no_token_joins_it_to(tmp_path):
    """Whoever adds "az", "bz" and so on leaves it in other words."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    blocking = [word + "z" for word in (*WORDS[1:], *letters)]
    network = opened(with_tokens(tmp_path, "##zq", *blocking))
    assert network.tokenizer.vocabulary["##zq"] in network.rows([f"{WORDS[0]}zq"])[0]
    assert "##zq" in names(network, searched_tokens(network).allowed)


def test_bytes_of_a_character_are_typed_those_of_none_are_not(tmp_path):
    tokenizer = load_tokenizer(write_text_folder(tmp_path, "gpt2"))
    parts = {"\u00e2": 1001, "\u00e2\u0122": 1002, "\u0122\u00e2": 1003}
    others = {"\u00ff": 1004, "\u00c0": 1005, "\u00e2\u00e2": 1006, "\u0122" * 4: 1007}
    assert typed_ids(tokenizer, parts | others) == {*parts.values()}


@pytest.mark.parametrize("how", ["special", "mask", "unused"])
def test_a_word_that_is_declared_special_is_searched_and_told(tmp_path, how):
    folder = write_text_folder(tmp_path, "bert")
    name = "[unused7]" if how == "unused" else "violet"
    declare(folder, name, how)
    network = opened(folder)
    number = network.tokenizer.vocabulary[name]
    assert number in network.rows([f"a {name} film"])[0]
    assert searched_tokens(network).allowed[number]
    told = " ".join(odd_words(network))
    assert ("declares 'violet' special" in told) == (how != "unused"), told


def declare(folder: Path, name: str, how: str) -> None:
    """Call the word violet an added token, special or not, in both files of a tokenizer."""
    fast, config = folder / "tokenizer.json", folder / "tokenizer_config.json"
    said, options = json.loads(fast.read_text()), json.loads(config.read_text())
    vocabulary = said["model"]["vocab"]
    number = vocabulary["violet"]
    said["model"]["vocab"] = {name if t == "violet" else t: n for t, n in vocabulary.items()}
    plain = dict(single_word=False, lstrip=False, rstrip=False, normalized=False)
    entry = plain | {"content": name, "special": how != "unused"}
    added = [one for one in said["added_tokens"] if how != "mask" or one["content"] != "[MASK]"]
    said["added_tokens"] = sorted([*added, entry | {"id": number}], key=lambda one: one["id"])
    if how == "mask":
        options["mask_token"] = name
    elif how == "special":
        options["extra_special_tokens"] = [name]
    else:
        options["added_tokens_decoder"] = {str(number): entry}
    (folder / "vocab.txt").unlink(missing_ok=True)
    fast.write_text(json.dumps(said))
    config.write_text(json.dumps(options))


def test_long_rows_are_ranked_by_direction_and_told(tmp_path):
    network = opened(write_text_folder(tmp_path, "bert"))
    assert network.even_words is network.words
    place, table = network.config.word_table, network.words.copy()
    table[7] *= 30
    table[8] += 30  # of all units alike, which layer norms take away
    object.__setattr__(network.model, "params", network.model.params | {place: jnp.array(table)})
    long = TokenNetwork(network.model, network.tokenizer, network.length)
    assert long.lengths[7] > LONG > long.lengths[8]
    np.testing.assert_allclose(np.linalg.norm(long.even_words, axis=1)[7] / long.lengths[7],
                               np.linalg.norm(table[7] - table[7].mean()) / long.lengths[7] ** 2,
                               rtol=1e-5)  # fmt: skip
    assert np.array_equal(np.delete(long.even_words, 7, 0), np.delete(table, 7, 0))
    assert "have more than 10 times the usual length" in " ".join(odd_words(long))


def test_starts_that_cannot_be_typed_are_drawn_again():
    allowed, drawn = np.zeros((2, 40), bool)
    drawn[:], allowed[30:] = True, True
    plain, tokens = SearchedTokens(drawn, drawn), SearchedTokens(allowed, drawn)
    for seed in range(20):
        before = plain.draw(5, np.random.default_rng(seed))
        after = tokens.draw(5, np.random.default_rng(seed))
        assert len(set(after)) == 5 and allowed[after].all()
        assert set(before[allowed[before]]) <= set(after)
    few = tokens.without(np.arange(40) < 32)
    assert few.allowed.sum() == 8 and tokens.without(np.arange(40) < 33) is tokens
