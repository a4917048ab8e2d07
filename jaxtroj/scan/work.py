"""One model on its way to its record: what every kind of scan shares.

What is known so far stays for the record if a later step fails.
"""

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from converters.errors import ConverterError
from jaxtroj.calibration import Calibrator, Verdict
from jaxtroj.errors import CalibrationError, ExamplesError, JaxtrojError
from jaxtroj.record import EVIDENCE_ONLY, Record, printable
from jaxtroj.rounds import ModelEntry
from jaxtroj.rounds.examples import usual_size
from jaxtroj.settings import Settings, base_rate, load_calibrator

if TYPE_CHECKING:
    from converters.model import Model

_LONGEST_REASON = 400
_NO_MEMORY = "not enough memory for this model; scan it on a larger machine"

OnStep = Callable[[str, str], None]
"""Called with the model's name and the step that begins: read, convert, examples or a stage."""


@dataclass
class Work:
    """A model, its settings, and what was found out so far."""

    entry: ModelEntry
    settings: Settings
    on_step: OnStep
    sha256: str = ""
    architecture: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    evidence: dict[str, float] = field(default_factory=dict)
    kind: str = ""
    picture_size: tuple[int, int] | None = None
    findings: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self.kind = self.entry.kind

    @property
    def name(self) -> str:
        """The model's name, printable."""
        return printable(self.entry.model_id)

    def open(self) -> "Model":
        """Read and convert the model file; raises LoadError or ConversionError."""
        from converters.opening import convert_file, read_model

        with self.step("read"):
            file = read_model(self.entry.model_path)
            self.sha256 = file.sha256
        with self.step("convert"):
            opened = convert_file(file, self.settings.input_form(), self._examples_size())
            model, self.findings = opened.model, opened.findings
            self.architecture = model.architecture
        # What the network takes outranks what the folder looks like.
        self.kind = "text" if model.config.input_kind == "embedding" else "image"  # pyright: ignore
        return model

    def _examples_size(self) -> tuple[int, int] | None:
        """Height and width of the examples: what a file that leaves them open is scanned at."""
        if self.kind != "image" or self.entry.examples_path is None:
            return None
        try:
            return usual_size(self.entry.examples_path)
        except ExamplesError:  # reading the examples meets it again and reports it
            return None

    @property
    def calibrator(self) -> Calibrator | None:
        """The calibrator for this kind of model and size of pictures; raises CalibrationError."""
        return load_calibrator(self.settings, self.kind, self.picture_size)

    @property
    def base_rate(self) -> float:
        """P(poisoned) before any evidence."""
        return base_rate(self.settings, self.kind, self.picture_size)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Announce a step and note its wall time, even if it fails."""
        self.on_step(self.name, name)
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = round(time.perf_counter() - started, 4)

    def verdict(self, target: int | None, sources: tuple[int, ...]) -> Verdict:
        """What the calibrator says of the evidence; the base rate without one.

        Raises:
            CalibrationError: it cannot use any stage of this evidence.
        """
        calibrator = self.calibrator
        if calibrator is None:
            return Verdict(self.base_rate, False, target, sources, (EVIDENCE_ONLY,))
        if calibrator.last_complete(self.evidence) is None:
            raise CalibrationError(
                "the calibrator cannot use this evidence, it lacks"
                f" {', '.join(calibrator.missing(self.evidence)[:4])}; calibrate on a run made"
                " with the same version and stages"
            )
        verdict = calibrator.verdict(
            self.evidence,
            self.architecture,
            self.base_rate,
            self.settings.threshold,
            target,
            sources,
        )
        known = {name for r in calibrator.reports.values() for name in r.by_architecture}
        if self.architecture in known:
            return verdict
        # A stranger may have a trigger that the evidence cannot see; say so before anything else.
        remark = (
            f"the calibrator has met no {self.architecture}, only {', '.join(sorted(known))}:"
            " take the probability as a guess"
        )
        return replace(verdict, reasons=(remark, *verdict.reasons))

    def record(self, verdict: Verdict, reason: str, **found: Any) -> Record:
        """The record of an answer; `found` are further fields of `Record`."""
        return Record(
            model=self.name,
            sha256=self.sha256,
            probability=float(verdict.probability),
            poisoned=bool(verdict.poisoned),
            target_class=verdict.target_class,
            source_classes=tuple(int(c) for c in verdict.source_classes),
            status="ok",
            reason=one_line(reason),
            seconds=self.seconds,
            evidence=self.evidence,
            architecture=self.architecture,
            findings=self.remarks,
            **found,
        )

    def failed(self, error: Exception) -> Record:
        """The record of a model that an error ended: the base rate, and why."""
        return Record(
            model=self.name,
            sha256=self.sha256,
            probability=self.base_rate,
            poisoned=False,
            target_class=None,
            source_classes=(),
            status="failed",
            reason=one_line("; ".join(filter(None, [describe_error(error), self.entry.problem]))),
            seconds=self.seconds,
            evidence=self.evidence,
            architecture=self.architecture,
            findings=self.remarks,
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """Flags, then what reading and converting noticed; a line each."""
        return tuple(map(one_line, (*self.flags, *self.findings)))


def one_line(text: str) -> str:
    """Printable, on one line, at most 400 characters."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    return line if len(line) <= _LONGEST_REASON else line[: _LONGEST_REASON - 1] + "…"


def describe_error(error: Exception) -> str:
    """An error in words: what it says, or its kind and place if nobody foresaw it."""
    if isinstance(error, ConverterError | JaxtrojError):
        return str(error)
    # What jax says on a full device.
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error):
        return _NO_MEMORY
    if isinstance(error, OSError):
        return f"cannot read {error.filename or 'a file'}: {error.strerror or error}"
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"internal error: {type(error).__name__}: {error} ({place})"
