"""Weights of Hugging Face folders: safetensors or torch files, whole or sharded, read as data.

Layout: "Save" and "Sharded checkpoints" of the transformers documentation.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from converters.artifact import open_artifact
from converters.errors import CorruptFileError, TooLargeError, UnknownFormatError, safe_repr
from converters.files import read_json

# In transformers' order of preference.
WHOLE = ("model.safetensors", "pytorch_model.bin")
INDEX = tuple(f"{name}.index.json" for name in WHOLE)
_MAX_INDEX_BYTES = 2**24
_MAX_SHARDS = 256


@dataclass(frozen=True)
class FolderWeights:
    """Tensors of all weight files of a folder.

    Attributes:
      tensors: by name.
      findings: of all files, each once.
      sha256: of the one file, or of the digests of all.
      digests: file name -> its sha256.
      type_said: that an index has weights loaded in, if no config says one; None where it does not.
    """

    tensors: Mapping[str, np.ndarray]
    findings: tuple[str, ...]
    sha256: str
    digests: Mapping[str, str]
    type_said: Any = None


def weight_files(folder: Path) -> list[str]:
    """Names of a folder's weight files, an index first; none where there are none."""
    for name, index in zip(WHOLE, INDEX, strict=True):
        if (folder / name).exists():
            return [name]
        if (folder / index).exists():
            return [index, *sorted(set(_places(folder / index).values()))]
    return []


def read_weights(folder: Path) -> FolderWeights:
    """All tensors of a folder.

    Raises:
      LoadError: a file is missing, damaged or unsafe, or contradicts the index.
    """
    names = weight_files(folder)
    if not names:
        raise UnknownFormatError(
            f"{folder} has no weights; expected one of {', '.join((*WHOLE, *INDEX))}"
        )
    if names[0] not in INDEX:
        return _from_files(folder, names, None)
    index, *shards = names
    about = read_json(folder / index, _MAX_INDEX_BYTES).get("metadata")
    kind = about.get("dtype") if isinstance(about, dict) else None
    return replace(_from_files(folder, shards, _places(folder / index)), type_said=kind)


def _from_files(folder: Path, names: list[str], places: dict[str, str] | None) -> FolderWeights:
    """The tensors of one or several files; `places` says which holds which tensor."""
    tensors: dict[str, np.ndarray] = {}
    findings: list[str] = []
    digests: dict[str, str] = {}
    for name in names:
        artifact = open_artifact(folder / name)
        if places is not None:
            _check_shard(name, artifact.weights.tensors, places)
        tensors.update(artifact.weights.tensors)
        findings += [finding for finding in artifact.findings if finding not in findings]
        digests[name] = artifact.sha256
    joined = hashlib.sha256(bytes.fromhex("".join(digests.values()))).hexdigest()
    identity = digests[names[0]] if len(names) == 1 else joined
    return FolderWeights(tensors, tuple(findings), identity, digests)


def _places(index: Path) -> dict[str, str]:
    """Tensor name -> file name, files of the same folder only."""
    places = read_json(index, _MAX_INDEX_BYTES).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise CorruptFileError(f"{index}: weight_map is {safe_repr(places)}, expected an object")
    for name in places.values():
        inside = isinstance(name, str) and name.isprintable() and not set(name) & set("/\\")
        if not inside or name in ("", ".", ".."):
            raise CorruptFileError(
                f"{index} names the file {safe_repr(name)}, expected the name of a file beside it"
            )
    if len(set(places.values())) > _MAX_SHARDS:
        raise TooLargeError(f"{index} names more than {_MAX_SHARDS} files")
    return places


def _check_shard(name: str, tensors, places: dict[str, str]) -> None:
    announced = {tensor for tensor, file in places.items() if file == name}
    wrong = announced ^ set(tensors)
    if wrong:
        raise CorruptFileError(
            f"{name} and the index differ in {len(wrong)} tensors, such as {safe_repr(min(wrong))}"
        )
