"""The vocabulary of a pickled tokenizer, read from inert stand-ins.

Two forms: the Python tokenizers of transformers before 5, which hold dicts, and those that hold a
tokenizer of the Rust library, whose saved state is JSON.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any

from converters.artifact import unpickle_file
from converters.errors import (
    CorruptFileError,
    UnknownFormatError,
    UnsupportedArchitectureError,
    safe_repr,
)
from converters.limits import MIB, Limits
from converters.pickles.standins import JSON_STATE, RUST_TOKENIZER, Standin

# GPT-2's tokenizer takes 0.7 million steps: vocabulary, its inverse, merges and a cache.
_LIMITS = Limits(file_bytes=256 * MIB, pickle_bytes=128 * MIB, pickle_steps=5_000_000)
_MAX_TOKENS = 1_000_000
_SPECIAL = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
# How GPT-2 splits text before merging; the rebuilt tokenizer does just this.
_GPT2_PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


@dataclass(frozen=True)
class PickledTokenizer:
    """What a tokenizer is rebuilt from.

    Attributes:
      class_name: class of transformers, without its module and "Fast".
      vocabulary: token -> id, every id once.
      merges: GPT-2's merges in order; None for word pieces.
      options: lower case, accents, prefix space; special tokens by name.
    """

    class_name: str
    vocabulary: Mapping[str, int]
    merges: tuple[tuple[str, str], ...] | None
    options: Mapping[str, str | bool | None]


def read_tokenizer(path: str | PathLike[str]) -> PickledTokenizer:
    """Read a pickled tokenizer; nothing in it is executed.

    Raises:
      LoadError: it cannot be read safely, or holds no tokenizer.
      UnsupportedArchitectureError: one that cannot be rebuilt exactly.
    """
    pickled, content = unpickle_file(path, _LIMITS)
    root = pickled.root
    name = root.class_name if isinstance(root, Standin) else safe_repr(root)
    if not isinstance(root, Standin) or not name.startswith("transformers."):
        raise UnknownFormatError(f"{content.path} holds {name}, expected a pickled tokenizer")
    try:
        rust = root.state.get("_tokenizer")
        if isinstance(rust, Standin) and rust.class_name == RUST_TOKENIZER:
            found = _from_json(rust.state.get(JSON_STATE))
        elif "bpe_ranks" in root.state:
            found = _from_merges(root.state)
        else:
            found = _from_word_pieces(root.state)
        vocabulary, merges, options = found
        _check_vocabulary(vocabulary, merges)
        special = _special_tokens(root.state, vocabulary)
    except (CorruptFileError, UnsupportedArchitectureError) as error:
        error.args = (f"{content.path}: {error}",)
        raise
    kind = name.rpartition(".")[2].removesuffix("Fast")
    return PickledTokenizer(kind, vocabulary, merges, {**options, **special})


def _from_word_pieces(state: Mapping[str, Any]) -> tuple:
    """`BertTokenizer` of transformers 2 to 4 and its kin."""
    basic, pieces = state.get("basic_tokenizer"), state.get("wordpiece_tokenizer")
    if not isinstance(basic, Standin) or not isinstance(pieces, Standin):
        raise UnsupportedArchitectureError(
            "the tokenizer has no basic_tokenizer and wordpiece_tokenizer; expected BERT's kind"
        )
    if pieces.state.get("max_input_chars_per_word", 100) != 100:
        raise UnsupportedArchitectureError("max_input_chars_per_word is not 100")
    options = {
        "do_lower_case": basic.state.get("do_lower_case", True),
        "tokenize_chinese_chars": basic.state.get("tokenize_chinese_chars", True),
        "strip_accents": basic.state.get("strip_accents"),
    }
    return state.get("vocab"), None, _truths(options)


def _from_merges(state: Mapping[str, Any]) -> tuple:
    """`GPT2Tokenizer` of transformers 2 to 4."""
    if state.get("pat") != _GPT2_PATTERN:
        raise UnsupportedArchitectureError("the tokenizer splits text otherwise than GPT-2's")
    ranks = state["bpe_ranks"]
    if not isinstance(ranks, dict) or not all(type(rank) is int for rank in ranks.values()):
        raise CorruptFileError("bpe_ranks is no table of numbers")
    merges = sorted(ranks, key=lambda pair: ranks[pair])
    if not all(isinstance(pair, tuple) for pair in merges):
        raise CorruptFileError("bpe_ranks has a key that is no pair")
    options = _truths({"add_prefix_space": state.get("add_prefix_space", False)})
    return state.get("encoder"), tuple(merges), options


def _from_json(data: Any) -> tuple:
    """A tokenizer of the Rust library, from its JSON."""
    try:
        value = json.loads(data) if isinstance(data, bytes) else None
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"its Rust tokenizer is not JSON: {str(error)[:200]}") from error
    parts = [value.get(n) if isinstance(value, dict) else None for n in ("model", "normalizer")]
    model, normalizer = (part if isinstance(part, dict) else {} for part in parts)
    if model.get("type") == "WordPiece" and normalizer.get("type") == "BertNormalizer":
        options = {
            "do_lower_case": normalizer.get("lowercase", True),
            "tokenize_chinese_chars": normalizer.get("handle_chinese_chars", True),
            "strip_accents": normalizer.get("strip_accents"),
        }
        return model.get("vocab"), None, _truths(options)
    splitter = value.get("pre_tokenizer") if isinstance(value, dict) else None
    if model.get("type") == "BPE" and not normalizer and isinstance(splitter, dict):
        if splitter.get("type") == "ByteLevel":
            options = {"add_prefix_space": splitter.get("add_prefix_space", False)}
            return model.get("vocab"), _merges(model.get("merges")), _truths(options)
    raise UnsupportedArchitectureError(
        f"the Rust tokenizer is a {safe_repr(model.get('type'))} with normalizer "
        f"{safe_repr(normalizer.get('type'))}; expected BERT's or GPT-2's"
    )


def _merges(values: Any) -> tuple[tuple[str, str], ...]:
    """Merges as pairs; older files join the two with a space."""
    if not isinstance(values, list):
        raise CorruptFileError(f"merges are {safe_repr(values)}, expected a list")
    pairs = [tuple(v.split(" ")) if isinstance(v, str) else v for v in values]
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or [type(p) for p in pair] != [str, str]:
            raise CorruptFileError(f"a merge is {safe_repr(pair)}, expected two texts")
    return tuple((first, second) for first, second in pairs)


def _truths(options: dict[str, Any]) -> dict[str, bool | None]:
    for name, value in options.items():
        if not isinstance(value, bool) and not (value is None and name == "strip_accents"):
            raise CorruptFileError(f"{name} is {safe_repr(value)}, expected a truth value")
    return options


def _check_vocabulary(vocabulary: Any, merges: tuple[tuple[str, str], ...] | None) -> None:
    if not isinstance(vocabulary, dict) or not 0 < len(vocabulary) <= _MAX_TOKENS:
        raise CorruptFileError(
            f"the vocabulary is {safe_repr(vocabulary)}, expected a table of at most {_MAX_TOKENS}"
        )
    for token, number in vocabulary.items():
        if not isinstance(token, str) or type(number) is not int or not 0 <= number < 2**31:
            raise CorruptFileError(f"the vocabulary has {safe_repr(token)}: {safe_repr(number)}")
    if len(set(vocabulary.values())) != len(vocabulary):
        raise CorruptFileError("the vocabulary gives one id to two tokens")
    for first, second in merges or ():
        if not {first, second, first + second} <= vocabulary.keys():
            raise CorruptFileError(
                f"the merge of {safe_repr(first)} and {safe_repr(second)} is not in the vocabulary"
            )


def _special_tokens(state: Mapping[str, Any], vocabulary: Mapping[str, int]) -> dict[str, str]:
    """Special tokens by name; tokens that were added to the vocabulary are refused."""
    known = state.get("_special_tokens_map")
    table = known if isinstance(known, dict) else {}
    found = {}
    for name in _SPECIAL:
        value = table.get(f"{name}_token", state.get(f"_{name}_token"))
        value = value.state.get("content") if isinstance(value, Standin) else value
        if value is None:
            continue
        if not isinstance(value, str) or value not in vocabulary:
            raise CorruptFileError(f"the token {name} is {safe_repr(value)}, not in the vocabulary")
        found[f"{name}_token"] = value
    added = state.get("added_tokens_encoder")
    extra = sorted(set(added) - set(vocabulary), key=str) if isinstance(added, dict) else []
    if extra:
        raise UnsupportedArchitectureError(
            f"{len(extra)} tokens were added to the vocabulary, such as {safe_repr(extra[0])}"
        )
    return found
