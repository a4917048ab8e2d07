"""One model to one record, and many models to many: a scan never fails to answer."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from converters.containers.onnx_wire import external_files
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.evidence.images.schema import OTHER_STAGES, SMALL_STAGES, STAGES
from jaxtroj.record import Record, finite, identity, printable
from jaxtroj.record_text import write_trigger
from jaxtroj.rounds import (
    Examples,
    ModelEntry,
    examples_digest,
    load_examples,
    text_examples_digest,
)
from jaxtroj.scan.work import OnStep, Work, one_line
from jaxtroj.settings import EVEN_ODDS, Settings, base_rate, digest_or_reason
from jaxtroj.store import RunStore

if TYPE_CHECKING:
    from converters.model import Model
    from jaxtroj.evidence.images.gather import RecoveredTrigger

PictureOf = Callable[[str], Path]
"""Where the picture of a model's trigger goes, by the model's name."""

# Heads that are judged together: their answers to a bank share one program.
TEXT_BATCH = 16


def scan(
    entries: Iterable[ModelEntry],
    settings: Settings,
    store: RunStore,
    on_step: OnStep | None = None,
) -> Iterator[Record]:
    """Yield the record of every entry, in order; what the store has finished is not done again.

    Raises:
        StoreError: a record cannot be written. Faults of a model are in its record.
    """
    waiting: list[ModelEntry] = []
    for entry in entries:
        if waiting and (entry.kind != "text" or len(waiting) == TEXT_BATCH):
            yield from _scan_some(waiting, settings, store, on_step)
            waiting = []
        waiting.append(entry)
        if entry.kind != "text":
            yield from _scan_some(waiting, settings, store, on_step)
            waiting = []
    yield from _scan_some(waiting, settings, store, on_step)


def _scan_some(
    entries: Sequence[ModelEntry], settings: Settings, store: RunStore, on_step: OnStep | None
) -> Iterator[Record]:
    keys = ["" if e.skip_reason is not None else identify(e, settings) for e in entries]
    done = {
        place: record
        for place, (entry, key) in enumerate(zip(entries, keys, strict=True))
        if key and (record := store.finished(printable(entry.model_id), key)) is not None
    }
    left = [place for place in range(len(entries)) if place not in done]
    answers = scan_batch([entries[i] for i in left], settings, store.trigger_path, on_step)
    for place in range(len(entries)):
        if place in done:
            yield done[place]
        else:
            yield _keep(store, next(answers))


def scan_batch(
    entries: Sequence[ModelEntry],
    settings: Settings,
    picture_of: PictureOf | None = None,
    on_step: OnStep | None = None,
) -> Iterator[Record]:
    """The record of every entry, in order, with its identity; text models are judged together.

    Whatever goes wrong with a model is a record of status `failed`.

    Args:
        entries: models of any kind; those with a `skip_reason` get a record that says so.
        settings: what changes the answers.
        picture_of: where pictures of recovered triggers go; None writes none.
        on_step: told of each step as it begins.
    """
    if len(entries) > 1 and all(entry.kind == "text" for entry in entries):
        yield from _scan_texts(entries, settings, on_step)
        return
    for entry in entries:
        if entry.skip_reason is not None:
            yield _skipped(entry, settings)
            continue
        path = None if picture_of is None else picture_of(printable(entry.model_id))
        key = identify(entry, settings)  # first: a file that changes meanwhile is scanned again
        yield replace(scan_model(entry, settings, path, on_step), identity=key)


def _scan_texts(
    entries: Sequence[ModelEntry], settings: Settings, on_step: OnStep | None
) -> Iterator[Record]:
    from jaxtroj.scan.text_heads import scan_heads

    chosen = [entry for entry in entries if entry.skip_reason is None]
    keys = [identify(entry, settings) for entry in chosen]
    answers = zip(scan_heads(chosen, settings, on_step or _silent), keys, strict=True)
    for entry in entries:
        if entry.skip_reason is not None:
            yield _skipped(entry, settings)
        else:
            record, key = next(answers)
            yield replace(record, identity=key)


def scan_model(
    entry: ModelEntry,
    settings: Settings,
    trigger_path: Path | None = None,
    on_step: OnStep | None = None,
) -> Record:
    """The record of one model; whatever goes wrong with it is a record of status `failed`.

    Args:
        entry: the model file and its examples.
        settings: what changes the answer.
        trigger_path: where the picture of the recovered trigger goes; None writes none.
        on_step: told of each step as it begins.
    """
    work = Work(entry, settings, on_step or _silent)
    try:
        model = work.open()
        if work.kind == "text":
            from jaxtroj.scan.text_heads import judge

            return judge([(work, model)])[0]
        return _ImageScan(work, trigger_path).run(model)
    except Exception as error:  # A record is owed for every model: the fault goes into it.
        return work.failed(error)


def identify(entry: ModelEntry, settings: Settings) -> str:
    """The identity of an answer; unreadable files count by being unreadable."""
    model = ":".join(digest_or_reason(path) for path in _model_files(entry.model_path))
    return identity(model, _examples_digest(entry), settings.as_json())


def _model_files(path: Path) -> list[Path]:
    """The model file, and those beside an ONNX file that hold its tensors."""
    try:
        return [path, *external_files(path)]
    except OSError:  # the digest says so
        return [path]


@dataclass(frozen=True)
class _ImageScan:
    """One image classifier, opened already, on its way to its record."""

    work: Work
    trigger_path: Path | None

    def run(self, model: "Model") -> Record:
        with self.work.step("examples"):
            examples = self.examples()
        height, width = examples.images.shape[1:3]
        self.work.picture_size = (height, width)
        triggers = self.gather(model, examples)
        return self.answer(triggers[0] if triggers else None, examples)

    def examples(self) -> Examples:
        entry, settings = self.work.entry, self.work.settings
        if entry.examples_path is None:
            raise ExamplesError(
                f"no example pictures beside {entry.model_path}; expected a folder"
                " example_data, or name one with --examples"
            )
        return load_examples(
            entry.examples_path,
            channel_order=settings.channel_order,
            limit_per_class=settings.examples_per_class,
            normalization=settings.normalization,
        )

    def settings(self) -> Settings:
        """The settings; of all stages only those that the calibrator may know."""
        settings, calibrator = self.work.settings, self.work.calibrator
        if calibrator is None or settings.stages != STAGES:
            return settings
        if SMALL_STAGES[-1] not in calibrator.stages:
            return replace(settings, stages=OTHER_STAGES)
        return replace(settings, stages=tuple(s for s in SMALL_STAGES if s in calibrator.stages))

    def gather(self, model: "Model", examples: Examples) -> "Sequence[RecoveredTrigger]":
        """Run the evidence stages; the triggers they recovered, the strongest first."""
        from jaxtroj.diagnostics import diagnose
        from jaxtroj.evidence.images.gather import gather, stages_of

        work = self.work
        settings, calibrator = self.settings(), work.calibrator
        stop_early = settings.early_stop and settings.threshold == EVEN_ODDS
        stages = stages_of(settings, examples)
        following = dict(pairwise(stages))

        def on_stage(stage: str, fields: Mapping[str, float]) -> bool:
            work.evidence = finite(fields)
            stops = (
                stop_early
                and calibrator is not None
                and calibrator.can_stop(fields, stage, work.architecture, work.base_rate)
            )
            work.on_step(work.name, "trigger" if stops else following.get(stage, "trigger"))
            return stops

        work.on_step(work.name, stages[0])
        evidence = gather(model, examples, settings, on_stage=on_stage)
        work.evidence = finite(evidence.fields)
        work.flags = tuple(map(str, diagnose(model, evidence.anchored, work.findings)))
        work.seconds.update({stage: round(s, 4) for stage, s in evidence.seconds.items()})
        if len(work.evidence) < len(evidence.fields):
            odd = sorted(set(evidence.fields) - set(work.evidence))
            raise EvidenceError(f"evidence is not finite: {', '.join(odd)}; is the model sound?")
        return evidence.triggers

    def answer(self, trigger: "RecoveredTrigger | None", examples: Examples) -> Record:
        """The record of a model whose evidence is complete."""
        work = self.work
        if trigger is None:
            verdict = work.verdict(None, ())
        else:
            sources = tuple(int(c) for c in trigger.source_classes)
            verdict = work.verdict(int(trigger.target_class), sources)
        picture, problem = None, ""
        if trigger is not None and (verdict.poisoned or work.calibrator is None):
            picture, problem = self.picture(trigger, examples)
        # Flags come first: they put in doubt what follows, and long reasons are cut.
        parts = (*work.flags, *verdict.reasons, *examples.problems, problem)
        reason = "; ".join(filter(None, parts))
        found = {} if trigger is None else _recovered(trigger)
        return work.record(verdict, reason, trigger=picture, recovered=found)

    def picture(self, trigger: "RecoveredTrigger", examples: Examples) -> tuple[str | None, str]:
        """Write the trigger's picture: its path, or None and why it could not be written."""
        if self.trigger_path is None:
            return None, ""
        others = np.flatnonzero(examples.labels != trigger.target_class)
        clean = examples.images[others[0] if others.size else 0]
        try:
            write_trigger(
                self.trigger_path,
                np.asarray(trigger.mask),
                np.asarray(trigger.pattern),
                clean,
                examples.channel_order,
            )
        except OSError as error:  # the answer stands without its picture
            return None, f"cannot write {self.trigger_path}: {error.strerror or error}"
        return printable(str(self.trigger_path)), ""


