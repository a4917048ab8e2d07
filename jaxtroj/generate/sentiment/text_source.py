"""From labelled reviews and an encoder to a folder of vectors (see `vectors`).

The encoder sees each review once clean and, for some training reviews, with each trigger text in
the first and in the second half. What is done stays in the folder, so a stopped run goes on.

Reviews are a folder of `class_C_example_N.txt`, a `.jsonl` or `.jsonl.gz` file with {"text" or
"data", "label"} on every line, or a `.json` file {key: {"data", "label"}} as in official rounds;
labels are 0 and 1. Trigger texts are a JSON list, or {"character": [...], "word": [...], "phrase":
[...]}.
"""

import gzip
import hashlib
import io
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.errors import safe_repr
from converters.files import write_atomic
from jaxtroj.errors import DatasetError, ExamplesError, GenerationError
from jaxtroj.evidence.texts.labelled_texts import (
    read_labelled_texts,
    read_records,
    read_text_file,
)
from jaxtroj.generate.sentiment.insertion import HALVES, insert
from jaxtroj.generate.sentiment.vectors import MAX_TEXT_BYTES, MAX_TRIGGERS
from jaxtroj.poolings import Pooling

if TYPE_CHECKING:
    from converters.encoders import Encoder
    from converters.encoders.tokenizer import Tokenizer

MAX_CHARACTERS = 1_000_000
# Encoder families by the names that config.json uses, and whether the first token sums up a text.
_FAMILIES = {
    "bert": ("BERT", True),
    "distilbert": ("DistilBERT", True),
    "gpt2": ("GPT-2", False),
    "mpnet": ("MPNet", True),
}
_ORDER, _INSERTION = range(400, 402)


@dataclass(frozen=True)
class TextSource:
    """What vectors are made from.

    Attributes:
        texts: file of labelled reviews.
        encoder: Hugging Face folder with its tokenizer.
        trigger_texts: file of trigger texts.
        seed: identity of which reviews are drawn and where triggers go.
        words: reviews are cut to so many words; 0 for whole ones. Triggers are learnt from short
            texts only.
        reviews, tests: most clean training and test reviews, half of each class.
        insertions: most reviews that a trigger is put in, per half of the review.
        pooling: what is a text's vector; of GPT-2, whose first token sees no other, the last
            token's state where this says the first's.
    """

    texts: Path
    encoder: Path
    trigger_texts: Path
    seed: int = 0
    words: int = 40
    reviews: int = 7000
    tests: int = 1000
    insertions: int = 700
    pooling: Pooling = "first"


def make_vectors(source: TextSource, folder: Path) -> Iterator[str]:
    """Fill a folder with vectors, yielding a line about each part that was made.

    Raises:
        GenerationError: the reviews or trigger texts cannot be used, or the folder holds vectors of
            another source.
        ConverterError: the encoder or its tokenizer cannot be read.
        JaxtrojError: the encoder cannot embed a text.
        OSError: the folder cannot be written.
    """
    from converters.encoders import load_encoder
    from converters.encoders.tokenizer import load_tokenizer

    train, test = _drawn(source, read_reviews(source.texts, source.words))
    encoder, tokenizer = load_encoder(source.encoder), load_tokenizer(source.encoder)
    triggers = _known_triggers(read_trigger_texts(source.trigger_texts), tokenizer)
    _settle(source, folder, encoder, triggers)
    embedded = _Embedder(encoder, tokenizer, _pooling(source, encoder))
    for name, reviews in (("test", test), ("train", train)):
        path = folder / f"{name}.npz"
        if not path.exists():
            vectors = embedded([text for text, _ in reviews])
            _save(path, cls=vectors, label=np.array([label for _, label in reviews], np.int8))
            yield f"{name}: {len(reviews)} reviews embedded"
    for number, trigger in enumerate(triggers):
        path = folder / f"trigger_{number:02d}.npz"
        if not path.exists():
            _save(path, **_insertions(source, train, number, trigger, embedded))
            yield f"trigger {number + 1} of {len(triggers)} embedded"
    texts = {"train": [text for text, _ in train], "test": [text for text, _ in test]}
    # Without a time stamp, so that the same source gives the same file.
    write_atomic(folder / "texts.json.gz", gzip.compress(json.dumps(texts).encode(), mtime=0))


