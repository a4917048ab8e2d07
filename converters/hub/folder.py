"""Folders with a `config.json` and weights, and the hub's cache: which files they consist of."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.errors import (
    ConverterError,
    CorruptFileError,
    LoadError,
    UnsafeConfigError,
    safe_repr,
)
from converters.files import read_json, read_plain
from converters.hub.redirections import MLFLOW, refuse_redirections, refuse_rounding
from converters.hub.weights import INDEX, WHOLE, FolderWeights, read_weights, weight_files

CONFIG = "config.json"
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
# Where MLflow keeps what goes with a network's weights, and the parts that prepare pictures.
COMPONENTS = Path("components")
_PREPARING = ("image_processor", "feature_extractor")
TOKENIZERS = (
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.txt", "vocab.json", "merges.txt"),
)
MOST_CONFIG_BYTES = 2**20
_MOST_TOKENIZER_BYTES = 2**26
_MOST_REF_BYTES = 100
_TEXT_CLASSIFIER = "ForSequenceClassification"
_NAMING = frozenset(("model_type", "architectures", "auto_map", "pretrained_cfg"))
_COMMIT, _SHA256 = re.compile(r"[0-9a-f]{40}"), re.compile(r"[0-9a-f]{64}")
_CACHED = "models--"


@dataclass(frozen=True)
class HubFolder:
    """A folder that was read and not converted yet.

    Attributes:
      path: of the folder; of the snapshot in a cache.
      config: `config.json`.
      weights: of its files.
      digests: file name -> sha256, of every file that was read.
    """

    path: Path
    config: dict[str, Any]
    weights: FolderWeights
    digests: dict[str, str]

    @property
    def sha256(self) -> str:
        """Of all files that decide the network and its input: of the lines that `sha256sum` prints
        for them, in the order of their names. The same weights with another `config.json` are
        another network."""
        lines = (f"{digest}  {name}\n" for name, digest in sorted(self.digests.items()))
        return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    @property
    def findings(self) -> tuple[str, ...]:
        """Which files were read, and from which commit of which repository in a cache."""
        home = self.path.resolve().parent
        files = tuple(f"{name}: sha256 {digest}" for name, digest in self.digests.items())
        if home.name != "snapshots" or not home.parent.name.startswith(_CACHED):
            return files
        repository = home.parent.name.removeprefix(_CACHED).replace("--", "/", 1)
        return (f"commit {self.path.resolve().name} of {repository}", *files)


def is_hub_folder(path: Path) -> bool:
    """Whether a path is a folder with weights whose `config.json` names a network, or a cache's
    folder of such a network."""
    try:
        if (path / "snapshots").is_dir():
            return (path / "refs").is_dir() or path.name.startswith(_CACHED)
        has_weights = any((path / name).exists() for name in (*WHOLE, *INDEX))
        if not has_weights or not (path / CONFIG).exists():
            return False
        return bool(_NAMING & set(read_json(path / CONFIG, MOST_CONFIG_BYTES)))
    except OSError:
        return False
    except ConverterError:  # reading it meets the same error and says so
        return True


def snapshot_of(path: Path, revision: str = "main") -> Path:
    """The folder itself, or of a cache's `models--ORG--NAME` the snapshot of a revision.

    Raises:
      LoadError: the cache has no such revision.
    """
    snapshots = path / "snapshots"
    if not snapshots.is_dir():
        return path
    try:
        content = read_plain(path / "refs" / revision, _MOST_REF_BYTES)
        commit = content.decode("ascii", "replace").strip()
    except OSError:
        commit = revision
    known = sorted(entry.name for entry in snapshots.iterdir() if entry.is_dir())
    if commit not in known and revision == "main" and len(known) == 1:
        return snapshots / known[0]
    if commit not in known or not _COMMIT.fullmatch(commit):
        raise LoadError(
            f"{path} has no snapshot {safe_repr(commit)} of {safe_repr(revision)}; it has"
            f" {', '.join(map(safe_repr, known[:5])) or 'none'}: name the one as a path"
        )
    return snapshots / commit


def takes_texts(path: Path) -> bool:
    """Whether a hub folder is one of a text classifier, by the class that its config names."""
    try:
        config = read_json(snapshot_of(path) / CONFIG, MOST_CONFIG_BYTES)
    except (OSError, ConverterError):  # reading it meets the same error and says so
        return False
    said = config.get("architectures")
    names = said if isinstance(said, list) else []
    return any(isinstance(name, str) and name.endswith(_TEXT_CLASSIFIER) for name in names)


def is_unreadable(path: Path) -> bool:
    """Whether the config of a hub folder cannot be read, so that what the network takes is open."""
    try:
        return is_hub_folder(path) and not read_json(snapshot_of(path) / CONFIG, MOST_CONFIG_BYTES)
    except (OSError, ConverterError):
        return True


def processor_home(folder: Path) -> Path:
    """Where the processor of a network's pictures lies: in its folder, or where MLflow keeps it."""
    around = folder.parent
    if (around / MLFLOW).is_file():
        for name in _PREPARING:
            if (around / COMPONENTS / name).is_dir():
                return around / COMPONENTS / name
    return folder


