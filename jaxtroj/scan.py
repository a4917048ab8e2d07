"""One model to one record, and many models to many: a scan never fails to answer."""

import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from converters.errors import ConverterError
from jaxtroj.calibration import Calibrator, Verdict
from jaxtroj.errors import CalibrationError, EvidenceError, ExamplesError, JaxtrojError
from jaxtroj.record import EVIDENCE_ONLY, Record, finite, identity, printable
from jaxtroj.report import write_trigger
from jaxtroj.rounds import Examples, ModelEntry, examples_digest, load_examples
from jaxtroj.settings import EVEN_ODDS, Settings, base_rate, digest_or_reason, load_calibrator
from jaxtroj.store import RunStore

if TYPE_CHECKING:
    from jaxtroj.evidence.gather import RecoveredTrigger

_LONGEST_REASON = 400
_NO_MEMORY = "not enough memory for this model; scan it on a larger machine"

OnStep = Callable[[str, str], None]
"""Called with the model's name and the step that begins: read, convert, examples or a stage."""


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
    for entry in entries:
        if entry.skip_reason is not None:
            yield _keep(store, _skipped(entry, settings))
            continue
        key = identify(entry, settings)
        record = store.finished(printable(entry.model_id), key)
        if record is None:
            path = store.trigger_path(printable(entry.model_id))
            answer = scan_model(entry, settings, path, on_step)
            record = _keep(store, replace(answer, identity=key))
        yield record


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
    work = _Work(entry, settings, trigger_path, on_step or (lambda model, step: None))
    try:
        return work.run()
    except (ConverterError, JaxtrojError) as error:
        return work.failed(str(error))
    except MemoryError:
        return work.failed(_NO_MEMORY)
    except OSError as error:
        return work.failed(f"cannot read {error.filename or 'a file'}: {error.strerror or error}")
    except Exception as error:  # A record is owed for every model: the fault goes into it.
        is_memory = "RESOURCE_EXHAUSTED" in str(error)  # what jax says on a full device
        return work.failed(_NO_MEMORY if is_memory else f"internal error: {_describe(error)}")


def identify(entry: ModelEntry, settings: Settings) -> str:
    """The identity of an answer; unreadable files count by being unreadable."""
    model = digest_or_reason(entry.model_path)
    return identity(model, _examples_digest(entry), settings.as_json())


