"""Texts to token ids, with the tokenizer of a Hugging Face folder or of a pickled file."""

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from converters.encoders.pipelines import refuse_other_pipeline
from converters.encoders.tokenizer_pickle import read_tokenizer
from converters.encoders.vocabularies import (
    FAST,
    MERGES,
    PIECES,
    WORDS,
    refuse_two_vocabularies,
)
from converters.errors import (
    ENDS,
    ConversionError,
    LoadError,
    TooLargeError,
    UnsupportedArchitectureError,
    safe_repr,
)
from converters.files import read_json

CONFIG = "tokenizer_config.json"
# The encoder's model_type -> class of transformers, where tokenizer_config.json names none.
TOKENIZER_CLASSES = {
    "bert": "BertTokenizer",
    "distilbert": "DistilBertTokenizer",
    "gpt2": "GPT2Tokenizer",
    "mpnet": "MPNetTokenizer",
    "roberta": "RobertaTokenizer",
}
_CLASSES = tuple(TOKENIZER_CLASSES.values())
# Entries that transformers hands on to the tokenizer in place of its files.
_ELSEWHERE = ("gguf_file", "init_inputs", "merges", "tokenizer_object", "vocab")
# Without these, transformers 5 makes a tokenizer of a handful of tokens and says nothing.
_VOCABULARIES = ((FAST,), (WORDS,), (PIECES, MERGES))
# What a folder's tokenizer is made of, with the class that is named.
_FILES = (FAST, WORDS, PIECES, MERGES, CONFIG, "special_tokens_map.json", "added_tokens.json")
_MAX_CONFIG_BYTES = 2**20
_MAX_FILE_BYTES = 2**26
# A review has some thousand characters; beyond this a text is no review.
MAX_CHARACTERS = 2**20


@dataclass(frozen=True)
class Tokens:
    """Token ids and mask, int32 `[n, t]`; the mask is 1 for tokens and 0 for padding."""

    ids: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True)
class Tokenizer:
    """Texts to token ids; special tokens as the encoder expects them.

    Attributes:
      backend: the tokenizer of transformers.
      pad_id: id that fills up shorter texts.
      unknown_id: id of what the vocabulary lacks, None when there is none.
      vocabulary: token -> id.
    """

    backend: Any = field(repr=False)
    pad_id: int
    unknown_id: int | None
    vocabulary: Mapping[str, int] = field(repr=False)

    def __call__(self, texts: Sequence[str], max_tokens: int) -> Tokens:
        """Tokens of texts, cut to `max_tokens` special tokens included, padded on the right.

        Raises:
          TooLargeError: a text has more than `MAX_CHARACTERS` characters.
          ConversionError: a text is no text, or not Unicode.
          LoadError: its files are such that the package tokenizers panics.
        """
        rows = self.rows(texts, max_tokens)
        width = max(map(len, rows), default=0)
        ids = np.full((len(rows), width), self.pad_id, np.int32)
        mask = np.zeros((len(rows), width), np.int32)
        for i, row in enumerate(rows):
            ids[i, : len(row)] = row
            mask[i, : len(row)] = 1
        return Tokens(ids, mask)

    def rows(self, texts: Sequence[str], max_tokens: int) -> list[list[int]]:
        """Token ids of each text without padding; see `__call__`."""
        for number, text in enumerate(texts):
            _check_text(number, text)
        if not len(texts):
            return []
        with _panics_told("the tokenizer"):
            found = self.backend(
                list(texts), max_length=max_tokens, truncation=True, return_attention_mask=False
            )
        return found["input_ids"]

    def text(self, ids: Sequence[int]) -> str:
        """The text of some ids; raises LoadError as `__call__` does."""
        with _panics_told("the tokenizer"):
            return str(self.backend.decode(list(ids)))


