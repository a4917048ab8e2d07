"""`open_model`: any supported file to a Model, by what is in it.

Weights under the names of a family become that family's network; ONNX files and exported programs
are captured as graphs.
"""

import hashlib
import mmap
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters.artifact import Artifact, artifact_of
from converters.containers import sniff
from converters.containers.claims import refuse_second_container
from converters.containers.exported_file import is_exported, read_exported
from converters.containers.onnx_wire import external_files, is_onnx
from converters.errors import (
    ConversionError,
    ConverterError,
    CorruptFileError,
    LoadError,
    TooLargeError,
    safe_repr,
)
from converters.hub.folder import is_hub_folder, read_hub_folder
from converters.input_form import NOTHING_SAID, ImageInput, InputForm, image_input
from converters.limits import EXTERNAL_BYTES, ONNX_BYTES, Limits
from converters.user_code import NetworkCode

if TYPE_CHECKING:
    from converters.hub.processor import FolderForm
    from converters.model import Model

ONNX, EXPORTED, HUB = "onnx", "exported program", "hub folder"
_FROM_GRAPHS = (
    *(RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError),
    *(ArithmeticError, NotImplementedError),
)


@dataclass(frozen=True)
class OpenedModel:
    """A model and the file it came from.

    Attributes:
      model: ready for scanning.
      sha256: hexadecimal digest of the file; see `ModelFile`.
      format: "onnx", "exported program" or what `converters.Artifact` names.
      findings: what a reader should know: what was guessed, removed or left out.
      folder_form: how its folder wants pictures, of one that says so.
      class_names: what its folder calls its classes, in their order; empty where none does.
    """

    model: "Model"
    sha256: str
    format: str
    findings: tuple[str, ...]
    folder_form: "FolderForm | None" = None
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelFile:
    """A file that was read and not converted yet.

    Attributes:
      path: where it is.
      format: "onnx", "exported program", "hub folder" or what `converters.Artifact` names.
      sha256: hexadecimal digest of the file; of a folder, of all files that decide its network, see
        `HubFolder.sha256`; of an ONNX file with external tensors, of the digests of all its files.
      content: an `Artifact`, a `torch.export.ExportedProgram`, a `HubFolder`, or for ONNX the
        stamps of its files, since such files are parsed where they lie.
    """

    path: Path
    format: str
    sha256: str
    content: Any


def open_model(
    path: str | os.PathLike[str],
    form: InputForm = NOTHING_SAID,
    *,
    usual_size: tuple[int, int] | None = None,
    limits: Limits | None = None,
) -> OpenedModel:
    """Read and convert a model file; its format is told by content, nothing in it is executed.

    Args:
      path: the file, or a Hugging Face folder of a classifier of images or texts.
      form: what it does not say.
      usual_size: height and width of the pictures at hand, taken where neither the file nor `form`
        says a size; 224 x 224 by default.
      limits: caps on files that are not ONNX.

    Raises:
      LoadError: the file cannot be read safely.
      ConversionError: it holds no supported network, or `form` does not fit it; of the class
        SharedNamesError where it holds one of several, and `form` does not say which.
    """
    return convert_file(read_model(path, limits), form, usual_size)


def read_model(path: str | os.PathLike[str], limits: Limits | None = None) -> ModelFile:
    """The first half of `open_model`; raises LoadError, and UnsupportedOperatorError."""
    path, limits = Path(path), limits or Limits()
    if is_hub_folder(path):
        folder = read_hub_folder(path)
        return ModelFile(path, HUB, folder.sha256, folder)
    if is_onnx(path):
        return _onnx_file(path)
    content = sniff.read_file(path, limits)
    try:
        if content.format == sniff.TORCH_ZIP and is_exported(content.data, limits):
            program = read_exported(content.data, limits)
            return ModelFile(path, EXPORTED, content.sha256, program)
    except ConverterError as error:
        error.digest = content.sha256
        raise
    return ModelFile(path, content.format, content.sha256, artifact_of(content, limits))


def convert_file(
    file: ModelFile,
    form: InputForm = NOTHING_SAID,
    usual_size: tuple[int, int] | None = None,
    code: NetworkCode | None = None,
) -> OpenedModel:
    """The second half of `open_model`; raises ConversionError, and LoadError of ONNX files.

    Args:
      file, form, usual_size: see there.
      code: of the network whose weights the file holds; it is run.
    """
    try:
        if code is not None:
            return _from_code(file, form, usual_size, code)
        return _converted(file, form, usual_size)
    except ConverterError as error:
        error.digest = file.sha256
        raise


def _converted(file: ModelFile, form: InputForm, usual_size: tuple[int, int] | None) -> OpenedModel:
    if file.format == HUB:
        return _from_hub(file, form, usual_size)
    if file.format not in (ONNX, EXPORTED):
        model = _from_weights(file, form, usual_size)
        return OpenedModel(model, file.sha256, file.format, model.findings)
    from_graph = _from_onnx if file.format == ONNX else _from_exported
    try:
        model = from_graph(file, form, usual_size)
    except MemoryError as error:
        raise TooLargeError("the network takes more memory than there is") from error
    except _FROM_GRAPHS as error:
        # A graph may ask torch and jax for anything; what they raise is the file's doing.
        raise ConversionError(
            f"the network cannot be run: {type(error).__name__}: {safe_repr(str(error)[:300])}"
        ) from error
    return OpenedModel(model, file.sha256, file.format, model.findings)


