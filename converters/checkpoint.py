"""Write and read a Flax checkpoint: `config.json` and the parameters as `params.safetensors`.

A checkpoint may come from anywhere, like any other model file: nothing in it is executed, and what
it says is checked field by field before a network is built from it.
"""

import dataclasses
import hashlib
import json
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from converters import families
from converters.containers import sniff
from converters.containers.safetensors_file import read_safetensors
from converters.conversion import MAX_TENSORS
from converters.errors import ConversionError, CorruptFileError, safe_repr
from converters.files import read_json, read_plain, write_atomic
from converters.limits import Limits
from converters.model import Model, NetworkConfig, param_shapes
from converters.preparation import PreparedConfig

VERSION = 1
CONFIG, PARAMS = "config.json", "params.safetensors"
# A family's takes 3 KB, the graph of a transformer 2 MB.
_MAX_CONFIG_BYTES = 16 * 2**20
_GRAPH = "graph"
_NUMBERS = {
    int: ("a whole number", 1, 2**24),
    float: ("a number", 1e-12, 1.0),
    bool: ("a truth value", False, True),
}


def save_checkpoint(model: Model, folder: str | Path, source_sha256: str | None = None) -> Path:
    """Write a model to a folder, which is made; files of an earlier checkpoint are replaced.

    `config.json` is written last and names the digest of the parameters, so a checkpoint that was
    interrupted or mixed is refused when it is read.

    Args:
      model: with float32 parameters, folded or not.
      folder: where to write.
      source_sha256: digest of the file the model was converted from.

    Returns:
      The folder.

    Raises:
      ConversionError: the parameters are not float32, or the configuration is of no family and no
        graph, or too large to be read back.
      OSError: it cannot be written, or holds something else; see `check_folder`.
    """
    from safetensors.numpy import save

    check_folder(folder)

    arrays = {path: np.asarray(value) for path, value in model.params.items()}
    kinds = {str(value.dtype) for value in arrays.values()} - {"float32"}
    if kinds:
        raise ConversionError(
            f"a checkpoint holds float32 parameters, got {', '.join(sorted(kinds))}; "
            "convert them with model.astype(numpy.float32)"
        )
    data = save(arrays)
    described = {
        "format_version": VERSION,
        **_described(model.config),
        "architecture": model.architecture,
        "params_sha256": hashlib.sha256(data).hexdigest(),
        "source_sha256": source_sha256,
        "findings": list(model.findings),
    }
    text = json.dumps(described, indent=1).encode() + b"\n"
    if len(text) > _MAX_CONFIG_BYTES:
        raise ConversionError(
            f"the graph takes {len(text)} bytes in {CONFIG}, a checkpoint holds at most"
            f" {_MAX_CONFIG_BYTES}; scan the original file"
        )
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / PARAMS, data)
    write_atomic(folder / CONFIG, text)
    return folder


def check_folder(folder: str | Path) -> None:
    """Check that no `config.json` of something else would be replaced, such as Hugging Face's.

    Raises:
      OSError: there is one that `save_checkpoint` did not write, or it cannot be read.
    """
    path = Path(folder) / CONFIG
    try:
        described = json.loads(read_plain(path, _MAX_CONFIG_BYTES))
    except FileNotFoundError:
        return
    except (ValueError, RecursionError):
        described = None
    if not isinstance(described, dict) or not {"format_version", "params_sha256"} <= set(described):
        raise FileExistsError(f"{path} is not that of a checkpoint: it names no format_version")


def _described(config) -> dict:
    """Family and configuration; a graph stands in for the family of other networks."""
    if isinstance(config, PreparedConfig):
        raise ConversionError(
            "a checkpoint holds a network without bounds, mean and std; open the file without them"
        )
    family = families.family_of(config)
    if family is not None:
        return {"family": family.name, "config": dataclasses.asdict(config)}
    from converters.graph.module import GraphConfig
    from converters.graph.stored import plain_of

    if not isinstance(config, GraphConfig):
        raise ConversionError(
            "a checkpoint holds a network of pictures, or a head over vectors, got a"
            f" {type(config).__name__}; one of texts is scanned from its own folder"
        )
    return {"family": _GRAPH, "config": plain_of(config)}


def load_checkpoint(folder: str | Path) -> Model:
    """Read a model that `save_checkpoint` wrote.

    Raises:
      LoadError: a file is missing, damaged, of another version, or the two do not belong together.
    """
    described = _read_config(Path(folder) / CONFIG)
    content = sniff.read_file(Path(folder) / PARAMS, Limits())
    if content.format != sniff.SAFETENSORS or content.sha256 != described["params_sha256"]:
        raise CorruptFileError(
            f"{content.path} is not the file that {CONFIG} describes; write the checkpoint again"
        )
    tensors, _ = read_safetensors(content.data, Limits())
    config = _config(described, tensors)
    _check_params(config, tensors)
    architecture, family = described["architecture"], families.family_of(config)
    if family is not None and architecture != family.architecture(config):
        raise CorruptFileError(
            f"{CONFIG} says {safe_repr(architecture)}, its network is a "
            f"{family.architecture(config)}"
        )
    params = {path: jnp.asarray(value) for path, value in tensors.items()}
    return Model(config, params, architecture, tuple(described["findings"]))


