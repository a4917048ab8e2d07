"""A model file with other values for its weights: the same names, shapes and format.

ONNX files are written as ONNX, with every weight inside; torch's files and safetensors as
safetensors, which execute nothing when they are read.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converters import families
from converters.artifact import Artifact
from converters.batch_norms import norm_paths
from converters.containers.onnx_wire import is_onnx
from converters.errors import ConversionError
from converters.families.names import to_torch
from converters.graph.module import GraphConfig, attribute_of
from converters.graph.trainable import weights_of
from converters.hub.folder import is_hub_folder
from converters.inner_network import inner_network
from converters.input_form import NOTHING_SAID, InputForm
from converters.model import Model, Params
from converters.opening import ONNX, convert_file, read_model
from converters.user_code import NetworkCode
from converters.weights import contiguous

Values = Mapping[str, np.ndarray]
"""Flat path of a parameter -> array."""


@dataclass(frozen=True)
class Rewritable:
    """An opened model whose weights can be replaced.

    Attributes:
      model: as `open_model` gives it; of ONNX always a graph, whose names are the file's.
      sha256: of the file.
      suffix: of the file that is written, such as ".onnx".
      weights: flat paths of the parameters that training may change: weights, see
        `graph.trainable`, which the file names.
      contents: bytes of the file with these parameters in the place of its own; those that the
        file does not name must be unchanged.
    """

    model: Model
    sha256: str
    suffix: str
    weights: frozenset[str]
    contents: Callable[[Values], bytes]


def suffix_of(path: Path, code: NetworkCode | None = None) -> str:
    """The suffix of the file that is written for this one; see `open_rewritable`."""
    return ".onnx" if code is None and not is_hub_folder(path) and is_onnx(path) else ".safetensors"


def open_rewritable(
    path: Path,
    form: InputForm = NOTHING_SAID,
    usual_size: tuple[int, int] | None = None,
    code: NetworkCode | None = None,
) -> Rewritable:
    """Open a model file to write it again with other weights.

    Args:
      path, form, usual_size: as `open_model` takes them.
      code: of the network whose weights the file holds; it is run.

    Raises:
      LoadError, ConversionError: as `open_model`, and for formats that are not written.
    """
    file = read_model(path)
    if file.format == ONNX and code is None:
        return _onnx(path, file.sha256, form, usual_size)
    if not isinstance(file.content, Artifact) and code is None:
        raise ConversionError(
            f"{path} is a {file.format}; weights are written back to ONNX files, and as safetensors"
            " for torch's files: save the network as one of those"
        )
    model = convert_file(file, form, usual_size, code).model
    artifact = file.content

    def contents(values: Values) -> bytes:
        return _safetensors(artifact, model, values)

    weights = frozenset(model.params)
    if isinstance(model.config.core, GraphConfig):
        named = _places(artifact.weights.tensors, model.params)
        weights = _weights(model.config.core, model.params, named.values())
    return Rewritable(model, file.sha256, ".safetensors", weights, contents)


def _onnx(
    path: Path, sha256: str, form: InputForm, usual_size: tuple[int, int] | None
) -> Rewritable:
    from converters.graph.onnx.load import load_named
    from converters.graph.onnx.rewrite import with_weights

    model, names = load_named(path, form, usual_size)
    config = model.config.core
    assert isinstance(config, GraphConfig), "as `load_named` makes it"
    weights = _weights(config, model.params, names)
    learnt = weights.union(*norm_paths(model))

    def contents(values: Values) -> bytes:
        # Constants stay as they are stored, whatever their type is. What is learnt is always
        # written, so that a first try meets what cannot be.
        new = {n: v for n, v in values.items() if n in learnt or _differs(v, model.params[n])}
        return with_weights(path, {names.get(name, name): value for name, value in new.items()})

    return Rewritable(model, sha256, ".onnx", weights, contents)


def _weights(config: GraphConfig, params: Params, named: Iterable[str]) -> frozenset[str]:
    """Flat paths of a graph's weights, of those among `named`."""
    flat = {name: attribute_of(name) for name, _ in config.graph.params}
    found = weights_of(config.graph, {name: params[path] for name, path in flat.items()})
    return frozenset(flat[name] for name in found).intersection(named)


def _safetensors(artifact: Artifact, model: Model, values: Values) -> bytes:
    from safetensors.numpy import save

    tensors = {name: contiguous(value) for name, value in artifact.weights.tensors.items()}
    changed = _torch_tensors(tensors, model, values)
    return save({**tensors, **changed})


def _torch_tensors(tensors: Values, model: Model, values: Values) -> dict[str, np.ndarray]:
    config = model.config.core
    if isinstance(config, GraphConfig):
        return _named_as_in_graph(tensors, model, values)
    family = families.family_of(config)
    if family is None:
        raise ConversionError(f"{model.architecture} is of no family; save it as ONNX")
    inner = inner_network(tensors, {})
    current = families.current_names(inner.of(tensors))
    names = dict(zip(current, inner.names, strict=True))
    shapes = {name: tuple(value.shape) for name, value in current.items()}
    found = to_torch(family.table, shapes, values)
    return {names[name]: _alike(value, tensors[names[name]]) for name, value in found.items()}


def _named_as_in_graph(tensors: Values, model: Model, values: Values) -> dict[str, np.ndarray]:
    """Tensors of the file from a graph's parameters; raises where a changed one has no place."""
    places = _places(tensors, values)
    unwritten = values.keys() - set(places.values())
    lost = sorted(name for name in unwritten if _differs(values[name], model.params[name]))
    if lost:
        raise ConversionError(
            f"the file has no weights named {', '.join(lost[:4])}, which were changed; save the"
            " network as ONNX, where every weight has a name"
        )
    return {name: _alike(values[place], tensors[name]) for name, place in places.items()}


def _places(tensors: Values, params: Container[str]) -> dict[str, str]:
    """Name of a tensor of the file -> the parameter of a graph that it is.

    Parameters may lack first names that all tensors have, and have the names that are current.
    """
    first = next(iter(tensors), "").partition(".")[0] + "."
    shared = first if all(name.startswith(first) for name in tensors) else ""
    inner = inner_network(tensors, {}).names
    names = zip(tensors, families.current_names(tensors), strict=True)
    return {
        name: place
        for name, current in names
        for own in (name, name.removeprefix(shared), inner.get(name, name), current)
        if (place := attribute_of(own)) in params
    }


def _differs(value: np.ndarray, old: object) -> bool:
    return not np.array_equal(np.asarray(value), np.asarray(old), equal_nan=True)


def _alike(value: np.ndarray, old: np.ndarray) -> np.ndarray:
    return contiguous(np.asarray(value).astype(old.dtype))
