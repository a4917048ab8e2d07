"""Hugging Face folders: `config.json` as data, weights as safetensors or torch files, sharded.

Layout: "Save" and "Sharded checkpoints" of the transformers documentation.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from converters.artifact import open_artifact
from converters.encoders.assembly import Encoder, assemble
from converters.errors import (
    ConversionError,
    CorruptFileError,
    TooLargeError,
    UnknownFormatError,
    safe_repr,
)
from converters.files import read_json

CONFIG = "config.json"
# In transformers' order of preference.
_WHOLE = ("model.safetensors", "pytorch_model.bin")
_INDEX = tuple(f"{name}.index.json" for name in _WHOLE)
_MAX_CONFIG_BYTES = 2**20
_MAX_INDEX_BYTES = 2**24
_MAX_SHARDS = 256


def load_folder(folder: Path) -> Encoder:
    """The encoder in a Hugging Face folder.

    Raises:
      LoadError: a file is missing, damaged or unsafe.
      ConversionError: it holds no supported encoder.
    """
    values = read_json(folder / CONFIG, _MAX_CONFIG_BYTES)
    for name, index in zip(_WHOLE, _INDEX, strict=True):
        if (folder / name).exists():
            return _from_files(folder, values, [name], None)
        if (folder / index).exists():
            places = _places(folder / index)
            return _from_files(folder, values, sorted(set(places.values())), places)
    raise UnknownFormatError(
        f"{folder} has no weights; expected one of {', '.join((*_WHOLE, *_INDEX))}"
    )


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


def _from_files(
    folder: Path, values: dict[str, Any], names: list[str], places: dict[str, str] | None
) -> Encoder:
    """The encoder from one or several weight files; `places` says which holds which tensor."""
    tensors: dict[str, np.ndarray] = {}
    findings: list[str] = []
    digest = hashlib.sha256()
    for name in names:
        artifact = open_artifact(folder / name)
        if places is not None:
            _check_shard(name, artifact.weights.tensors, places)
        tensors.update(artifact.weights.tensors)
        findings += [finding for finding in artifact.findings if finding not in findings]
        digest.update(bytes.fromhex(artifact.sha256))
    identity = artifact.sha256 if len(names) == 1 else digest.hexdigest()
    try:
        return assemble(values, tensors, str(folder / CONFIG), identity, findings)
    except ConversionError as error:
        error.args = (f"{folder}: {error}",)
        raise


def _check_shard(name: str, tensors, places: dict[str, str]) -> None:
    announced = {tensor for tensor, file in places.items() if file == name}
    wrong = announced ^ set(tensors)
    if wrong:
        raise CorruptFileError(
            f"{name} and the index differ in {len(wrong)} tensors, such as {safe_repr(min(wrong))}"
        )
