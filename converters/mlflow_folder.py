"""MLflow's model folders, and `models:/NAME/VERSION`: which file of one is the network.

`MLmodel` is read as data: a folder says with which flavors it was saved and where their files lie.
Of those that run code to load (`python_function`, `sklearn`, pickled pipelines) nothing is run.
"""

import hashlib
import importlib.util
import os
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.errors import (
    ConverterError,
    CorruptFileError,
    LoadError,
    UnsupportedArchitectureError,
    safe_repr,
)
from converters.files import read_at_most, read_json
from converters.hub.folder import (
    COMPONENTS,
    CONFIG,
    MOST_CONFIG_BYTES,
    PROCESSORS,
    is_hub_folder,
    processor_home,
)
from converters.hub.redirections import MLFLOW, type_said

_MOST_ALIASES = 20
_MOST_BYTES = 2**16  # real ones take 1 to 3 KB
# A path has lost one of the two slashes that some write.
_ADDRESS = re.compile(r"models:/{1,2}[^/].*")
# Loads what another flavor describes.
_ANY = "python_function"
# Where a flavor says its path.
_PATHS = {
    "onnx": "data", "pytorch": "model_data", "transformers": "model_binary", _ANY: "data",
}  # fmt: skip
# With these MLflow takes weights of transformers from elsewhere, or changes them.
_ELSEWHERE = ("source_model_revision", "has_local_base_model_path", "peft_adaptor")
_TORCH_FILES = ("model.pt2", "model.pth")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "jaxtroj", "mlflow")
_TOKENIZER = COMPONENTS / "tokenizer"
# What may unpickle: without code of the folder's own these are as they are installed.
_UNPICKLERS = ("mlflow.pytorch.pickle_module", "pickle", "cloudpickle", "dill")
_ONE_OF = ", ".join(_UNPICKLERS)
_UNPICKLER = "pickle_module_info.txt"


@dataclass(frozen=True)
class MlflowModel:
    """Where the network of a folder lies.

    Attributes:
      path: of a model file, or of a Hugging Face folder.
      tokenizer: folder of the tokenizer of one of texts; None where there is none.
    """

    path: Path
    tokenizer: Path | None = None


def is_mlflow_folder(path: Path) -> bool:
    """Whether a folder is one of MLflow's."""
    return os.path.isfile(path / MLFLOW)  # of a folder that may not be entered it is False


def is_mlflow_address(text: str) -> bool:
    """Whether a text names a model of a registry.

    >>> is_mlflow_address("models:/net/3"), is_mlflow_address("models/net")
    (True, False)
    """
    return _ADDRESS.fullmatch(text) is not None


def model_of(folder: Path) -> MlflowModel:
    """The network of an MLflow folder.

    Raises:
      CorruptFileError: its `MLmodel` says nothing usable, or more than one network may be meant.
      UnsupportedArchitectureError: it was saved with none of the flavors that can be read.
    """
    flavors = _flavors(folder)
    found = [one for one in _candidates(folder, flavors) if _is_there(folder, one.path)]
    if not found:
        raise UnsupportedArchitectureError(
            f"{folder} was saved with {', '.join(map(safe_repr, flavors)) or 'no flavor'}; expected"
            " onnx, pytorch or transformers with their files. Nothing of it was run; log the"
            " network with mlflow.onnx or mlflow.pytorch"
        )
    other = next(_other_networks(folder, flavors, [one.path for one in found]), None)
    if other is not None:
        raise CorruptFileError(
            f"{folder} may be more than one network: {other}; expected one. Scan the file that is"
            " meant itself, or log that network again, alone"
        )
    return found[0]


def _is_there(folder: Path, path: Path) -> bool:
    inside = os.path.commonpath([folder.resolve(), path.resolve()])
    if inside != str(folder.resolve()):
        raise CorruptFileError(f"{folder / MLFLOW} names {path}, which lies outside")
    return path.exists()


def _candidates(folder: Path, flavors: dict[str, Any]) -> Iterator[MlflowModel]:
    if (onnx := _said(folder, flavors, "onnx")) is not None:
        yield MlflowModel(onnx)
    if (home := _said(folder, flavors, "pytorch")) is not None:
        yield from (MlflowModel(home / name) for name in _TORCH_FILES)
    if (binary := _said(folder, flavors, "transformers")) is not None:
        tokenizer = folder / _TOKENIZER
        yield MlflowModel(binary, tokenizer if tokenizer.is_dir() else None)


