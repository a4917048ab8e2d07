"""Which entries of a dataset folder are models, and which file of a model's folder is the model.

An entry that looks like a model and cannot be scanned (a link to nothing, a folder with two
models) is a place too: its record says what is wrong.
"""

import os
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from converters.errors import ConverterError
from converters.files import what_is
from converters.hub.folder import is_hub_folder
from converters.hub.redirections import MLFLOW
from converters.hub.weights import weight_files
from converters.mlflow_folder import is_mlflow_folder, model_of
from jaxtroj.errors import DatasetError
from jaxtroj.rounds.example_names import natural_key
from jaxtroj.rounds.text_files import ENCODERS, OWN_ENCODER, OWN_TOKENIZER, TOKENIZERS

MODEL_SUFFIXES = frozenset(
    {".pt", ".pth", ".tar", ".pkl", ".bin", ".ckpt", ".safetensors", ".onnx", ".pt2"}
)
EXAMPLE_FOLDERS = ("example_data", "clean_example_data", "clean-example-data", "examples")
NO_MODELS = frozenset({ENCODERS, TOKENIZERS, "poisoned_example_data", *EXAMPLE_FOLDERS})
"""Names of folders whose files belong to models and are none."""
USUAL = "model.pt"
_NO_NETWORKS = re.compile(
    r"training_args\.bin|(optimizer|scheduler|scaler)\.pt|rng_state(_[0-9]+)?\.pth"
)
"""What transformers' trainer leaves beside a network."""
_OWN_FILES = (OWN_ENCODER, OWN_TOKENIZER)
_TO_NOTHING = "a symbolic link to nothing"
_MOST_NAMED = 4
_ID = re.compile(r"id-[0-9]+")


@dataclass(frozen=True)
class ModelFile:
    """The model file of a place.

    Attributes:
        path: of the file, or of the folder of a Hugging Face network; it need not exist.
        problem: what is wrong with it, if anything.
        is_refused: whether the problem leaves nothing that could be scanned.
    """

    path: Path
    problem: str | None = None
    is_refused: bool = False


def model_places(root: Path) -> list[Path]:
    """Model folders and plain model files, natural order; the root itself when it is one model.

    Raises DatasetError for a folder that cannot be read.
    """
    if is_whole_model(root):
        return [root]
    try:
        inner = _places_in(root / "models") if os.path.isdir(root / "models") else []
    except DatasetError:  # one that may not be read; `left_out` tells of it
        inner = []
    if inner:
        return inner
    places = _places_in(root)
    return [root] if _is_one_model(root, places) else places


def is_whole_model(folder: Path) -> bool:
    """Whether a folder is one network with all its files: of Hugging Face or of MLflow."""
    return is_hub_folder(folder) or is_mlflow_folder(folder)


def own_parts(folder: Path) -> frozenset[Path]:
    """What a whole model's network consists of below its folder: a cache's, or what MLmodel says.

    Of any other folder nothing.
    """
    names = ("snapshots", "blobs", "refs") if is_hub_folder(folder) else ()
    said = [_mlflow_model(folder).path] if is_mlflow_folder(folder) else []
    return frozenset([*(folder / name for name in names), *said])


def has_model_name(path: Path) -> bool:
    """Whether a name ends as those of model files do."""
    return path.suffix.lower() in MODEL_SUFFIXES


def model_file(place: Path) -> ModelFile:
    """The model file of a place: the place itself, or the only model file in its folder."""
    if not os.path.isdir(place):
        return _checked(place)
    if is_whole_model(place):
        return _whole_model(place)
    try:
        names = _candidates(place)
    except OSError as error:
        return ModelFile(place / USUAL, f"cannot read {place} ({error.strerror or error})")
    if not names:
        what = "the folder " if has_model_name(place) else ""
        return ModelFile(place / USUAL, f"no model file in {what}{place.name}, expected {USUAL}")
    return _checked(place / names[0]) if len(names) == 1 else _several(place, names)


