"""`open_model`: any supported file to a Model, by what is in it.

Weights under the names of a family become that family's network; ONNX files and exported programs
are captured as graphs.
"""

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters import sniff
from converters.errors import ConversionError, CorruptFileError, LoadError, shown
from converters.exported_file import is_exported, read_exported
from converters.limits import Limits
from converters.onnx_wire import is_onnx

if TYPE_CHECKING:
    from converters.model import Model

ONNX, EXPORTED = "onnx", "exported program"
LAYOUTS = ("NCHW", "NHWC")
USUAL_SIZE = (224, 224)
_UNPREPARED = (
    "the file does not say how pixels are prepared; values from 0 to 1 without normalisation were "
    "assumed"
)


@dataclass(frozen=True)
class InputForm:
    """What a model file does not say of its input and output; None where the default will do.

    Attributes:
      layout: order of the input's axes, one of `LAYOUTS`; guessed from the channels by default.
      bounds: values that pixels 0 and 1 have for the network; (0, 1) by default.
      mean: per channel in the network's order, or one for all; subtracted from pixels in `bounds`.
      std: the same, what pixels are divided by then.
      output: name of the output with the logits; the first by default.
      image_size: height and width in pixels where a file leaves them open.

    Raises:
      ConversionError: a value is none of those; all such values are named.
    """

    layout: str | None = None
    bounds: tuple[float, float] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    output: str | None = None
    image_size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        problems = []
        if self.layout not in (None, *LAYOUTS):
            problems.append(f"layout must be one of {', '.join(LAYOUTS)}, got {shown(self.layout)}")
        if self.bounds is not None and not _are_bounds(self.bounds):
            problems.append(f"bounds must be two different finite numbers, got {self.bounds}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and not (values and all(map(math.isfinite, values))):
                problems.append(f"{name} must be finite numbers, one for each channel")
        if self.std is not None and not all(value > 0 for value in self.std):
            problems.append(f"std must be above 0, got {self.std}")
        if self.image_size is not None and not all(1 <= n <= 4096 for n in self.image_size):
            problems.append(f"image_size must be from 1 to 4096 pixels, got {self.image_size}")
        if problems:
            raise ConversionError("; ".join(problems))

    @property
    def says_pixels(self) -> bool:
        """Whether it says how pixels are prepared."""
        return (self.bounds, self.mean, self.std) != (None, None, None)


def _are_bounds(bounds: Sequence[float]) -> bool:
    return len(bounds) == 2 and all(map(math.isfinite, bounds)) and bounds[0] != bounds[1]


@dataclass(frozen=True)
class OpenedModel:
    """A model and the file it came from.

    Attributes:
      model: ready for scanning.
      sha256: hexadecimal digest of the file; external tensors of ONNX files are not in it.
      format: "onnx", "exported program" or what `converters.Artifact` names.
      findings: what a reader should know: what was guessed, removed or left out.
    """

    model: "Model"
    sha256: str
    format: str
    findings: tuple[str, ...]


@dataclass(frozen=True)
class ModelFile:
    """A file that was read and not converted yet.

    Attributes:
      path: where it is.
      format: "onnx", "exported program" or what `converters.Artifact` names.
      sha256: hexadecimal digest of the file.
      content: an `Artifact`, a `torch.export.ExportedProgram`, or for ONNX the file's stamp, since
        such files are parsed where they lie.
    """

    path: Path
    format: str
    sha256: str
    content: Any


def open_model(
    path: str | os.PathLike[str],
    form: InputForm = InputForm(),
    *,
    usual_size: tuple[int, int] | None = None,
    limits: Limits | None = None,
) -> OpenedModel:
    """Read and convert a model file; its format is told by content, nothing in it is executed.

    Args:
      path: the file.
      form: what it does not say.
      usual_size: height and width of the pictures at hand, taken where neither the file nor `form`
        says a size; 224 x 224 by default.
      limits: caps on files that are not ONNX.

    Raises:
      LoadError: the file cannot be read safely.
      ConversionError: it holds no supported network, or `form` does not fit it.
    """
    return convert_file(read_model(path, limits), form, usual_size)


def read_model(path: str | os.PathLike[str], limits: Limits | None = None) -> ModelFile:
    """The first half of `open_model`; raises LoadError, and UnsupportedOperatorError."""
    from converters.artifact import artifact_of

    path, limits = Path(path), limits or Limits()
    if is_onnx(path):
        return _onnx_file(path)
    content = sniff.read_file(path, limits)
    if content.format == sniff.TORCH_ZIP and is_exported(content.data, limits):
        program = read_exported(content.data, limits)
        return ModelFile(path, EXPORTED, content.sha256, program)
    return ModelFile(path, content.format, content.sha256, artifact_of(content, limits))


def convert_file(
    file: ModelFile, form: InputForm = InputForm(), usual_size: tuple[int, int] | None = None
) -> OpenedModel:
    """The second half of `open_model`; raises ConversionError, and LoadError of ONNX files."""
    size = form.image_size or usual_size
    if file.format == ONNX:
        model = _from_onnx(file, form, size)
    elif file.format == EXPORTED:
        model = _from_exported(file, form, size or USUAL_SIZE)
    else:
        model = _from_family(file, form)
    return OpenedModel(model, file.sha256, file.format, model.findings)


def _from_family(file: ModelFile, form: InputForm) -> "Model":
    """Weights of a family."""
    from converters.conversion import convert
    from converters.preparation import prepared

    if form.output is not None:
        raise ConversionError(f"the network has one output; it has none named {shown(form.output)}")
    if form.layout == "NHWC":
        raise ConversionError("torch's networks take NCHW; leave the layout out")
    return prepared(convert(file.content), form.bounds, form.mean, form.std)


def _from_onnx(file: ModelFile, form: InputForm, size: tuple[int, int] | None) -> "Model":
    from converters.graph.onnx import load_onnx

    model = load_onnx(
        file.path,
        form.output,
        layout=form.layout,
        image_size=size,
        bounds=form.bounds,
        mean=form.mean,
        std=form.std,
    )
    if _stamp(file.path) != file.content:
        raise CorruptFileError(f"{file.path} changed while it was read")
    _check_size(model, form)
    return model


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file is written or replaced."""
    info = os.stat(path)
    return info.st_ino, info.st_size, info.st_mtime_ns


def _onnx_file(path: Path) -> ModelFile:
    try:
        stamp = _stamp(path)
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror}; check the path") from error
    return ModelFile(path, ONNX, digest, stamp)


def _check_size(model: "Model", form: InputForm) -> None:
    """Whether a size that was asked for is the one the file has."""
    takes = tuple(model.config.image_size)  # pyright: ignore[reportAttributeAccessIssue]
    if form.image_size is not None and takes != form.image_size:
        raise ConversionError(
            f"the file is made for images of {takes[0]} x {takes[1]} pixels, asked for "
            f"{form.image_size[0]} x {form.image_size[1]}; leave --image-size out, or export it "
            "for another size"
        )


def _from_exported(file: ModelFile, form: InputForm, size: tuple[int, int]) -> "Model":
    from converters.graph.export import from_exported
    from converters.graph.module import graph_model

    program = file.content
    layout, shape, guesses = _input_of(program, form, size)
    captured = from_exported(program, [_zeros(program, shape)])
    guesses += () if form.says_pixels else (_UNPREPARED,)
    model = graph_model(
        captured,
        layout=layout,
        output=_output_number(program, form.output),
        bounds=form.bounds or (0.0, 1.0),
        mean=form.mean,
        std=form.std,
        architecture=f"pt2:{file.path.stem}",
        findings=guesses,
    )
    _check_size(model, form)
    return model


def _image_node(program):
    """The graph's node of the one input."""
    names = set(program.graph_signature.user_inputs)
    nodes = [node for node in program.graph.nodes if node.name in names]
    if len(nodes) != 1 or len(names) != 1 or getattr(nodes[0].meta.get("val"), "ndim", 0) != 4:
        raise ConversionError(
            f"the exported program takes {len(names)} inputs, expected one, a batch of images of "
            "4 dimensions"
        )
    return nodes[0]


def _zeros(program, shape: tuple[int, ...]):
    import torch

    return torch.zeros(shape, dtype=_image_node(program).meta["val"].dtype)


def _input_of(program, form: InputForm, size: tuple[int, int]):
    """Layout, shape for one image, and what was guessed."""
    declared = [n if isinstance(n, int) else None for n in _image_node(program).meta["val"].shape]
    last = declared[3] in (1, 3, 4) and declared[1] not in (1, 3, 4)
    layout = form.layout or ("NHWC" if last else "NCHW")
    sizes = dict(zip(layout, declared, strict=True))
    guesses: tuple[str, ...] = ()
    if None in (sizes["H"], sizes["W"]) and form.image_size is None:
        guesses = (f"the file leaves the size of images open; {size[0]} x {size[1]} was assumed",)
    asked = {"N": 1, "H": size[0], "W": size[1]}
    shape = tuple(sizes[letter] or asked.get(letter, 0) for letter in layout)
    if 0 in shape:
        raise ConversionError(
            "the exported program leaves the number of channels open; export it with them"
        )
    return layout, shape, guesses


def _output_number(program, name: str | None) -> int:
    names = [str(output) for output in program.graph_signature.user_outputs]
    if name is None:
        return 0
    if name not in names:
        known = ", ".join(shown(known) for known in names[:10])
        raise ConversionError(f"there is no output {shown(name)}; the outputs are {known}")
    return names.index(name)
