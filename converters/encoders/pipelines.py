"""What a `tokenizer.json` does to a text before and after its vocabulary: both readers must agree.

transformers 5 builds the steps of `BertTokenizer` and its like anew, by class and settings, and
drops those of the file; transformers 4's fast tokenizers, the package tokenizers and what stands on
it run the file's. A normalizer that puts other words in the place of one is a trojan to the latter
alone, and so is a word that is cut as a token of its own. Settings that both take from
`tokenizer_config.json` are not compared: case, accents, the space before a text, and Chinese
characters but for MPNet's.

Source: transformers 4.57, `PreTrainedTokenizerFast`, `BertTokenizerFast.__init__` and
`MPNetTokenizerFast.__init__`; serialised forms of tokenizers 0.22.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from converters.encoders.vocabularies import FAST
from converters.errors import LoadError, safe_repr
from converters.files import read_json

_BY_SETTINGS = frozenset(
    {"lowercase", "strip_accents", "handle_chinese_chars", "add_prefix_space", "trim_offsets"}
)
"""Settings that `tokenizer_config.json` decides, or that change no token."""
# Of which transformers 4 leaves as the file says it.
_BY_FILE = {"MPNetTokenizer": frozenset({"handle_chinese_chars"})}
_USUAL: Mapping[str, Any] = {
    "use_regex": True, "clean_text": True, "max_input_chars_per_word": 100, "dropout": None,
    "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
    "byte_fallback": False, "ignore_merges": False,
}  # fmt: skip
"""What a step does where the file does not say it, or says null."""
_TEXT = ("A", 0)
_STEPS = ("normalizer", "pre_tokenizer", "post_processor", "model")
_ADDED = ("content", "id", "single_word", "lstrip", "rstrip", "normalized")


def refuse_other_pipeline(folder: Path, backend: Any, most_bytes: int) -> None:
    """Compare the steps of a folder's `tokenizer.json` with those of the tokenizer made of it.

    Args:
      folder: of a tokenizer.
      backend: the tokenizer of transformers.
      most_bytes: that a file may have.

    Raises:
      LoadError: they differ.
    """
    if not (folder / FAST).is_file():
        return
    file = read_json(folder / FAST, most_bytes)
    made = json.loads(backend.backend_tokenizer.to_str())
    by_settings = _BY_SETTINGS - _BY_FILE.get(type(backend).__name__, frozenset())
    for step in _STEPS:
        said, built = (_plain(step, values.get(step), by_settings) for values in (file, made))
        if said != built:
            _refuse(folder, f"the {step} of {FAST} is {_in_words(said)}", _in_words(built))
    _refuse_other_words(folder, file, made)


def _refuse(folder: Path, said: str, built: str) -> None:
    raise LoadError(
        f"{folder}: {said}, transformers 5 makes {built}. Some versions of transformers run the"
        " one, others the other; expected one of both: save the tokenizer again"
    )


def _refuse_other_words(folder: Path, file: Any, made: Any) -> None:
    """Compare the tokens that are looked for before a text is cut into words.

    transformers 5 leaves out the file's where `tokenizer_config.json` has some. Special ones that
    the file lacks, such as a padding token, are added by both.
    """
    lowered = file.get("normalizer") is not None
    said, built = _added(file, lowered), _added(made, lowered)
    special = _added(made, lowered, special=True)
    for token in sorted(said ^ built):
        if token not in special:
            one, other = (token if token in tokens else "none" for tokens in (said, built))
            _refuse(folder, f"of added_tokens of {FAST} one is {safe_repr(one)}", safe_repr(other))


def _added(values: Any, lowered: bool, special: bool = False) -> set[str]:
    """Added tokens as texts; of `normalized` only where there is something that normalises."""
    flags = _ADDED if lowered else _ADDED[:-1]
    entries = values.get("added_tokens") or ()
    return {
        json.dumps({flag: entry.get(flag) for flag in flags} if isinstance(entry, dict) else entry)
        for entry in (entries if isinstance(entries, list) else [entries])
        if not special or (isinstance(entry, dict) and entry.get("special"))
    }


def _plain(step: str, value: Any, by_settings: frozenset[str]) -> Any:
    """A step in a form in which equal ones are equal."""
    if step == "post_processor":
        return tuple(_template(value))
    if not isinstance(value, Mapping):
        return None
    kept = {name: part for name, part in value.items() if name not in by_settings}
    if step == "model":
        kept = {name: part for name, part in kept.items() if name not in ("vocab", "merges")}
        if value.get("type") == "BPE":  # of bytes, which are all in the vocabulary
            kept.pop("unk_token", None)
    return {n: part for n, part in kept.items() if part not in (None, _USUAL.get(n))}


def _template(value: Any) -> Iterator[tuple[Any, Any]]:
    """What is put around one text: ids with their type, and the text itself.

    By ids, since a file may give the name of a token to others, or to several.
    """
    kind = value.get("type") if isinstance(value, Mapping) else None
    if kind in ("RobertaProcessing", "BertProcessing"):
        yield from ((_second(value.get("cls")), 0), _TEXT, (_second(value.get("sep")), 0))
    elif kind == "TemplateProcessing":
        special = value.get("special_tokens") or {}
        yield from (_piece(piece, special) for piece in value.get("single") or ())
    elif kind in (None, "ByteLevel"):  # the latter moves offsets alone
        yield _TEXT
    else:
        yield (kind, json.dumps(value, sort_keys=True))


def _piece(piece: Any, special: Any) -> tuple[Any, Any]:
    kind, part = next(iter(piece.items()), ("", {})) if isinstance(piece, Mapping) else ("", {})
    if not isinstance(part, Mapping) or not isinstance(special, Mapping):
        return None, None
    name = part.get("id")
    token = special.get(name) if kind == "SpecialToken" and isinstance(name, str) else None
    ids = token.get("ids") if isinstance(token, Mapping) else name
    return (tuple(ids) if isinstance(ids, list) else ids), part.get("type_id")


def _second(pair: Any) -> Any:
    """The ids of a pair of token and id."""
    return (pair[1],) if isinstance(pair, list) and len(pair) == 2 else None


def _in_words(step: Any) -> str:
    return safe_repr(json.dumps(step, sort_keys=True)) if step is not None else "none"