def some_of(names: list[str] | tuple[str, ...], most: int = _MOST_NAMED) -> str:
    """The first names of many, and how many more there are.

    >>> some_of(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _places_in(home: Path) -> list[Path]:
    try:
        names = os.listdir(home)
    except OSError as error:
        raise DatasetError(f"cannot read {home} ({error.strerror or error})") from error
    return [home / name for name in sorted(names, key=natural_key) if _is_place(home / name)]


def _is_place(path: Path) -> bool:
    if path.name.startswith("."):  # hidden, or being written by someone
        return False
    if path.name == USUAL or _ID.fullmatch(path.name):  # also where it leads nowhere
        return True
    if os.path.isdir(path):
        return _is_model_folder(path) or _holds_a_model(path)
    return has_model_name(path) and what_is(path) in ("a file", _TO_NOTHING)


def _is_model_folder(path: Path) -> bool:
    """Whether a folder is one model's by its layout."""
    return (
        is_whole_model(path)
        or _ID.fullmatch(path.name) is not None
        or os.path.lexists(path / USUAL)
    )


def _holds_a_model(path: Path) -> bool:
    """Whether a folder of another layout is named like a model, or holds files that are."""
    if path.name in NO_MODELS or leads_back(path):
        return False
    try:
        return has_model_name(path) or bool(_candidates(path))
    except OSError:  # `left_out` tells of it
        return False


def leads_back(path: Path) -> bool:
    """Whether a link leads to the folder that it lies in, or to one around that."""
    home = Path(os.path.realpath(path.parent))
    return path.is_symlink() and home.is_relative_to(os.path.realpath(path))


def _is_one_model(root: Path, places: list[Path]) -> bool:
    """Whether `model.pt` is the only model that lies in the root as a layout has it."""
    own = root / USUAL
    others = (place for place in places if place != own and place.name not in _OWN_FILES)
    return own in places and not any(
        not os.path.isdir(place) or _is_model_folder(place) for place in others
    )


def _candidates(folder: Path) -> list[str]:
    """Names of what may be the model in a folder; an encoder or tokenizer only if it is alone."""
    names = [n for n in sorted(os.listdir(folder)) if has_model_name(Path(n)) and n[0] != "."]
    found = [name for name in names if name == USUAL or not os.path.isdir(folder / name)]
    return [name for name in found if name not in _OWN_FILES] or found


def _checked(path: Path) -> ModelFile:
    kind = what_is(path)
    if kind in ("a file", "absent"):  # who reads it says best that it is absent
        return ModelFile(path)
    what = "folder" if _ID.fullmatch(path.name) else "file"
    problem = f"{path} is {kind}, expected a model {what}; put the {what} itself there"
    return ModelFile(path, problem, is_refused=True)


def _several(folder: Path, names: list[str]) -> ModelFile:
    if _ID.fullmatch(folder.name) and USUAL in names:  # what the layout says the model is
        others = [name for name in names if name != USUAL]
        usual = _checked(folder / USUAL)
        beside = f"other model files beside {USUAL} were not looked at: {some_of(others)}"
        return usual if usual.problem else replace(usual, problem=beside)
    remedy = f"to scan each: jaxtroj scan {shlex.quote(str(folder))} --out RUN"
    problem = (
        f"several model files ({some_of(names)}) in {folder.name}, expected one, {USUAL}; {remedy}"
    )
    return ModelFile(folder, problem, is_refused=True)


def _whole_model(place: Path) -> ModelFile:
    """A network with all its files; refused where `model.pt`, which other readers take, is beside.

    MLmodel comes first: it may name others than the weights beside it.
    """
    file = _mlflow_model(place) if is_mlflow_folder(place) else ModelFile(place)
    others = [name for name in _names_beside(place) if place / name != file.path]
    if file.is_refused or not others:
        return file
    if USUAL in others:
        problem = (
            f"{place.name} may be more than one network: {USUAL} lies beside the files of another;"
            " expected one. Scan the file that is meant itself"
        )
        return ModelFile(place, problem, is_refused=True)
    beside = f"other model files in {place.name} were not looked at: {some_of(others)}"
    return replace(file, problem="; ".join(filter(None, [file.problem, beside])))


def _names_beside(folder: Path) -> list[str]:
    """Names of model files in a whole model's folder that are not a Hugging Face network's own."""
    try:
        own = {*weight_files(folder)} if is_hub_folder(folder) else set()
        names = [name for name in _candidates(folder) if name not in own]
        return [name for name in names if not _NO_NETWORKS.fullmatch(name)]
    except (OSError, ConverterError):  # reading the network meets it again
        return []


def _mlflow_model(folder: Path) -> ModelFile:
    try:
        return ModelFile(model_of(folder).path)
    except (ConverterError, OSError, ValueError) as error:  # a path that no file can have
        return ModelFile(folder / MLFLOW, str(error))