_FIELDS = {
    "format_version": int,
    "family": str,
    "architecture": str,
    "config": dict,
    "params_sha256": str,
    "source_sha256": str | None,
    "findings": list,
}


def _read_config(path: Path) -> dict:
    """The fields of `config.json`, each of its type."""
    described = read_json(path, _MAX_CONFIG_BYTES)
    if set(described) != set(_FIELDS):
        raise CorruptFileError(f"{path} must be an object with exactly {', '.join(_FIELDS)}")
    for name, kind in _FIELDS.items():
        if not isinstance(described[name], kind) or isinstance(described[name], bool):
            raise CorruptFileError(f"{path}: {name} is {safe_repr(described[name])}")
    if described["format_version"] != VERSION:
        raise CorruptFileError(
            f"{path} has format version {safe_repr(described['format_version'])}, expected "
            f"{VERSION}; "
            "convert the original file again"
        )
    if not all(isinstance(finding, str) for finding in described["findings"]):
        raise CorruptFileError(f"{path}: findings must be text")
    return described


def _config(described: dict, tensors: Mapping[str, np.ndarray]) -> NetworkConfig:
    """The configuration, once its numbers are known to be few and small."""
    if described["family"] == _GRAPH:
        from converters.graph.stored import config_of

        return config_of(described["config"])
    family = families.FAMILIES.get(described["family"])
    if family is None:
        raise CorruptFileError(
            f"{CONFIG} names family {safe_repr(described['family'])}, expected one of "
            f"{', '.join(families.FAMILIES)}"
        )
    if len(tensors) > MAX_TENSORS or _numbers(described["config"]) > len(tensors) + 16:
        # Every width in it is that of some convolution; building more would only stall us.
        raise CorruptFileError(f"{CONFIG} describes a larger network than {PARAMS} holds")
    return _decode(family.config, described["config"], "config")


def _numbers(value: object) -> int:
    # What is nested deeper than `MOST_LEVELS` has been refused, so plain recursion is safe.
    if isinstance(value, dict):
        value = list(value.values())
    return sum(map(_numbers, value)) if isinstance(value, list) else 1


def _decode(kind, value, where: str) -> Any:
    """JSON `value` as `kind`: a dataclass, tuple, choice, width, epsilon or truth value only."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        types = typing.get_type_hints(kind)
        hints = {field.name: types[field.name] for field in dataclasses.fields(kind)}
        if not isinstance(value, dict) or set(value) != set(hints):
            raise CorruptFileError(f"{where} must be an object with exactly {', '.join(hints)}")
        return kind(**{name: _decode(hints[name], value[name], name) for name in hints})
    if typing.get_origin(kind) is typing.Literal:
        return _decode_choice(typing.get_args(kind), value, where)
    if typing.get_origin(kind) is tuple:
        return _decode_tuple(typing.get_args(kind), value, where)
    named, least, most = _NUMBERS[kind]
    if type(value) is not kind or not least <= value <= most:
        raise CorruptFileError(
            f"{where} is {safe_repr(value)}, expected {named} from {least} to {most}"
        )
    return value


def _decode_choice(choices: tuple[str, ...], value, where: str) -> str:
    if not isinstance(value, str) or value not in choices:
        raise CorruptFileError(
            f"{where} is {safe_repr(value)}, expected one of {', '.join(choices)}"
        )
    return value


def _decode_tuple(kinds: tuple, value, where: str) -> tuple:
    if not isinstance(value, list):
        raise CorruptFileError(f"{where} is {safe_repr(value)}, expected a list")
    kinds = (kinds[0],) * len(value) if kinds[-1] is ... else kinds
    if len(kinds) != len(value):
        raise CorruptFileError(f"{where} has {len(value)} entries, expected {len(kinds)}")
    return tuple(_decode(kind, item, where) for kind, item in zip(kinds, value, strict=True))


def _check_params(config, tensors: Mapping[str, np.ndarray]) -> None:
    """Names, shapes, type and values are those of the configuration's network."""
    try:
        shapes = param_shapes(config)
    except (ValueError, ZeroDivisionError, TypeError, OverflowError, IndexError) as error:
        raise CorruptFileError(f"{CONFIG} describes no network: {error}") from error
    wrong = [
        path
        for path in (*shapes, *(set(tensors) - set(shapes)))
        if path not in tensors
        or path not in shapes
        or tensors[path].shape != shapes[path]
        or tensors[path].dtype != np.float32
        or not np.isfinite(tensors[path]).all()
    ]
    if wrong:
        raise CorruptFileError(
            f"{len(wrong)} parameters are missing, unknown, misshapen, not float32 or not finite, "
            f"the first is {safe_repr(min(wrong))}; write the checkpoint again"
        )
