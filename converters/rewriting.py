"""A model file with other values for its weights: the same names, shapes and format.

ONNX files are written as ONNX, with every weight inside; torch's files and safetensors as
safetensors, which execute nothing when they are read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from converters import families
from converters.artifact import Artifact
from converters.conversion import first_name, without
from converters.errors import ConversionError
from converters.families.names import to_torch
from converters.graph.module import GraphConfig, attribute_of
from converters.input_form import NOTHING_SAID, InputForm
from converters.model import Model
from converters.opening import ONNX, convert_file, read_model
from converters.user_code import NetworkCode

Values = Mapping[str, np.ndarray]
"""Flat path of a parameter -> array."""


@dataclass(frozen=True)
class Rewritable:
    """An opened model whose weights can be replaced.

    Attributes:
      model: as `open_model` gives it; of ONNX always a graph, whose names are the file's.
      sha256: of the file.
      suffix: of the file that is written, such as ".onnx".
      contents: bytes of the file with these parameters in the place of its own; those that the
        file does not name must be unchanged.
    """

    model: Model
    sha256: str
    suffix: str
    contents: Callable[[Values], bytes]


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
        from converters.graph.onnx.load import load_named
        from converters.graph.onnx.rewrite import with_weights

        model, names = load_named(path, form, usual_size)

        def contents(values: Values) -> bytes:
            return with_weights(path, {names[name]: value for name, value in values.items()})

        return Rewritable(model, file.sha256, ".onnx", contents)
    if not isinstance(file.content, Artifact) and code is None:
        raise ConversionError(
            f"{path} is a {file.format}; weights are written back to ONNX files, and as safetensors"
            " for torch's files: save the network as one of those"
        )
    model = convert_file(file, form, usual_size, code).model
    artifact = file.content
    return Rewritable(
        model, file.sha256, ".safetensors", lambda values: _safetensors(artifact, model, values)
    )


def _safetensors(artifact: Artifact, model: Model, values: Values) -> bytes:
    from safetensors.numpy import save

    tensors = {name: _contiguous(value) for name, value in artifact.weights.tensors.items()}
    changed = _torch_tensors(tensors, model, values)
    return save({**tensors, **changed})


def _torch_tensors(tensors: Values, model: Model, values: Values) -> dict[str, np.ndarray]:
    config = model.config.core
    if isinstance(config, GraphConfig):
        return _named_as_in_graph(tensors, model, values)
    family = families.family_of(config)
    if family is None:
        raise ConversionError(f"{model.architecture} is of no family; save it as ONNX")
    current = families.current_names(without(first_name(tensors, {}), tensors))
    names = dict(zip(current, tensors, strict=True))
    shapes = {name: tuple(value.shape) for name, value in current.items()}
    found = to_torch(family.table, shapes, values)
    return {names[name]: _alike(value, tensors[names[name]]) for name, value in found.items()}


def _named_as_in_graph(tensors: Values, model: Model, values: Values) -> dict[str, np.ndarray]:
    """Tensors of the file from a graph's parameters.

    Their names may lack a common first one, and are those that are current.
    """
    first = next(iter(tensors), "").partition(".")[0] + "."
    common = first if all(name.startswith(first) for name in tensors) else ""
    found, written = {}, set()
    for (name, tensor), current in zip(
        tensors.items(), families.current_names(tensors), strict=True
    ):
        for own in (name, name.removeprefix(common), current):
            if (place := attribute_of(own)) in values:
                found[name] = _alike(values[place], tensor)
                written.add(place)
    lost = sorted(n for n in set(values) - written if _differs(values[n], model.params[n]))
    if lost:
        raise ConversionError(
            f"the file has no weights named {', '.join(lost[:4])}, which were changed; save the"
            " network as ONNX, where every weight has a name"
        )
    return found


def _differs(value: np.ndarray, old: object) -> bool:
    return not np.array_equal(np.asarray(value), np.asarray(old))


def _alike(value: np.ndarray, old: np.ndarray) -> np.ndarray:
    return _contiguous(np.asarray(value).astype(old.dtype))


def _contiguous(value: np.ndarray) -> np.ndarray:
    """The same numbers one after the other; NumPy gives a single number an axis, here it has none.

    >>> _contiguous(np.float32(3)).shape
    ()
    """
    return np.ascontiguousarray(value).reshape(np.shape(value))