@dataclass
class _Work:
    """One model on its way: what is known so far stays for the record if a later step fails."""

    entry: ModelEntry
    settings: Settings
    trigger_path: Path | None
    on_step: OnStep
    sha256: str = ""
    architecture: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    evidence: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return printable(self.entry.model_id)

    def run(self) -> Record:
        from converters import convert, open_artifact

        with self.step("read"):
            artifact = open_artifact(self.entry.model_path)
            self.sha256 = artifact.sha256
        with self.step("convert"):
            model = convert(artifact)
            self.architecture = model.architecture
        with self.step("examples"):
            examples = self.examples()
        calibrator = load_calibrator(self.settings)
        triggers = self.gather(model, examples, calibrator)
        return self.answer(calibrator, triggers, examples)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce a step and note its wall time, even if it fails."""
        self.on_step(self.name, name)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - started, 4)

    def examples(self) -> Examples:
        if self.entry.examples_path is None:
            raise ExamplesError(
                f"no example pictures beside {self.entry.model_path}; expected a folder"
                " example_data, or name one with --examples"
            )
        return load_examples(
            self.entry.examples_path,
            channel_order=self.settings.channel_order,
            limit_per_class=self.settings.examples_per_class,
            normalization=self.settings.normalization,
        )

    def gather(
        self, model: Any, examples: Examples, calibrator: Calibrator | None
    ) -> "Sequence[RecoveredTrigger]":
        """Run the evidence stages; the triggers they recovered, the strongest first."""
        from jaxtroj.evidence.gather import gather

        stop_early = self.settings.early_stop and self.settings.threshold == EVEN_ODDS

        following = dict(pairwise(self.settings.stages))

        def on_stage(stage: str, fields: Mapping[str, float]) -> bool:
            self.evidence = finite(fields)
            self.on_step(self.name, following.get(stage, "trigger"))
            if not stop_early or calibrator is None:
                return False
            rate = base_rate(self.settings)
            return calibrator.can_stop(fields, stage, self.architecture, rate)

        self.on_step(self.name, self.settings.stages[0])
        evidence = gather(model, examples, self.settings, on_stage=on_stage)
        self.evidence = finite(evidence.fields)
        self.seconds.update({stage: round(s, 4) for stage, s in evidence.seconds.items()})
        if len(self.evidence) < len(evidence.fields):
            odd = sorted(set(evidence.fields) - set(self.evidence))
            raise EvidenceError(f"evidence is not finite: {', '.join(odd)}; is the model sound?")
        return evidence.triggers

    def answer(
        self,
        calibrator: Calibrator | None,
        triggers: "Sequence[RecoveredTrigger]",
        examples: Examples,
    ) -> Record:
        """The record of a model whose evidence is complete."""
        trigger = triggers[0] if triggers else None
        if calibrator is None:
            verdict = _unjudged(base_rate(self.settings), trigger)
        else:
            verdict = self.verdict(calibrator, trigger)
        picture, problem = None, ""
        if trigger is not None and (verdict.poisoned or calibrator is None):
            picture, problem = self.picture(trigger, examples)
        reasons = (*verdict.reasons, *examples.problems, problem)
        return self.record(verdict, picture, "; ".join(filter(None, reasons)))

    def verdict(self, calibrator: Calibrator, trigger: "RecoveredTrigger | None") -> Verdict:
        """What the calibrator says.

        Raises:
            CalibrationError: it cannot use any stage of this evidence.
        """
        if calibrator.last_complete(self.evidence) is None:
            raise CalibrationError(
                "the calibrator cannot use this evidence, it lacks"
                f" {', '.join(calibrator.missing(self.evidence)[:4])}; calibrate on a run made"
                " with the same version and stages"
            )
        return calibrator.verdict(
            self.evidence,
            self.architecture,
            base_rate(self.settings),
            self.settings.threshold,
            None if trigger is None else int(trigger.target_class),
            () if trigger is None else tuple(int(c) for c in trigger.source_classes),
        )

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

    def record(self, verdict: Verdict, trigger: str | None, reason: str) -> Record:
        return Record(
            model=self.name,
            sha256=self.sha256,
            probability=float(verdict.probability),
            poisoned=bool(verdict.poisoned),
            target_class=verdict.target_class,
            source_classes=tuple(int(c) for c in verdict.source_classes),
            status="ok",
            reason=_one_line(reason),
            seconds=self.seconds,
            evidence=self.evidence,
            architecture=self.architecture,
            trigger=trigger,
        )

    def failed(self, reason: str) -> Record:
        return Record(
            model=self.name,
            sha256=self.sha256,
            probability=base_rate(self.settings),
            poisoned=False,
            target_class=None,
            source_classes=(),
            status="failed",
            reason=_one_line("; ".join(filter(None, [reason, self.entry.problem]))),
            seconds=self.seconds,
            evidence=self.evidence,
            architecture=self.architecture,
        )


def _skipped(entry: ModelEntry, settings: Settings) -> Record:
    return Record(
        model=printable(entry.model_id),
        sha256="",
        probability=base_rate(settings),
        poisoned=False,
        target_class=None,
        source_classes=(),
        status="skipped",
        reason=_one_line(entry.skip_reason or ""),
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
        return examples_digest(entry.examples_path)
    except ExamplesError:  # scan_model meets the same error and puts it into the record
        return "unreadable"


def _one_line(text: str) -> str:
    """Printable, on one line, at most 400 characters."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 1] + "…"


def _unjudged(rate: float, trigger: "RecoveredTrigger | None") -> Verdict:
    """Evidence without a calibrator: the base rate, and what the strongest trigger serves."""
    if trigger is None:
        return Verdict(rate, False, None, (), (EVIDENCE_ONLY,))
    classes = tuple(int(c) for c in trigger.source_classes)
    return Verdict(rate, False, int(trigger.target_class), classes, (EVIDENCE_ONLY,))


def _describe(error: BaseException) -> str:
    """Kind, message and place of an error that nobody foresaw."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(frame.filename).name}:{frame.lineno})"