def _check_text(number: int, text: object) -> None:
    if not isinstance(text, str):
        raise ConversionError(f"text {number} is {safe_repr(text)}, expected text")
    if len(text) > MAX_CHARACTERS:
        raise TooLargeError(
            f"text {number} has {len(text)} characters, expected at most {MAX_CHARACTERS}"
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConversionError(
            f"text {number} holds half a surrogate pair at {error.start}, which is no character"
        ) from error


def load_tokenizer(path: str | PathLike[str]) -> Tokenizer:
    """The tokenizer of a Hugging Face folder or a pickled file; no network, no code of either.

    Raises:
      LoadError: a file is missing, too large or unreadable.
      UnsupportedArchitectureError: another kind of tokenizer.
    """
    path = Path(path)
    with _panics_told(path):
        return _load_folder(path) if path.is_dir() else _load_pickled(path)


def tokenizer_digest(path: str | PathLike[str]) -> str:
    """Sha256 of what `load_tokenizer` reads, hex: equal ones give equal tokens.

    Of a folder, its class and the tokenizer's files, not the encoder's beside them.

    Raises:
      LoadError: a file is missing or unreadable; UnsupportedArchitectureError as `load_tokenizer`.
    """
    path = Path(path)
    is_folder = path.is_dir()
    digest = hashlib.sha256(class_name(path).encode() if is_folder else b"")
    try:
        for file in [path / name for name in _FILES] if is_folder else [path]:
            if file.is_file() or not is_folder:
                with file.open("rb") as content:
                    own = hashlib.file_digest(content, "sha256").hexdigest()
                digest.update(f"\0{file.name if is_folder else ''}\0{own}".encode())
    except OSError as error:
        raise LoadError(f"cannot read the tokenizer {path}: {error.strerror or error}") from error
    return digest.hexdigest()


@contextmanager
def _panics_told(what: object) -> Iterator[None]:
    """A panic of the Rust package, which is no `Exception`, as a LoadError."""
    try:
        yield
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise LoadError(  # bare ones are those of the Rust package
            f"{what}: the package tokenizers refuses it: {str(error)[:300]}; expected the files of"
            " a working tokenizer"
        ) from error
    except ENDS:
        raise
    except BaseException as error:
        raise LoadError(
            f"{what}: the package tokenizers panicked: {str(error)[:300]}; expected the files of a"
            " working tokenizer"
        ) from error


def _load_pickled(path: Path) -> Tokenizer:
    """A tokenizer rebuilt from the vocabulary of a pickled one."""
    found = read_tokenizer(path)
    if found.class_name not in _CLASSES:
        raise UnsupportedArchitectureError(
            f"{path} holds a {found.class_name}, expected one of {', '.join(_CLASSES)}"
        )
    if (found.merges is not None) != (found.class_name == "GPT2Tokenizer"):
        raise UnsupportedArchitectureError(f"{path}: a {found.class_name} with other parts")
    import transformers

    parts = {} if found.merges is None else {"merges": list(found.merges)}
    # `vocab=`, since transformers 5 ignores `vocab_file=` without a word.
    backend = getattr(transformers, found.class_name)(
        vocab=dict(found.vocabulary), **parts, **found.options
    )
    return wrap(backend)


def _load_folder(folder: Path) -> Tokenizer:
    name = class_name(folder)
    with os.scandir(folder) as entries:
        for entry in entries:
            heavy = entry.name.endswith((".json", ".txt")) and entry.is_file()
            if heavy and entry.stat().st_size > _MAX_FILE_BYTES:
                raise TooLargeError(f"{entry.path} is larger than {_MAX_FILE_BYTES} bytes")
    if not any(all((folder / f).is_file() for f in files) for files in _VOCABULARIES):
        wanted = ", ".join(" with ".join(files) for files in _VOCABULARIES)
        raise LoadError(f"{folder} has no vocabulary; expected {wanted}")
    refuse_two_vocabularies(folder, _MAX_FILE_BYTES)
    import transformers

    try:
        backend = getattr(transformers, name).from_pretrained(
            str(folder), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:
        # The Rust tokenizer raises bare Exception for a file that it cannot read.
        raise LoadError(f"{folder} holds no {name}: {str(error)[:300]}") from error
    refuse_other_pipeline(folder, backend, _MAX_FILE_BYTES)
    return wrap(backend)


def wrap(backend: Any) -> Tokenizer:
    """A tokenizer of transformers as `Tokenizer`; without padding token, the end token pads.

    Without either, any id does: what fills up is masked.
    """
    if backend.pad_token_id is None and backend.eos_token_id is not None:
        backend.pad_token = backend.eos_token
    vocabulary: dict[str, int] = dict(backend.get_vocab())
    pad_id = 0 if backend.pad_token is None else vocabulary[backend.pad_token]
    return Tokenizer(backend, pad_id, backend.unk_token_id, vocabulary)


def class_name(folder: Path) -> str:
    """Name of the transformers class, from the allow-list; raises as `load_tokenizer`."""
    said = read_json(folder / CONFIG, _MAX_CONFIG_BYTES) if (folder / CONFIG).exists() else {}
    if said.get("fast_tokenizer_files", [FAST]) != [FAST]:
        raise LoadError(
            f"{folder / CONFIG} has other files than {FAST} loaded by some versions of"
            " transformers (fast_tokenizer_files); expected no such entry, and the tokenizer in"
            f" {FAST}"
        )
    if elsewhere := [name for name in _ELSEWHERE if said.get(name)]:
        raise LoadError(
            f"{folder / CONFIG} has {', '.join(elsewhere)} taken from elsewhere by some versions of"
            f" transformers; expected no such entry, and the tokenizer in {FAST}"
        )
    named = said.get("tokenizer_class")
    if named is None:
        config = read_json(folder / "config.json", _MAX_CONFIG_BYTES)
        named, kind = config.get("tokenizer_class"), config.get("model_type")
        if named is None and isinstance(kind, str):
            named = TOKENIZER_CLASSES.get(kind)
    name = named.removesuffix("Fast") if isinstance(named, str) else None
    if name is None or name not in _CLASSES:
        raise UnsupportedArchitectureError(
            f"{folder}: the tokenizer is {safe_repr(named)}, expected one of {', '.join(_CLASSES)}"
        )
    return name
