"""What lies around a text model: its config, and the encoder and tokenizer of its dataset.

A dataset holds `embeddings/` and `tokenizers/` beside `models/`; a submitted container sees
`embedding.pt` and `tokenizer.pt` beside `model.pt` instead. The name comes from `config.json`, a
stranger's file, so it must be a plain name in those folders and no link out of them.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from jaxtroj.errors import DatasetError
from jaxtroj.rounds.image_file import SUFFIXES
from jaxtroj.rounds.text_config import TextConfig, check_name, read_text_config
from jaxtroj.rounds.text_tables import EMBEDDING_TABLE

CONFIG_FILE = "config.json"
ENCODERS, OWN_ENCODER = "embeddings", "embedding.pt"
TOKENIZERS, OWN_TOKENIZER = "tokenizers", "tokenizer.pt"


@dataclass(frozen=True)
class TextFiles:
    """The files of one text model besides the model and its texts; None where there is none."""

    config: TextConfig | None
    encoder: Path | None
    """File or folder of the encoder that made its sentence embeddings."""
    tokenizer: Path | None
    """File or folder of its tokenizer."""
    problems: tuple[str, ...]
    """What is wrong with the three; one sentence each."""


def text_files(model_folder: Path, examples: Path | None) -> TextFiles | None:
    """The files of a text model; None if the model is not one of texts.

    It is one if its examples are `.txt` and none is a picture, if sentence embeddings lie beside
    it, or, without pictures, if its config names an encoder. A config that cannot be read is a
    problem of a text model and says nothing about the kind of another.

    Args:
        model_folder: where the model file lies.
        examples: folder of its examples, if there is one.
    """
    suffixes = _suffixes(examples)
    if not suffixes.isdisjoint(SUFFIXES):
        return None
    config, problem = _config(model_folder / CONFIG_FILE)
    has_text = ".txt" in suffixes or os.path.isfile(model_folder / EMBEDDING_TABLE)
    if not has_text and (config is None or not config.is_text):
        return None
    names = config.encoder_names if config else ()
    encoder, no_encoder = _find(model_folder, ENCODERS, OWN_ENCODER, names)
    tokenizer, no_tokenizer = _find(model_folder, TOKENIZERS, OWN_TOKENIZER, names)
    problems = tuple(text for text in (problem, no_encoder, no_tokenizer) if text)
    return TextFiles(config, encoder, tokenizer, problems)


def _suffixes(folder: Path | None) -> frozenset[str]:
    """Lower-case suffixes of the files in a folder of examples."""
    try:
        names = os.listdir(folder) if folder else []
    except OSError:  # reading the examples meets the same error and says so
        names = []
    return frozenset(os.path.splitext(name)[1].lower() for name in names)


def _config(path: Path) -> tuple[TextConfig | None, str | None]:
    if not os.path.lexists(path):
        return None, None
    try:
        return read_text_config(path), None
    except DatasetError as error:
        return None, str(error)


def _find(
    model_folder: Path, shelf_name: str, own: str, names: tuple[str, ...]
) -> tuple[Path | None, str | None]:
    """The encoder or tokenizer of a model, or why there is none."""
    for shelf in _shelves(model_folder, shelf_name):
        for name in names:
            try:
                check_name(name)
            except ValueError as error:
                return None, str(error)
            if os.path.lexists(shelf / name):
                return _inside(shelf, name)
    if os.path.lexists(model_folder / own):
        return model_folder / own, None
    wanted = " or ".join(ascii(name)[1:-1] for name in names)
    missing = f"no {wanted} in {shelf_name}/ of the dataset"
    unnamed = f"no config.json says which file of {shelf_name}/ is the model's"
    return None, f"{missing if names else unnamed}, and no {own} beside the model"


def _shelves(model_folder: Path, name: str) -> list[Path]:
    """Folders of that name in the dataset: where the model seems to lie, and where it does."""
    found = []
    for place in (os.path.abspath(model_folder), os.path.realpath(model_folder)):
        home = Path(place).parent
        home = home.parent if home.name == "models" else home
        if os.path.isdir(home / name) and home / name not in found:
            found.append(home / name)
    return found


def _inside(shelf: Path, name: str) -> tuple[Path | None, str | None]:
    """The file or folder on its shelf; a link to a place elsewhere is refused."""
    home = os.path.realpath(shelf)
    if os.path.commonpath([home, os.path.realpath(shelf / name)]) != home:
        return None, f"{shelf.name}/{name} is a link to a place outside; put the file itself there"
    return shelf / name, None