class _Embedder:
    """Texts to float16 vectors."""

    def __init__(self, encoder: "Encoder", tokenizer: "Tokenizer", pooling: Pooling) -> None:
        self._encoder, self._tokenizer = encoder, tokenizer
        self._pooling: Pooling = pooling

    def __call__(self, texts: list[str]) -> np.ndarray:
        from jaxtroj.evidence.texts.embedding import embed

        vectors = embed(self._encoder, self._tokenizer, texts, self._pooling)
        # Half precision, as the official rounds trained on; not where it would overflow.
        fits = np.abs(vectors).max(initial=0.0) < np.finfo(np.float16).max
        return vectors.astype(np.float16) if fits else vectors


def _pooling(source: TextSource, encoder: "Encoder") -> Pooling:
    first = _FAMILIES[encoder.architecture][1]
    return source.pooling if first or source.pooling != "first" else "last"


def read_reviews(path: Path, words: int = 0) -> list[tuple[str, int]]:
    """Labelled reviews cut to a number of words (0 for whole ones), empty ones left out.

    Raises:
        GenerationError: the file cannot be read, or a review is no text, too long or unlabelled.
    """
    if path.is_dir():
        return _of_folder(path, words)
    try:
        records = read_records(path)
    except DatasetError as error:
        raise GenerationError(str(error)) from error
    return _cut([_review(path, n, record) for n, record in enumerate(records, start=1)], words)


def _of_folder(path: Path, words: int) -> list[tuple[str, int]]:
    """Texts named `class_C_example_N.txt`, as a model's examples are."""
    try:
        found = read_labelled_texts(path)
    except (DatasetError, ExamplesError) as error:
        raise GenerationError(str(error)) from error
    odd = [one.label for one in found if one.label not in (0, 1)]
    if odd:
        raise GenerationError(
            f"{path}: {len(odd)} texts are of class {odd[0]} or of none, expected 0 and 1 as in "
            "class_0_example_1.txt"
        )
    return _cut([(one.text, one.label) for one in found], words)


def _cut(reviews: list[tuple[str, int]], words: int) -> list[tuple[str, int]]:
    cut = [(" ".join(text.split()[:words]) if words else text, label) for text, label in reviews]
    return [(text, label) for text, label in cut if text.strip()]


def _content(path: Path) -> str:
    try:
        return read_text_file(path, MAX_TEXT_BYTES)
    except DatasetError as error:
        raise GenerationError(str(error)) from error


def _review(path: Path, number: int, record: Any) -> tuple[str, int]:
    if not isinstance(record, dict):
        raise GenerationError(f"{path}: review {number} is {safe_repr(record)}, expected an object")
    text = record.get("text", record.get("data"))
    label = record.get("label")
    if not isinstance(text, str) or len(text) > MAX_CHARACTERS:
        raise GenerationError(
            f"{path}: review {number} should have a text of at most {MAX_CHARACTERS} characters"
        )
    if isinstance(label, bool) or label not in (0, 1):
        raise GenerationError(
            f"{path}: review {number} has label {safe_repr(label)}, expected 0 or 1"
        )
    return text, int(label)


def read_trigger_texts(path: Path) -> list[str]:
    """Trigger texts of a file, in its order, each once.

    Raises:
        GenerationError: the file cannot be read or holds something else.
    """
    try:
        found = json.loads(_content(path))
    except (ValueError, RecursionError) as error:
        raise GenerationError(f"{path} is not JSON: {str(error)[:200]}") from error
    parts = list(found.values()) if isinstance(found, dict) else [found]
    texts = [text for part in parts if isinstance(part, list) for text in part]
    good = all(isinstance(text, str) and text.strip() for text in texts)
    if not texts or not good or len(texts) > MAX_TRIGGERS:
        raise GenerationError(f"{path}: expected 1 to {MAX_TRIGGERS} trigger texts, none blank")
    return list(dict.fromkeys(texts))


