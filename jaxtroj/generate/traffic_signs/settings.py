"""What a round of traffic signs is made of, what is impossible, and what must agree to go on."""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax

from jaxtroj.errors import GenerationError
from jaxtroj.generate import networks
from jaxtroj.generate.round import check_sizes, plain, refuse
from jaxtroj.generate.torch_device import torch_device
from jaxtroj.generate.traffic_signs.recipe import ROUND0, SignDesign, sample_recipe
from jaxtroj.generate.training import TRAINERS, TrainingSettings
from jaxtroj.record import digest_file

_COUNTS = ("examples_per_class", "most_tries")
_TRAINING_COUNTS = (
    "batch_size", "max_steps", "check_every", "cooldown_steps", "validation_batches",
    "test_batches", "batches_per_draw",
)  # fmt: skip
_FOLDERS = ("foregrounds", "backgrounds")


@dataclass(frozen=True)
class RoundSettings:
    """What a round is made of.

    Attributes:
        seed: identity of the round, 0 or more.
        models: how many; even, half of them are poisoned. A round can be grown later.
        image_size: side of the pictures, pixels.
        inception_size: the same for Inception v3; None for `image_size`.
        architectures: out of `networks.KNOWN`.
        foregrounds, backgrounds: folders of real pictures; None draws them.
        examples_per_class: example pictures shipped with a model.
        most_tries: trainings of a model, each with the next sub-seed, before giving up.
        warm_start: most steps of training the network that models start from; 0 starts each from
            random weights, as Round 0 did.
        legacy: write `model.pt` in the stream format of Round 0 instead of a zip archive.
        training: how models are trained.
        design: which round it is.
    """

    seed: int
    models: int
    image_size: int = 224
    inception_size: int | None = None
    architectures: tuple[str, ...] = networks.ROUND0
    foregrounds: Path | None = None
    backgrounds: Path | None = None
    examples_per_class: int = 100
    most_tries: int = 4
    warm_start: int = 0
    legacy: bool = True
    training: TrainingSettings = field(default_factory=TrainingSettings)
    design: SignDesign = ROUND0

    def size_for(self, architecture: str) -> int:
        """Side in pixels of the pictures of an architecture."""
        own = self.inception_size if architecture == "inception_v3" else None
        return self.image_size if own is None else own

    @property
    def device(self) -> str:
        """Platform that computes the steps, such as "cpu", "gpu" or torch's "cuda"."""
        is_torch = self.training.trainer == "torch"
        return torch_device() if is_torch else jax.default_backend()

    @property
    def folder_names(self) -> dict[str, str]:
        """Where signs and backgrounds come from, by "foregrounds" and "backgrounds"."""
        folders = {name: getattr(self, name) for name in _FOLDERS}
        return {name: path.name if path else "procedural" for name, path in folders.items()}


def check_settings(settings: RoundSettings, shard: tuple[int, int] = (0, 1)) -> None:
    """Refuse what cannot be generated.

    Raises:
        GenerationError: with what was got and what is possible.
    """
    counts = {name: getattr(settings, name) for name in _COUNTS}
    counts |= {name: getattr(settings.training, name) for name in _TRAINING_COUNTS}
    wrong = check_sizes(settings, counts, shard)
    if settings.training.trainer not in TRAINERS:
        known = " or ".join(TRAINERS)
        wrong.append(f"trainer must be {known}, got {settings.training.trainer!r}")
    # Architectures and seed are checked where they are used first.
    sample_recipe(settings.seed, 0, 0, settings.architectures, settings.design)
    for name in settings.architectures:
        size = settings.size_for(name)
        if size < networks.LEAST_PIXELS[name]:
            least = networks.LEAST_PIXELS[name]
            wrong.append(f"{name} needs pictures of at least {least} px, got {size}")
    refuse(wrong)


def settings_identity(settings: RoundSettings) -> dict[str, Any]:
    """What must agree for two runs to work on one folder; no paths, no number of models.

    The design is not among it: the manifest names the round.
    """
    values = plain(replace(settings, foregrounds=None, backgrounds=None))
    del values["design"]
    return values | {name: folder_identity(getattr(settings, name)) for name in _FOLDERS}


def folder_identity(folder: Path | None) -> dict[str, Any] | None:
    """What a folder of pictures holds, without its path; the files are read one at a time.

    Raises:
        GenerationError: it is no folder.
        OSError: a file cannot be read.
    """
    if folder is None:
        return None
    if not folder.is_dir():
        raise GenerationError(f"{folder} is not a folder; give a folder of pictures")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listing = "\n".join(f"{path.relative_to(folder)} {digest_file(path)}" for path in files)
    digest = hashlib.sha256(listing.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return {"folder": folder.name, "files": len(files), "names_and_contents": digest}