def _other_networks(folder: Path, flavors: dict[str, Any], found: list[Path]) -> Iterator[str]:
    """What some function of MLflow, or another reader, takes in place of the first found."""
    named = [name for name in flavors if name != _ANY]
    if len(named) > 1:  # each has its own `load_model`
        yield f"MLmodel names the flavors {' and '.join(map(safe_repr, named))}"
    if len(found) > 1:  # MLflow prefers model.pth, and before it knew the other read only that
        yield f"it holds {' and '.join(map(str, found))}"
    if is_hub_folder(folder) and found[0].resolve() != folder.resolve():
        yield f"MLmodel names {found[0]}, and config.json the weights beside it"
    yield from _own_code(folder, flavors)
    yield from _loaded_otherwise(folder, flavors, named[0], found[0])
    if named[0] == "pytorch":
        yield from _unpickled_otherwise(flavors, found[0].parent)
    if named[0] == "transformers":
        yield from _made_otherwise(flavors[named[0]], found[0])
        yield from _prepared_otherwise(folder, flavors[named[0]], found[0])


def _own_code(folder: Path, flavors: dict[str, Any]) -> Iterator[str]:
    """MLflow puts a folder's modules first, before torch's and transformers' of the same names."""
    for values in flavors.values():
        said = values.get("code") if isinstance(values, dict) else None
        if said and not (isinstance(said, str) and _is_empty(folder / said)):
            yield f"MLmodel has modules loaded from {safe_repr(said)}, which may change what it is"


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and next(folder.iterdir(), None) is None


def _unpickled_otherwise(flavors: dict[str, Any], home: Path) -> Iterator[str]:
    """Modules that unpickle a network, if they are none of those that all know."""
    said = [values.get("pickle_module_name") for values in flavors.values() if values]
    if os.path.lexists(home / _UNPICKLER):
        said.append(read_at_most(home / _UNPICKLER, _MOST_BYTES).decode("utf-8", "replace").strip())
    for name in said:
        if name is not None and name not in _UNPICKLERS:
            yield f"the module {safe_repr(name)} unpickles it, expected one of {_ONE_OF}"


def _loaded_otherwise(
    folder: Path, flavors: dict[str, Any], flavor: str, found: Path
) -> Iterator[str]:
    """What `mlflow.pyfunc` loads, if that is not the network of the flavor."""
    if not isinstance(flavors.get(_ANY), dict):
        return
    loader = flavors[_ANY].get("loader_module")
    if loader != f"mlflow.{flavor}":
        yield f"mlflow.pyfunc loads it by {safe_repr(loader)}, expected mlflow.{flavor}"
    path = _said(folder, flavors, _ANY)
    # Old folders name the file of torch; those of transformers name no path.
    usual = [None] if flavor == "transformers" else [_said(folder, flavors, flavor), found]
    if path not in usual:
        yield f"mlflow.pyfunc loads {path or folder}, not {found}"


def _made_otherwise(values: dict[str, Any], found: Path) -> Iterator[str]:
    """What of transformers MLflow makes that is not what its folder of weights describes."""
    yield from (f"MLmodel says {key}, other weights" for key in _ELSEWHERE if key in values)
    if not (found / CONFIG).exists():
        return
    config = read_json(found / CONFIG, MOST_CONFIG_BYTES)
    said, kind = values.get("pipeline_model_type"), values.get("torch_dtype")
    if said is not None and config.get("architectures") != [said]:
        yield f"MLmodel says that {found} is a {safe_repr(said)}, its {CONFIG} says otherwise"
    # MLflow has weights loaded in its own type, which rounds those of a wider one.
    if kind not in (None, "torch.float32", f"torch.{type_said(config)}"):
        yield f"MLmodel says weights of {safe_repr(kind)}, its {CONFIG} says otherwise"


def _prepared_otherwise(folder: Path, values: dict[str, Any], found: Path) -> Iterator[str]:
    """Tokenizers and processors of another class than their own files name."""
    tokenizer, processor = folder / _TOKENIZER, processor_home(found)
    if tokenizer.is_dir():
        yield from _of_other_class(values.get("tokenizer_type"), _tokenizer_class(tokenizer))
    if processor != found:
        yield from _of_other_class(
            values.get(f"{processor.name}_type"), _processor_class(processor)
        )


def _of_other_class(said: Any, own: str | None) -> Iterator[str]:
    if said is not None and own is not None and _plain(str(said)) != _plain(own):
        yield f"MLmodel has a {safe_repr(said)} made of the files of a {own}"


