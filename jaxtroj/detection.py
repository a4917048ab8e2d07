"""The Python API: `detect` for one network, `scan_folder` for many.

A path is opened in a guarded worker process, as the commands do it. A torch module is captured in
the caller's process, and a converted model is there already; both are searched in the worker. A JAX
function is searched in the caller's process, see `in_memory`.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from jaxtroj import runtime
from jaxtroj.caller_settings import usual_jax
from jaxtroj.engine.between_steps import between_steps
from jaxtroj.engine.guard import Guard, checked
from jaxtroj.engine.jobs import Setup
from jaxtroj.engine.local import usual_limits
from jaxtroj.engine.run import answer, answers
from jaxtroj.errors import UsageError
from jaxtroj.in_memory import EXAMPLES, Shape, entry_of_memory, open_put, opener_of, put
from jaxtroj.record import Record
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.rounds.arrays import check_images, pictures_of, write_pictures
from jaxtroj.rounds.single import entry_of
from jaxtroj.scan.attempt import Attempt, OnStep, silent
from jaxtroj.scan.folder import PictureOf, identified
from jaxtroj.scan.model import Opener, scan_attempt
from jaxtroj.scan.opening import open_model
from jaxtroj.scan.records import failed_record, unpictured
from jaxtroj.setting_values import path_problem
from jaxtroj.settings import Settings
from jaxtroj.verdict import FoundTrigger, ScanError, Verdict

_WITH_PANELS = "jaxtroj.detection:answer_with_panels"
_FROM_MEMORY = "jaxtroj.detection:answer_from_memory"
_PANELS = ".npz"
_TRIGGERS = "triggers"
_STAYED = "the limits of time and memory were looked at between its steps only"

Answered = tuple[Record, tuple[np.ndarray, ...]]
"""A record and the panels of its trigger."""


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
        limits: seconds and bytes for the search, which a process of its own makes; None for those
            of a scan. A JAX function is searched in the caller's process, and they are looked at
            between its steps.

    Raises:
        ExamplesError: images or labels are not what they should be.
        UsageError: the network is none of these, or arguments contradict each other.
        EngineError: nothing can be scanned, such as where JAX_PLATFORMS names what is not there.
        ScanError: the network could not be judged; `record` says why.
    """
    settings, limits = _checked_settings(settings), checked(limits)
    is_path = isinstance(network, str | os.PathLike)
    if is_path:
        _check_path("the network", network)
    _check_arguments(is_path, images, labels)
    pictures = None
    if images is not None:
        pictures = pictures_of(images, labels, layout, settings.said_form())
    with TemporaryDirectory(prefix="jaxtroj-") as name:
        home = Path(name)
        if pictures is not None:
            write_pictures(pictures, home / EXAMPLES)
        if pictures is None or is_path:
            entry = entry_of(Path(network))
            if pictures is not None:
                _check_kind(entry)
                entry = replace(entry, examples_path=home / EXAMPLES)
            record, panels = _guarded(entry, settings, limits, home / _TRIGGERS)
        else:
            shape = cast(Shape, pictures.pixels.shape[1:])
            record, panels = _from_memory(network, shape, settings, limits, home)
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
    Take all records in one thread: on Linux a worker ends with the thread that it was started in,
    so that where each record is taken in a thread of its own each has a new worker, and waits
    for its start.

    Args:
        folder: in any layout of `iter_models`, or a CSV of paths.
        settings: what changes the answers.
        limits: of one model; None for those of a scan.
        pictures: folder for pictures of recovered triggers; None writes none.

    Raises:
        DatasetError: there is no model in the folder.
        UsageError: folder, settings or limits are none.
        EngineError: the worker process does not start.
    """
    _check_path("the folder", folder)
    settings, limits = _checked_settings(settings), checked(limits)
    return answer(iter_models(folder, include_errata=True), settings, limits, pictures)


def answer_with_panels(
    entry: ModelEntry, settings: Settings, picture_of: PictureOf | None, on_step: OnStep | None
) -> Record:
    """In the worker: the record of a model, and the trigger's panels in the place of its picture.

    See `jaxtroj.engine.jobs.Detector`.
    """
    attempt = Attempt(entry, settings, on_step or silent)
    return identified(entry, settings, lambda: _with_panels(attempt, open_model, picture_of))


def answer_from_memory(
    entry: ModelEntry, settings: Settings, picture_of: PictureOf | None, on_step: OnStep | None
) -> Record:
    """In the worker: what `answer_with_panels` does, of a network that `in_memory.put` wrote.

    Its record has no identity, as the network has no digest.
    """
    return _with_panels(Attempt(entry, settings, on_step or silent), open_put, picture_of)


def _with_panels(attempt: Attempt, opener: Opener, picture_of: PictureOf | None) -> Record:
    record = scan_attempt(attempt, opener)
    if attempt.panels and picture_of is not None:
        path = picture_of(record.model).with_suffix(_PANELS)
        return _with_file(record, path, attempt.panels)
    return record


def _with_file(record: Record, path: Path, panels: Sequence[np.ndarray]) -> Record:
    """The record, once its panels are on file; it stands without them where they cannot be."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, *panels)
    except OSError as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return unpictured(record, path, error)
    return record