def _beside(folder: Path) -> dict[str, Path]:
    """The files that say how pictures or texts become a network's input, by name."""
    if takes_texts(folder):
        return {name: folder / name for name in TOKENIZERS if (folder / name).exists()}
    home = processor_home(folder)
    if home != folder:
        _refuse_two_processors(folder, home)
    return {name: home / name for name in PROCESSORS if (home / name).exists()}


def _refuse_two_processors(folder: Path, home: Path) -> None:
    """A network's own processor must be the one that MLflow keeps beside it."""
    for name in PROCESSORS:
        own, used = ([*_values(place / name)] for place in (folder, home))
        if own and own != used:
            raise CorruptFileError(
                f"{folder} holds {name}, and MLflow prepares pictures as {home} says, otherwise;"
                f" expected the same, or one of both: take {name} away"
            )


def _values(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield read_json(path, MOST_CONFIG_BYTES)


def files_of(path: Path) -> list[Path]:
    """The files that an answer depends on; raises LoadError if they cannot be told."""
    folder = snapshot_of(path)
    own = [folder / name for name in weight_files(folder)]
    return [folder / CONFIG, *_beside(folder).values(), *own]


def read_hub_folder(path: Path) -> HubFolder:
    """Config and weights of a folder, read as data.

    Raises:
      UnsafeConfigError: it asks for code that is no part of transformers.
      LoadError: a file is missing, damaged or unsafe, or other weights are loaded where it is used.
      ConversionError: weights are rounded or quantised there.
    """
    folder = snapshot_of(path)
    beside = _beside(folder)
    places = {CONFIG: folder / CONFIG} | beside
    # A vocabulary may be larger than any config, and asks for nothing.
    said = {name: path for name, path in places.items() if name.endswith("config.json")}
    configs = {name: read_json(path, MOST_CONFIG_BYTES) for name, path in said.items()}
    for name, values in configs.items():
        refuse_code(values, name)
    refuse_redirections(folder, configs[CONFIG], CONFIG)
    weights = read_weights(folder)
    if "pretrained_cfg" not in configs[CONFIG]:  # timm's weights stay as they are
        refuse_rounding(configs[CONFIG], weights, CONFIG)
    # Which form was read: the first that is there, by its index where it has one.
    index = weight_files(folder)[0]
    places |= {index: folder / index} if index in INDEX else {}
    digests = {name: _digest(path) for name, path in places.items()} | dict(weights.digests)
    _check_blobs(folder, digests)
    return HubFolder(folder, configs[CONFIG], weights, digests)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(read_plain(path, _MOST_TOKENIZER_BYTES)).hexdigest()
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror}") from error


def _check_blobs(folder: Path, digests: dict[str, str]) -> None:
    """A cache keeps large files under their own sha256; raise CorruptFileError if one is not it."""
    for name, digest in digests.items():
        kept = (folder / name).resolve().name
        if _SHA256.fullmatch(kept) and kept != digest:
            raise CorruptFileError(
                f"the cache keeps {name} as {kept}, its sha256 is {digest}; fetch it again"
            )


def refuse_code(values: dict[str, Any], name: str) -> None:
    """Raise UnsafeConfigError where a config has transformers fetch and run code, at any depth."""
    waiting: list[Any] = [values]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        if not isinstance(value, dict):
            continue
        waiting += value.values()
        for key, said in value.items():
            if _asks_for_code(key, said):
                raise UnsafeConfigError(
                    f"{name} asks for code that is no part of transformers: {safe_repr(key)} is"
                    f" {_short(said)}. Nothing of it was run; export the network to ONNX where its"
                    " code is trusted, or take it out of the file if the network does without"
                )


def _asks_for_code(key: str, said: Any) -> bool:
    if key in ("auto_map", "custom_pipelines"):
        return bool(said)
    # A name with a slash is a repository of compiled kernels.
    return "attn_implementation" in key and isinstance(said, str) and "/" in said


def _short(said: Any) -> str:
    names = [v for v in said.values() if isinstance(v, str)] if isinstance(said, dict) else []
    return safe_repr(names[0]) if names else safe_repr(said)