def _tokenizer_class(home: Path) -> str | None:
    """The class by which a tokenizer is read here; None where reading it will refuse it."""
    from converters.encoders.tokenizer import class_name

    try:
        return class_name(home)
    except (ConverterError, OSError):
        return None


def _processor_class(home: Path) -> str | None:
    """The class that a processor's config names."""
    path = next((home / name for name in PROCESSORS if (home / name).exists()), None)
    values = {} if path is None else read_json(path, MOST_CONFIG_BYTES)
    named = values.get("image_processor_type", values.get("feature_extractor_type"))
    return named if isinstance(named, str) else None


def _plain(name: str) -> str:
    """A class under the name that all its kinds have."""
    return name.removesuffix("Fast").replace("FeatureExtractor", "ImageProcessor")


def _said(folder: Path, flavors: dict[str, Any], flavor: str) -> Path | None:
    """The path that a flavor names in its folder; None where it names none."""
    values, key = flavors.get(flavor), _PATHS[flavor]
    said = values.get(key) if isinstance(values, dict) else None
    if said is None:
        return None
    if not isinstance(said, str) or not said or Path(said).is_absolute() or ".." in said:
        raise CorruptFileError(
            f"{folder / MLFLOW}: {key} of {flavor} is {safe_repr(said)}, expected a path within"
        )
    return folder / said


def _flavors(folder: Path) -> dict[str, Any]:
    import yaml

    path = folder / MLFLOW
    data = read_at_most(path, _MOST_BYTES)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _refuse_doubling(yaml.parse(data, Loader=loader), path)
        values = yaml.load(data, Loader=loader)
    except CorruptFileError:
        raise
    except Exception as error:  # its constructors raise whatever a value leads them to
        raise CorruptFileError(f"{path} is no YAML: {safe_repr(str(error)[:200])}") from error
    flavors = values.get("flavors") if isinstance(values, dict) else None
    if not isinstance(flavors, dict):
        raise CorruptFileError(f"{path} names no flavors, expected MLflow's description of a model")
    return {str(name): value for name, value in flavors.items()}


def _refuse_doubling(events: Iterable[Any], path: Path) -> None:
    """Raise CorruptFileError where a few lines may stand for gigabytes: this is read without
    limits, merge keys double in older PyYAML, and aliases do where a value is shown."""
    import yaml

    aliases = 0
    for event in events:
        aliases += isinstance(event, yaml.AliasEvent)
        is_merge = isinstance(event, yaml.ScalarEvent) and event.value == "<<"
        if is_merge or aliases > _MOST_ALIASES:
            what = "a merge key <<" if is_merge else f"more than {_MOST_ALIASES} aliases"
            raise CorruptFileError(f"{path} holds {what}, expected plain YAML as MLflow writes it")


def fetch_model(address: str) -> Path:
    """The folder of a registered model, by mlflow's own client, in the user's cache folder.

    Its tracking and registry are those of `MLFLOW_TRACKING_URI` and `MLFLOW_REGISTRY_URI`; see
    `converters.fetching` for a limit of time.

    Raises:
      LoadError: mlflow is not installed, or the registry has no such model.
    """
    if importlib.util.find_spec("mlflow") is None:
        raise LoadError(
            f"{address} is a model of an MLflow registry, and mlflow is not installed here; install"
            " jaxtroj[mlflow], or download the model and name its folder"
        )
    with warnings.catch_warnings():  # of its own parts, which nobody here can mend
        warnings.simplefilter("ignore")
        return _downloaded(address)


def _downloaded(address: str) -> Path:
    import mlflow  # pyright: ignore[reportMissingImports]

    # A path of this name has one slash; mlflow wants one, too.
    uri = re.sub(r"^models:/+", "models:/", address)
    where = f"{mlflow.get_tracking_uri()} {mlflow.get_registry_uri()} {uri}"
    home = _CACHE / hashlib.sha256(where.encode()).hexdigest()[:16]
    try:
        home.mkdir(parents=True, exist_ok=True)
        return Path(mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=str(home)))
    except Exception as error:  # of its many stores, each with faults of its own
        raise LoadError(
            f"cannot fetch {uri} ({type(error).__name__}: {safe_repr(str(error)[:300])}); see"
            " MLFLOW_TRACKING_URI and MLFLOW_REGISTRY_URI"
        ) from error
