"""Open a model file of any supported format without executing anything in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from converters.containers import sniff
from converters.containers.exported_file import is_exported
from converters.containers.onnx_wire import is_onnx
from converters.containers.safetensors_file import read_safetensors
from converters.containers.torch_legacy import read_bare, read_legacy
from converters.containers.torch_tar import read_tar
from converters.containers.torch_zip import read_zip
from converters.errors import LoadError, UnknownFormatError
from converters.limits import Limits
from converters.pickles.contents import read_contents, without_prefixes
from converters.pickles.pickled import Pickled
from converters.weights import Weights

_PICKLED = {
    sniff.TORCH_ZIP: read_zip,
    sniff.TORCH_LEGACY: read_legacy,
    sniff.TORCH_TAR: read_tar,
    sniff.PICKLE: read_bare,
}


@dataclass(frozen=True)
class Artifact:
    """A model file that was read.

    Attributes:
        path: where it was.
        format: "torch zip", "torch legacy stream", "torch legacy tar", "safetensors" or "pickle".
        sha256: hexadecimal digest of exactly the bytes that were parsed.
        size: bytes.
        findings: remarks a reader should know: wrappers removed, hooks present, ...
        weights: tensors, module descriptions and metadata.
    """

    path: Path
    format: str
    sha256: str
    size: int
    findings: tuple[str, ...]
    weights: Weights


def open_artifact(path: str | PathLike[str], limits: Limits | None = None) -> Artifact:
    """Read a model file; its format is told by content.

    Nothing named in the file is imported or called, and every size it claims is checked before
    memory is allocated. The file is read into memory once; tensors share that memory.

    Args:
        path: file to read; symbolic links are followed.
        limits: caps; the defaults fit every network of TrojAI rounds 0-6.

    Raises:
        UnknownFormatError: no supported format, or no network in it.
        CorruptFileError: truncated, inconsistent, or lying about its tensors.
        UnsafePickleError: it asks for a global or an operation outside the allow-list.
        TooLargeError: it exceeds ``limits``.
        LoadError: the base of these, and itself for a file that cannot be read.
    """
    path, limits = Path(path), limits or Limits()
    if is_onnx(path):
        raise _more_than_weights(path, "an ONNX file")
    content = sniff.read_file(path, limits)
    if content.format == sniff.TORCH_ZIP and is_exported(content.data, limits):
        raise _more_than_weights(path, "an exported program")
    return artifact_of(content, limits)


def _more_than_weights(path: Path, what: str) -> UnknownFormatError:
    return UnknownFormatError(
        f"{path} is {what}, which holds a network and not weights alone; expected weights:"
        " converters.open_model takes both"
    )


def artifact_of(content: sniff.FileContent, limits: Limits) -> Artifact:
    """What `open_artifact` gives, from bytes that were read already; raises as it does."""
    try:
        weights, findings = _parse(content, limits)
    except LoadError as error:
        error.args, error.digest = (f"{content.path} ({content.format}): {error}",), content.sha256
        raise
    return Artifact(
        content.path, content.format, content.sha256, len(content.data), findings, weights
    )


def unpickle_file(path: str | PathLike[str], limits: Limits) -> tuple[Pickled, sniff.FileContent]:
    """The inert object in a pickled file of any kind, for what is more than a network.

    Raises:
        LoadError: as `open_artifact`; also for a safetensors file.
    """
    content = sniff.read_file(Path(path), limits)
    if content.format not in _PICKLED:
        raise UnknownFormatError(f"{content.path} is {content.format}; expected a pickled object")
    try:
        return _PICKLED[content.format](content.data, limits), content
    except LoadError as error:
        error.args = (f"{content.path} ({content.format}): {error}",)
        raise


def _parse(content: sniff.FileContent, limits: Limits) -> tuple[Weights, tuple[str, ...]]:
    if content.format == sniff.SAFETENSORS:
        tensors, metadata = read_safetensors(content.data, limits)
        findings = _ties(tensors, metadata)
        if not tensors:
            raise UnknownFormatError("the file holds no tensors; expected weights")
        return Weights(without_prefixes(tensors, findings), {}, metadata), tuple(findings)
    return read_contents(_PICKLED[content.format](content.data, limits), limits)


def _ties(tensors: Mapping[str, object], metadata: Mapping[str, str]) -> list[str]:
    """What is to be said of tensors that stand in a safetensors file under another name."""
    tied = sorted(name for name, kept in metadata.items() if {name, kept} <= tensors.keys())
    if not tied:
        return []
    first = f"{tied[0]} for {metadata[tied[0]]}"
    return [f"{len(tied)} tensors are tied to others, as the file's metadata says ({first})"]