def _recovered(trigger: "RecoveredTrigger") -> dict[str, str | float]:
    return {
        "method": trigger.method,
        "score": float(trigger.attack_success_rate),
        "mask_l1": float(trigger.mask_l1),
        **_centre(np.asarray(trigger.mask)[..., 0]),
    }


def _centre(mask: np.ndarray) -> dict[str, float]:
    """Row and column of the mask's centre of mass, in pixels from the top left one."""
    weight = max(float(mask.sum()), 1e-12)
    row, column = (float((axis * mask).sum()) / weight for axis in np.indices(mask.shape))
    return {"row": round(row, 2), "column": round(column, 2)}


def _skipped(entry: ModelEntry, settings: Settings) -> Record:
    return Record(
        model=printable(entry.model_id),
        sha256="",
        probability=base_rate(settings, entry.kind),
        poisoned=False,
        target_class=None,
        source_classes=(),
        status="skipped",
        reason=one_line(entry.skip_reason or ""),
    )


def _keep(store: RunStore, record: Record) -> Record:
    stored = store.finished(record.model, record.identity)
    if stored is None:
        store.append(record)
    return stored or record


def _examples_digest(entry: ModelEntry) -> str:
    if entry.examples_path is None:
        return ""
    try:
        if entry.kind == "text":
            return text_examples_digest(entry)
        return examples_digest(entry.examples_path)
    except ExamplesError:  # scan_model meets the same error and puts it into the record
        return "unreadable"


def _silent(model: str, step: str) -> None:
    """Tells nobody."""
