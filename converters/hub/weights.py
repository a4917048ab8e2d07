"""Weights of Hugging Face folders: safetensors or torch files, whole or sharded, read as data.

Layout: "Save" and "Sharded checkpoints" of the transformers documentation.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from converters.artifact import Artifact, open_artifact
from converters.containers.sniff import SAFETENSORS
from converters.errors import CorruptFileError, TooLargeError, UnknownFormatError, safe_repr
from converters.files import read_json

# In transformers' order of preference.
WHOLE = ("model.safetensors", "pytorch_model.bin")
INDEX = tuple(f"{name}.index.json" for name in WHOLE)
_MAX_INDEX_BYTES = 2**24
_TIES = "tied tensors were left out: transformers does not read that metadata"
Tensors = Mapping[str, np.ndarray]
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
    """Names of a folder's weight files in all forms, indices before their shards."""
    return [name for form in _forms(folder) for name in form]


def _forms(folder: Path) -> Iterator[list[str]]:
    """The weights of a folder in each form that it has them in, transformers' choice first."""
    for name, index in zip(WHOLE, INDEX, strict=True):
        if (folder / name).exists():
            yield [name]
        if (folder / index).exists():
            yield [index, *sorted(set(_places(folder / index).values()))]


def read_weights(folder: Path) -> FolderWeights:
    """All tensors of a folder.

    Raises:
      LoadError: a file is missing, damaged or unsafe, contradicts the index, or there are weights
        of other values in another form, which some versions of transformers load.
    """
    forms = [*_forms(folder)]
    if not forms:
        raise UnknownFormatError(
            f"{folder} has no weights; expected one of {', '.join((*WHOLE, *INDEX))}"
        )
    found = _read(folder, forms[0])
    for form in forms[1:]:
        _refuse_difference(folder, forms[0][0], found.tensors, form[0], _read(folder, form).tensors)
        said = f"{forms[0][0]} and {form[0]} hold the same weights"
        found = replace(found, findings=(*found.findings, said))
    return found


def _refuse_difference(folder: Path, name: str, ours: Tensors, other: str, theirs: Tensors) -> None:
    """Compare weights in two forms; what one leaves out must be positions, or twice in the other.

    transformers writes tied weights once to safetensors, and older versions wrote positions.
    """
    for one, two in ((ours, theirs), (theirs, ours)):
        known = {_bits(tensor) for tensor in two.values()}
        for key, tensor in one.items():
            is_same = _bits(tensor) == _bits(two[key]) if key in two else _bits(tensor) in known
            if not is_same and not (key not in two and tensor.dtype.kind in "iub"):
                raise CorruptFileError(
                    f"{folder}: {name} and {other} hold different weights, for one at"
                    f" {safe_repr(key)}. Some versions of transformers load the one, others the"
                    " other; expected one of both: take away the one that is not meant"
                )


def _bits(tensor: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    digest = hashlib.sha256(np.ascontiguousarray(tensor).tobytes()).digest()
    return str(tensor.dtype), tensor.shape, digest


def _read(folder: Path, names: list[str]) -> FolderWeights:
    """The weights in one form."""
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
        own = _stored(artifact)
        if places is not None:
            _check_shard(name, own, places)
        tensors.update(own)
        said = (*artifact.findings, *([_TIES] if len(own) < len(artifact.weights.tensors) else []))
        findings += [finding for finding in said if finding not in findings]
        digests[name] = artifact.sha256
    joined = hashlib.sha256(bytes.fromhex("".join(digests.values()))).hexdigest()
    identity = digests[names[0]] if len(names) == 1 else joined
    return FolderWeights(tensors, tuple(findings), identity, digests)


def _stored(artifact: Artifact) -> Tensors:
    """The tensors that stand in a file, without those that safetensors' metadata ties to them.

    These are the same array once more, and come last.
    """
    tensors = artifact.weights.tensors
    if artifact.format != SAFETENSORS:
        return tensors
    first: dict[int, str] = {}
    for name, tensor in tensors.items():
        first.setdefault(id(tensor), name)
    return {name: tensors[name] for name in first.values()}


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
