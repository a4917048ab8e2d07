"""Model files as classifiers: loaded, their heads checked, their normalization settled."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from converters.model import Model
from jaxtroj.backgrounds.classifier import Classifier
from jaxtroj.backgrounds.head import IMAGENET, Mapping, head_for
from jaxtroj.backgrounds.normalization import PUBLISHED, Normalization
from jaxtroj.errors import UsageError
from jaxtroj.record import digest_file, printable
from jaxtroj.rounds.places import has_model_name


@dataclass(frozen=True)
class Request:
    """How networks are to be used; the same for all of one call.

    Attributes:
        mapping: read mapping file, for networks of 1000 classes.
        in9: every network must have nine classes.
        restricted: see `head.Head`.
        normalization: None takes the published setting for the size of the head.
        batch_size: None chooses by picture size and device.
        public_code: whose code state dicts are of, see `InputForm`.
    """

    mapping: Mapping | None = None
    in9: bool = False
    restricted: bool = False
    normalization: Normalization | None = None
    batch_size: int | None = None
    public_code: str | None = None


@dataclass(frozen=True)
class Candidate:
    """One network: name to show, digest of its file, the network, and whose code was said to be it.

    `describe` is for results.
    """

    name: str
    sha256: str
    classifier: Classifier
    public_code: str | None = None

    def describe(self) -> dict:
        """What the figures of this network depend on, as JSON values."""
        classifier = self.classifier
        head, normalization = classifier.head, classifier.normalization
        said = {} if self.public_code is None else {"public_code": self.public_code}
        return said | {
            "model": self.name,
            "sha256": self.sha256,
            "architecture": classifier.model.architecture,
            "num_classes": classifier.model.num_classes,
            "mapping_sha256": head.mapping_sha256,
            "restricted_to_mapped": head.restricted,
            "normalization": {
                "name": normalization.name,
                "mean": list(normalization.mean),
                "std": list(normalization.std),
            },
        }


def load_candidates(
    paths: Sequence[Path], request: Request, size: tuple[int, int] | None = None
) -> list[Candidate]:
    """Loads every network before any is used.

    Args:
        paths: model files that `converters.open_model` reads, or folders of Flax checkpoints; no
            two of the same path.
        request: see there.
        size: height and width of the pictures, for files that leave it open.
    Raises:
        ConverterError: a file cannot be read or converted.
        UsageError: a head does not fit what was asked for, or the path is not there.
    """
    if len(set(paths)) != len(paths):
        raise UsageError("a model is named twice; name each once")
    shared = Counter(path.name for path in paths)
    return [
        _candidate(
            path, printable(path.name if shared[path.name] == 1 else str(path)), request, size
        )
        for path in paths
    ]


def _opened(path: Path, request: Request, size: tuple[int, int] | None) -> tuple[Model, str]:
    """A model of pixels that are normalised already, and the digest of its file."""
    from converters.checkpoint import PARAMS, load_checkpoint
    from converters.opening import InputForm, open_model

    if path.is_dir():
        _check_checkpoint(path, PARAMS)
        return load_checkpoint(path), digest_file(path / PARAMS)
    form = InputForm(bounds=(0.0, 1.0), public_code=request.public_code)
    opened = open_model(path, form, usual_size=size)
    return opened.model, opened.sha256


def _check_checkpoint(folder: Path, params: str) -> None:
    """Refuses another folder than a Flax checkpoint, whose config.json means something else.

    Raises UsageError with the model file in it, if there is one.
    """
    if os.path.lexists(folder / params):
        return
    try:
        files = sorted(filter(has_model_name, folder.iterdir()))
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror or error}") from error
    remedy = f"name the model file, such as {files[0]}" if files else "name a model file"
    raise UsageError(
        f"{folder} is no Flax checkpoint that `jaxtroj convert` wrote (it has no {params});"
        f" {remedy}"
    )


def _candidate(path: Path, name: str, request: Request, size: tuple[int, int] | None) -> Candidate:
    model, sha256 = _opened(path, request, size)
    if model.input_kind != "image":
        raise UsageError(
            f"{name} ({model.architecture}) takes an {model.input_kind}, expected RGB pictures"
        )
    try:
        head = head_for(model.num_classes, request.mapping, request.restricted, request.in9)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from error
    if model.channels != 3:
        raise UsageError(f"{name} takes pictures of {model.channels} channels, expected 3 (RGB)")
    normalization = request.normalization
    if normalization is None:
        normalization = PUBLISHED["imagenet" if model.num_classes == IMAGENET else "in9"]
    classifier = Classifier(model, head, normalization, request.batch_size)
    return Candidate(name, sha256, classifier, request.public_code)
