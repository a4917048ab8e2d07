"""The Python API: `detect` for one network, `scan_folder` for many.

A path is opened in a guarded worker process, as the commands do it. A network in memory is code of
the caller's own, and is searched in the caller's process.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from jaxtroj.engine.guard import Guard
from jaxtroj.engine.jobs import Setup
from jaxtroj.engine.run import answer, answers
from jaxtroj.errors import UsageError
from jaxtroj.in_memory import entry_of_memory, opener_of
from jaxtroj.record import Record
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.rounds.arrays import pictures_of, write_pictures
from jaxtroj.rounds.examples import Pictures
from jaxtroj.rounds.single import entry_of
from jaxtroj.scan import identify
from jaxtroj.scan.attempt import Attempt, OnStep, open_model, silent
from jaxtroj.scan.folder import PictureOf
from jaxtroj.scan.model import scan_attempt
from jaxtroj.settings import Settings
from jaxtroj.verdict import FoundTrigger, ScanError, Verdict

_WITH_PANELS = "jaxtroj.detection:answer_with_panels"
_PANELS = ".npz"
_EXAMPLES, _TRIGGERS = "examples", "triggers"


def detect(
    network: Any,
    images: Any = None,
    labels: Any = None,
    settings: Settings | None = None,
    *,
    layout: str | None = None,
    limits: Guard | None = None,
) -> Verdict:
    """The probability that a network is poisoned, its target class and its trigger.

    Args:
        network: a path to a model file or its folder; a `torch.nn.Module`; a JAX function with its
            parameters, `(function, params)`, called as `function(params, images)` with images
            `[n, h, w, c]`; or a `converters.Model`.
        images: clean examples, a few of each class: array or tensor, see
            `jaxtroj.rounds.arrays.pictures_of`. A path needs none where pictures lie beside it.
        labels: the class of each, whole numbers `[n]`, -1 where it is not known.
        settings: what changes the answer; the defaults by default.
        layout: "NHWC" or "NCHW", where the shape of the images does not tell.
        limits: seconds and bytes for a path, which is opened in a process of its own; a network in
            memory runs in the caller's process, without limits.

    Raises:
        ExamplesError: images or labels are not what they should be.
        UsageError: the network is none of these, or arguments contradict each other.
        ScanError: the network could not be judged; `record` says why.
    """
    settings, is_path = settings or Settings(), isinstance(network, str | os.PathLike)
    _check_arguments(is_path, images, labels, limits)
    pictures = None
    if images is not None:
        pictures = pictures_of(images, labels, layout, settings.said_form())
    with TemporaryDirectory(prefix="jaxtroj-") as name:
        home = Path(name)
        if pictures is not None:
            write_pictures(pictures, home / _EXAMPLES)
        if pictures is None or is_path:
            entry = entry_of(Path(network))
            if pictures is not None:
                entry = replace(entry, examples_path=home / _EXAMPLES)
            record, panels = _guarded(entry, settings, limits, home / _TRIGGERS)
        else:
            record, panels = _here(network, pictures, settings, home / _EXAMPLES)
    if pictures is not None:
        record = replace(record, findings=(*pictures.problems, *record.findings))
    if record.status != "ok":
        raise ScanError(record)
    return Verdict(record, FoundTrigger(panels, record.recovered) if panels else None)


def scan_folder(
    folder: str | os.PathLike[str],
    settings: Settings | None = None,
    limits: Guard | None = None,
    pictures: Path | None = None,
) -> Iterator[Record]:
    """The record of every model of a dataset folder, each as soon as it is done.

    Nothing is stored: `jaxtroj scan FOLDER --out RUN` keeps records and goes on where it stopped.

    Args:
        folder: in any layout of `iter_models`, or a CSV of paths.
        settings: what changes the answers.
        limits: of one model; None for those of a scan.
        pictures: folder for pictures of recovered triggers; None writes none.

    Raises:
        DatasetError: there is no model in the folder.
        EngineError: the worker process does not start.
    """
    return answer(iter_models(folder), settings or Settings(), limits, pictures)


def answer_with_panels(
    entry: ModelEntry, settings: Settings, picture_of: PictureOf | None, on_step: OnStep | None
) -> Record:
    """In the worker: the record of a model, and the trigger's panels in the place of its picture.

    See `jaxtroj.engine.jobs.Detector`.
    """
    key, attempt = identify(entry, settings), Attempt(entry, settings, on_step or silent)
    record = scan_attempt(attempt, open_model)
    if attempt.panels and picture_of is not None:
        path = picture_of(record.model).with_suffix(_PANELS)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, *attempt.panels)
    return replace(record, identity=key)


def _check_arguments(is_path: bool, images: Any, labels: Any, limits: Guard | None) -> None:
    if images is None and not is_path:
        raise UsageError("no images were given; expected clean examples beside the network")
    if (images is None) != (labels is None):
        raise UsageError("images and labels need each other; -1 is the label of an unknown class")
    if limits is not None and not is_path:
        raise UsageError("limits are for paths; a network in memory runs in this process")


def _guarded(
    entry: ModelEntry, settings: Settings, limits: Guard | None, folder: Path
) -> tuple[Record, tuple[np.ndarray, ...]]:
    """Record and panels of a model in a file, from a worker process."""
    (record,) = answers(Setup(settings, folder, _WITH_PANELS), [entry], limits)
    panels = []
    for file in folder.glob(f"*{_PANELS}"):
        with np.load(file, allow_pickle=False) as arrays:
            panels += [arrays[name] for name in arrays.files]
    return record, tuple(panels)


def _here(
    network: Any, pictures: Pictures, settings: Settings, folder: Path
) -> tuple[Record, tuple[np.ndarray, ...]]:
    """Record and panels of a network in memory, from this process."""
    height, width, channels = pictures.pixels.shape[1:]
    attempt = Attempt(entry_of_memory(folder), settings)
    record = scan_attempt(attempt, opener_of(network, (height, width, channels)))
    return record, attempt.panels