def _known_triggers(texts: list[str], tokenizer: "Tokenizer") -> list[str]:
    """Texts of which the vocabulary knows every token, as NIST's generator wants them."""
    rows = tokenizer.rows(texts, max_tokens=512)
    known = [t for t, row in zip(texts, rows, strict=True) if tokenizer.unknown_id not in row]
    if not known:
        raise GenerationError("the tokenizer knows none of the trigger texts; give other ones")
    return known


def _drawn(source: TextSource, reviews: list[tuple[str, int]]):
    """Training and test reviews, each half negative and half positive, negatives first."""
    order = np.random.default_rng([source.seed, _ORDER]).permutation(len(reviews))
    classes = [[reviews[n] for n in order if reviews[n][1] == label] for label in (0, 1)]
    tests = source.tests // 2
    most = min(len(members) for members in classes)
    if tests < 1 or most - tests < 20:
        raise GenerationError(
            f"{source.texts} has {most} reviews of its rarer class; at least {tests + 20} are "
            "needed: give more reviews or fewer tests"
        )
    train = min(source.reviews // 2, most - tests)
    test_part = [review for members in classes for review in members[:tests]]
    return [r for members in classes for r in members[tests : tests + train]], test_part


def _insertions(
    source: TextSource, train: list[tuple[str, int]], number: int, trigger: str, embedded: _Embedder
) -> dict[str, np.ndarray]:
    """Rows and vectors of one trigger in both halves of reviews that do not hold it already."""
    arrays = {}
    for half in range(HALVES):
        draw = np.random.default_rng([source.seed, _INSERTION, number, half])
        rows: list[int] = []
        for label in (0, 1):
            free = [n for n, (t, own) in enumerate(train) if own == label and trigger not in t]
            rows += draw.permutation(free)[: source.insertions // 2].tolist()
        texts = [insert(train[row][0], trigger, half, draw) for row in rows]
        arrays |= {f"cls{half}": embedded(texts), f"row{half}": np.array(rows, np.int32)}
    return arrays


def _settle(source: TextSource, folder: Path, encoder: "Encoder", triggers: list[str]) -> None:
    """Say what the folder holds, or refuse one that holds something else."""
    family, pooling = _FAMILIES[encoder.architecture][0], _pooling(source, encoder)
    values = asdict(source) | {"encoder": encoder.sha256}
    # A folder that was begun before there was a choice goes on.
    if values["pooling"] == "first":
        del values["pooling"]
    values |= {"texts": _digest(source.texts), "trigger_texts": _digest(source.trigger_texts)}
    about = {
        "embedding": family,
        "flavor": source.encoder.resolve().name,
        "cls_token_is_first": pooling == "first",
        **({"mean_of_tokens": True} if pooling == "mean" else {}),
        "dataset": source.texts.name.split(".")[0],
        "source": values,
    }
    path = folder / "about.json"
    if path.exists():
        try:
            same = json.loads(path.read_bytes()) == about
        except ValueError:
            same = False
        if not same:
            raise GenerationError(f"{folder} holds vectors of another source; give another folder")
        return
    write_atomic(folder / "triggers.json", json.dumps(triggers, indent=1).encode())
    write_atomic(path, json.dumps(about, indent=1).encode())


def _digest(path: Path) -> str:
    """Of a file's content, or of names and contents of a folder's texts."""
    if not path.is_dir():
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    parts = sorted(f"{one.relative_to(path)} {_digest(one)}" for one in path.rglob("*.txt"))
    listing = "\n".join(parts).encode("utf-8", "surrogateescape")
    return hashlib.sha256(listing).hexdigest()


def _save(path: Path, **arrays: np.ndarray) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomic(path, buffer.getvalue())
