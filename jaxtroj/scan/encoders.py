"""The encoder and the probe bank that a head stands on: of the settings, or of its dataset."""

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtroj.errors import EvidenceError
from jaxtroj.evidence.texts.bank.store import MANIFEST
from jaxtroj.rounds import ModelEntry
from jaxtroj.rounds.text_files import CONFIG_FILE
from jaxtroj.scan.attempt import Attempt

if TYPE_CHECKING:
    from converters.encoders import Encoder
    from converters.encoders.tokenizer import Tokenizer
    from jaxtroj.evidence.texts.text_search import Embed


def bank_of(entry: ModelEntry, home: Path) -> Path:
    """The bank for a head: `home`, or in a folder of banks the one of its encoder's name.

    Raises:
        EvidenceError: a folder of banks has none for this encoder.
    """
    if (home / MANIFEST).exists():
        return home
    config = entry.text_config
    names = [Path(name).stem for name in config.encoder_names] if config else []
    for name in names:
        if (home / name / MANIFEST).exists():
            return home / name
    raise EvidenceError(
        f"{home} is no bank and holds none called {' or '.join(names) or 'as the encoder'}; build"
        " it with: jaxtroj bank"
    )


def are_together(entry: ModelEntry, bank: Path) -> bool:
    """Whether a head lies in the dataset that the bank's clean heads come from.

    Heads of one dataset were trained on parts of the same texts, and agree more than heads of any
    two datasets: calibrators for the one case are no good for the other.
    """
    return _are_from(entry.model_path.parent.parent, entry.model_path.name, bank)


@lru_cache(maxsize=64)
def _are_from(dataset: Path, file_name: str, bank: Path) -> bool:
    from jaxtroj.evidence.texts.bank.origin import are_from

    return are_from(dataset, file_name, bank)


def unknown_encoder(entry: ModelEntry) -> str | None:
    """Why a head cannot be compared by encoder with a bank's clean heads; None where it can be."""
    named = entry.text_config is not None and entry.text_config.is_text
    if named:
        return None
    missing = "its config.json names none" if entry.text_config else "it has no config.json"
    why = problem_of_config(entry) or missing
    return (
        f"which encoder the head stands on is not known: {why}, so it was not compared with the"
        " bank's"
    )


def problem_of_config(entry: ModelEntry) -> str | None:
    """Why a config that is there cannot be read."""
    path = entry.model_path.parent / CONFIG_FILE
    if entry.text_config is not None or not os.path.lexists(path):
        return None
    return next((one for one in entry.text_problems if str(path) in one), None)


def embedding_of(attempt: Attempt) -> "Embed":
    """What makes sentence vectors for a head: its dataset's encoder, or that of the settings.

    Raises:
        EvidenceError: there is none, or nothing says which token's state is the vector.
        ConverterError: encoder or tokenizer cannot be read.
    """
    from jaxtroj.evidence.texts.embedding import embed

    entry, settings = attempt.entry, attempt.settings
    path = settings.encoder or entry.encoder_path
    if path is None:
        raise EvidenceError(
            f"there is no encoder ({'; '.join(entry.text_problems) or 'none in the dataset'});"
            " name one with --encoder"
        )
    config = entry.text_config
    pooling = None if config is None else config.pooling
    if pooling is None:
        raise EvidenceError(
            "the model's config.json does not say which token's state is the sentence embedding;"
            " expected cls_token_is_first or an encoder's name in it"
        )
    encoder = _encoder(path)
    tokenizer = _tokenizer(settings.tokenizer or entry.tokenizer_path or path)
    return lambda texts: embed(encoder, tokenizer, texts, pooling)


@lru_cache(maxsize=2)
def _encoder(path: Path) -> "Encoder":
    from converters.encoders import load_encoder

    return load_encoder(path)


@lru_cache(maxsize=2)
def _tokenizer(path: Path) -> "Tokenizer":
    from converters.encoders.tokenizer import load_tokenizer

    return load_tokenizer(path)
