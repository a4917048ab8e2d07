"""Folders with a `config.json` and weights, and the hub's cache: which files they consist of."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.errors import ConverterError, LoadError, UnsafeConfigError, safe_repr
from converters.files import read_json
from converters.hub.weights import INDEX, WHOLE, FolderWeights, read_weights, weight_files

CONFIG = "config.json"
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
MOST_CONFIG_BYTES = 2**20
_NAMING = frozenset(("model_type", "architectures", "auto_map", "pretrained_cfg"))
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class HubFolder:
    """A folder that was read and not converted yet.

    Attributes:
      path: of the folder; of the snapshot in a cache.
      config: `config.json`.
      weights: of its files.
    """

    path: Path
    config: dict[str, Any]
    weights: FolderWeights


def is_hub_folder(path: Path) -> bool:
    """Whether a path is a folder with weights whose `config.json` names a network, or a cache's
    folder of such a network."""
    try:
        if (path / "snapshots").is_dir():
            return (path / "refs").is_dir() or path.name.startswith("models--")
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
        commit = (path / "refs" / revision).read_text()[:100].strip()
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


def files_of(path: Path) -> list[Path]:
    """The files that an answer depends on; raises LoadError if they cannot be told."""
    folder = snapshot_of(path)
    names = [CONFIG, *(name for name in PROCESSORS if (folder / name).exists())]
    return [folder / name for name in (*names, *weight_files(folder))]


def read_hub_folder(path: Path) -> HubFolder:
    """Config and weights of a folder, read as data.

    Raises:
      UnsafeConfigError: it asks for code that is no part of transformers.
      LoadError: a file is missing, damaged or unsafe.
    """
    folder = snapshot_of(path)
    config = read_json(folder / CONFIG, MOST_CONFIG_BYTES)
    refuse_code(config, CONFIG)
    for name in PROCESSORS:
        if (folder / name).exists():
            refuse_code(read_json(folder / name, MOST_CONFIG_BYTES), name)
    return HubFolder(folder, config, read_weights(folder))


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