def _checked_settings(settings: Settings | None) -> Settings:
    if settings is not None and not isinstance(settings, Settings):
        raise UsageError(
            f"settings are a {type(settings).__name__}, expected jaxtroj.Settings; of a dict make"
            " jaxtroj.Settings(**settings)"
        )
    return settings or Settings()


def _check_path(what: str, path: Any) -> None:
    if problem := path_problem(path) or ("" if os.fspath(path) else "an empty text"):
        raise UsageError(f"{what} is {problem}; expected a path")


def _check_kind(entry: ModelEntry) -> None:
    if entry.kind == "text-classifier":
        raise UsageError(
            f"{entry.model_id} takes texts, and images were given; expected its path alone, with"
            " texts in the folder examples of its own"
        )


def _check_arguments(is_path: bool, images: Any, labels: Any) -> None:
    if images is None and not is_path:
        raise UsageError("no images were given; expected clean examples beside the network")
    if images is not None:
        check_images(images)
    if (images is None) != (labels is None):
        raise UsageError("images and labels need each other; -1 is the label of an unknown class")


def _guarded(
    entry: ModelEntry,
    settings: Settings,
    limits: Guard | None,
    folder: Path,
    detector: str = _WITH_PANELS,
) -> Answered:
    """The answer of a worker process; its panels go through a folder."""
    (record,) = answers(Setup(settings, folder, detector), [entry], limits)
    panels = []
    for file in folder.glob(f"*{_PANELS}"):
        with np.load(file, allow_pickle=False) as arrays:
            panels += [arrays[name] for name in arrays.files]
    return record, tuple(panels)


def _from_memory(
    network: Any, shape: Shape, settings: Settings, limits: Guard | None, home: Path
) -> Answered:
    """The answer for a network in memory, from a worker where it can be sent to one."""
    runtime.check_backend()
    entry = entry_of_memory(home)
    attempt = Attempt(entry, settings)
    try:
        with attempt.step("capture"), usual_jax():
            stays = put(network, shape, entry.model_path)
    except UsageError:  # it is no network
        raise
    except Exception as error:  # the network is code of the caller's, which may raise anything
        return failed_record(attempt, error), ()
    if stays:
        return _here(entry, opener_of(network, shape), settings, limits, stays)
    record, panels = _guarded(entry, settings, limits, home / _TRIGGERS, _FROM_MEMORY)
    seconds = {**attempt.seconds, **record.seconds}
    return replace(record, identity="", seconds=seconds), panels


def _here(
    entry: ModelEntry, opener: Opener, settings: Settings, limits: Guard | None, stays: str
) -> Answered:
    """The answer from this process, for a network that cannot leave it."""
    attempt = Attempt(entry, settings, between_steps(limits or usual_limits()))
    record = scan_attempt(attempt, opener)
    note = f"searched in the caller's process: {stays}; {_STAYED}"
    return replace(record, findings=(*record.findings, note)), attempt.panels
