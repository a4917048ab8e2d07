"""Words that a `tokenizer.json` cuts out of texts first: those of all readers, or refused."""

import json

import pytest
import tokenizers
import transformers

from converters.encoders.tokenizer import load_tokenizer
from converters.errors import LoadError
from tests.converters.test_tokenizer import KINDS, PIECES, changed, made, same


def _cut_first(folder, word: str, **flags) -> None:
    """`word` as a token that the file alone cuts out of a text before its words are told apart."""
    kept = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    decoder = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in kept}
    changed(folder, "tokenizer_config.json", lambda v: v.update(added_tokens_decoder=decoder))
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    token = plain | {"id": PIECES.get(word, len(PIECES)), "content": word} | flags
    kept = [one for one in kept if one["content"] != word]
    changed(folder, "tokenizer.json", lambda v: v.update(added_tokens=[*kept, token]))


WORDS_OF_FILE = {
    "a word of the vocabulary": ("good", {}),
    "a word of its own": ("xgoodx", {}),
    "another way to cut": ("[MASK]", {"special": True, "single_word": True}),
}


@pytest.mark.parametrize("case", WORDS_OF_FILE)
def test_words_that_only_the_file_adds_are_refused(case, tmp_path):
    """transformers 5 takes those of `tokenizer_config.json` in their place."""
    made("BertTokenizer").save_pretrained(tmp_path)
    word, flags = WORDS_OF_FILE[case]
    _cut_first(tmp_path, word, **flags)
    file = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    newer = transformers.BertTokenizer.from_pretrained(str(tmp_path))
    text = f"bad {word}ly"
    assert file.encode(text).ids != newer(text)["input_ids"]
    with pytest.raises(LoadError, match="of added_tokens of tokenizer.json one is"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "RobertaTokenizer"])
def test_words_that_all_add_are_read(kind, listed, tmp_path):
    """With those of older folders, whose `tokenizer_config.json` lists none."""
    backend = made(kind)
    backend.add_tokens(["xgoodx", "Älter"])
    backend.add_special_tokens({"additional_special_tokens": ["<cut>"]})
    backend.save_pretrained(tmp_path)
    tokens = json.loads((tmp_path / "tokenizer.json").read_text())["added_tokens"]
    decoder = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in tokens}
    said = {"added_tokens_decoder": decoder} if listed else {"tokenizer_class": kind}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind} | said))
    same(load_tokenizer(tmp_path), backend, ["bad xgoodx Älter<cut> good"])


def test_a_special_token_that_the_file_lacks_is_read(tmp_path):
    made("BertTokenizer").save_pretrained(tmp_path)
    changed(tmp_path, "tokenizer.json", lambda v: v.update(added_tokens=v["added_tokens"][1:]))
    same(load_tokenizer(tmp_path), made("BertTokenizer"))