def _from_weights(file: ModelFile, form: InputForm, usual: tuple[int, int] | None) -> "Model":
    """Weights of a family, or of a network that is rebuilt."""
    from converters.conversion import convert

    if form.output is not None:
        raise ConversionError(
            f"the network has one output; it has none named {safe_repr(form.output)}"
        )
    if form.layout == "NHWC":
        raise ConversionError("torch's networks take NCHW; leave the layout out")
    return convert(file.content, form, usual)


def _from_code(
    file: ModelFile, form: InputForm, usual: tuple[int, int] | None, code: NetworkCode
) -> OpenedModel:
    """Weights, and a network that the user's code makes."""
    from converters.user_network import user_model

    if not isinstance(file.content, Artifact):
        raise ConversionError(f"{file.format} holds the whole network; leave --network out")
    model = user_model(file.content, code, form, usual)
    return OpenedModel(model, file.sha256, file.format, model.findings)


def _from_hub(file: ModelFile, form: InputForm, usual: tuple[int, int] | None) -> OpenedModel:
    from converters.encoders.classifier import head_of
    from converters.encoders.text_folder import text_model
    from converters.hub.classifier import hub_model

    if head_of(file.content.config) is not None:
        model = text_model(file.content, form)
        return OpenedModel(model, file.sha256, file.format, model.findings)
    found = hub_model(file.content, form, usual)
    model = found.model
    more = (found.form, found.class_names)
    return OpenedModel(model, file.sha256, file.format, model.findings, *more)


def _from_onnx(file: ModelFile, form: InputForm, usual: tuple[int, int] | None) -> "Model":
    from converters.graph.onnx import load_onnx

    model = load_onnx(file.path, form, usual)
    if _stamps(file.path) != file.content:
        raise CorruptFileError(f"{file.path} changed while it was read")
    return model


def _stamps(path: Path) -> tuple[tuple[int, ...], ...]:
    """What changes when an ONNX file, or one that holds its tensors, is written or replaced."""
    found = [os.stat(one) for one in (path, *_external(path))]
    return tuple((info.st_ino, info.st_size, info.st_mtime_ns) for info in found)


def _external(path: Path) -> list[Path]:
    """Files of an ONNX file's tensors, as far as there are any; what is not is refused later."""
    return [one for one in external_files(path) if stat.S_ISREG(_mode(one))]


def _mode(path: Path) -> int:
    try:
        return os.lstat(path).st_mode
    except (OSError, ValueError):
        return 0


def _onnx_digest(path: Path, own: str) -> str:
    """A file's own digest, or where its tensors lie outside that of all digests, in order."""
    others = []
    for outside in _external(path):
        with open(outside, "rb") as file:
            others.append(hashlib.file_digest(file, "sha256").digest())
    joined = bytes.fromhex(own) + b"".join(others)
    return hashlib.sha256(joined).hexdigest() if others else own


def _refuse_large(path: Path) -> None:
    """Raise TooLargeError before an ONNX file's digest, which takes a second for each GiB."""
    external = ((one, "external_bytes", EXTERNAL_BYTES) for one in _external(path))
    for one, name, most in ((path, "file_bytes", ONNX_BYTES), *external):
        if (size := os.stat(one).st_size) > most:
            raise TooLargeError(
                f"{one} has {size} bytes, more than OnnxLimits.{name} = {most}; expected weights"
                " in external data, split over several files where they are larger"
            )


def _onnx_file(path: Path) -> ModelFile:
    try:
        _refuse_large(path)
        stamps = _stamps(path)
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                refuse_second_container(content, "ONNX file")
        digest = _onnx_digest(path, digest)
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror}; check the path") from error
    except CorruptFileError as error:
        error.args, error.digest = (f"{path}: {error}",), digest
        raise
    return ModelFile(path, ONNX, digest, stamps)


def _from_exported(file: ModelFile, form: InputForm, usual: tuple[int, int] | None) -> "Model":
    from converters.containers.generated_code import checked_code
    from converters.graph.classifier import classifier
    from converters.graph.export import from_exported
    from converters.graph.export_batches import batch_findings
    from converters.graph.export_inputs import byte_form
    from converters.graph.export_outputs import returned_names
    from converters.graph.outputs import output_of

    program = file.content
    image = _input_of(program, form, usual)
    form, said = byte_form(_image_node(program).meta["val"].dtype, image.name, form)
    names = returned_names(program)
    with checked_code():
        captured = from_exported(program, [_zeros(program, image.shape)])
    output, taken = output_of(captured, form.output, [name for name in names if name is not None])
    place = [k for k, name in enumerate(names) if name is not None][output]
    batches = batch_findings(program, image.shape, image.layout.index("N"), place)
    findings = (*image.findings, *said, *taken, *batches)
    return classifier(captured, form, findings, image.layout, output)


def _image_node(program):
    """The graph's node of the one input."""
    names = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.nodes if node.name in names]
    if len(nodes) != 1 or len(names) != 1 or not hasattr(nodes[0].meta.get("val"), "shape"):
        raise ConversionError(
            f"the exported program takes {len(names)} inputs, expected one, a batch of images"
        )
    return nodes[0]


def _zeros(program, shape: tuple[int, ...]):
    import torch

    return torch.zeros(shape, dtype=_image_node(program).meta["val"].dtype)


def _input_of(program, form: InputForm, usual: tuple[int, int] | None) -> ImageInput:
    node = _image_node(program)
    declared = [n if isinstance(n, int) else None for n in node.meta["val"].shape]
    return image_input(str(node.name), declared, form.layout, form.image_size, usual)
