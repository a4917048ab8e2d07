"""A vocabulary that a folder holds twice: both must say the same.

`BertTokenizer` and its like read `vocab.txt`, or `vocab.json` and `merges.txt`, in transformers 4,
and `tokenizer.json` in transformers 5 and wherever the fast tokenizers are taken. A folder whose
files differ gives a network other tokens with each of them.

Source: transformers 4.57, `load_vocab` of BERT's tokenizer, `GPT2Tokenizer.__init__`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from converters.errors import LoadError, safe_repr
from converters.files import read_json

FAST, WORDS, PIECES, MERGES = "tokenizer.json", "vocab.txt", "vocab.json", "merges.txt"


def refuse_two_vocabularies(folder: Path, most_bytes: int) -> None:
    """Compare `tokenizer.json` with the files that older tokenizers read, where both are there.

    Args:
      folder: of a tokenizer.
      most_bytes: that a file may have.

    Raises:
      LoadError: they differ, or one is not readable.
    """
    if not (folder / FAST).is_file():
        return
    model = read_json(folder / FAST, most_bytes).get("model")
    model = model if isinstance(model, dict) else {}
    if (folder / WORDS).is_file():
        _refuse_difference(folder, WORDS, _words(folder / WORDS), model.get("vocab"))
    if (folder / PIECES).is_file():
        pieces = read_json(folder / PIECES, most_bytes)
        _refuse_difference(folder, PIECES, pieces, model.get("vocab"))
    if (folder / MERGES).is_file():
        older, newer = _merges(folder / MERGES), _pairs(model)
        _refuse_difference(folder, MERGES, dict(enumerate(older)), dict(enumerate(newer)))


def _refuse_difference(folder: Path, name: str, older: Mapping[Any, Any], newer: Any) -> None:
    newer = newer if isinstance(newer, dict) else {}
    if older == newer:
        return
    both = older.keys() & newer.keys()
    first = next(k for k in (*older, *newer) if k not in both or older[k] != newer[k])
    raise LoadError(
        f"{folder}: {name} and {FAST} differ, for one at {safe_repr(first)}:"
        f" {safe_repr(older.get(first))} and {safe_repr(newer.get(first))}. Some versions of"
        f" transformers read the one, others the other; expected one of both: take {name} away, or"
        " save the tokenizer again"
    )


def _words(path: Path) -> dict[str, int]:
    """Token -> number of its line, the last one where a token has several."""
    return {line: number for number, line in enumerate(_text(path).removesuffix("\n").split("\n"))}


def _merges(path: Path) -> list[tuple[str, ...]]:
    """Pairs of pieces; the first line, of a version, and what follows the last newline are none."""
    return [tuple(line.split()) for line in _text(path).split("\n")[1:-1]]


def _pairs(model: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The same of a `tokenizer.json`, which has them as texts or as lists of two."""
    found = model.get("merges")
    entries = found if isinstance(found, list) else []
    return [tuple(e.split(" ")) if isinstance(e, str) else tuple(map(str, e)) for e in entries]


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except ValueError as error:
        raise LoadError(f"{path} is no text in UTF-8: {error}") from error
