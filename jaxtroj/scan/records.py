"""From what is known of a model to its record: answered, failed or skipped."""

import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from converters.errors import ConverterError
from jaxtroj.calibration import Verdict
from jaxtroj.errors import JaxtrojError
from jaxtroj.populations import Asked
from jaxtroj.record import EVIDENCE_ONLY, Record, finite, printable
from jaxtroj.rounds import ModelEntry
from jaxtroj.scan.attempt import Attempt
from jaxtroj.settings import Settings, base_rate

_LONGEST_REASON = 1000
_LEFT_OUT = "…"
CHANGED = "its files changed while it was scanned, scan it again"
_NO_MEMORY = "not enough memory for this model; scan it on a larger machine"


@dataclass(frozen=True)
class Judgement:
    """What a record says beyond its evidence.

    Attributes:
        verdict: of the calibrator.
        recovered: of the trigger, as `Record.recovered`.
        picture: path of the trigger's picture.
        remarks: sentences that stand after the verdict's reasons; empty ones are left out.
    """

    verdict: Verdict
    recovered: Mapping[str, object] = field(default_factory=dict)
    picture: str | None = None
    remarks: tuple[str, ...] = ()


def answered_record(attempt: Attempt, judgement: Judgement) -> Record:
    """The record of a model whose evidence is complete."""
    verdict = judgement.verdict
    limits = _limits_of_search(attempt, verdict)
    # Flags and problems come first: they put in doubt what follows, and long reasons are cut.
    problems = (attempt.entry.problem,) if attempt.entry.problem else ()
    parts = (*attempt.flags, *problems, *limits, *verdict.reasons, *judgement.remarks)
    return Record(
        probability=float(verdict.probability),
        poisoned=bool(verdict.poisoned),
        target_class=verdict.target_class,
        source_classes=tuple(int(c) for c in verdict.source_classes),
        status="ok",
        reason=sentences(map(one_sentence, parts)),
        trigger=judgement.picture,
        recovered=judgement.recovered,
        calibrator=attempt.calibrator_in_words,
        found=_found(attempt),
        caveats=tuple(map(one_line, (*limits, *verdict.caveats))),
        **_known(attempt),
    )


def _found(attempt: Attempt) -> Mapping[str, float]:
    """Share of each kind of trigger that the calibrator's own population was found.

    By all searches that suit a model: nothing is known of what fewer find.
    """
    calibrator = attempt.calibrator
    found = {} if calibrator is None or attempt.unsearched else calibrator.found
    return {kind: round(share, 4) for kind, share in found.items()}


def _limits_of_search(attempt: Attempt, verdict: Verdict) -> tuple[str, ...]:
    """What a clean answer does not cover, in words, where a search that is usual was left out."""
    is_answer = not any(reason.startswith(EVIDENCE_ONLY) for reason in verdict.reasons)
    if verdict.poisoned or not is_answer or not attempt.unsearched:
        return ()
    return (f"did not search for {', '.join(attempt.unsearched)}",)


def failed_record(attempt: Attempt, error: BaseException) -> Record:
    """The record of a model that an error ended: the base rate, and why."""
    if isinstance(error, ConverterError):  # which knows the digest of a file that it refuses
        attempt.sha256 = attempt.sha256 or error.digest
    return Record(
        probability=attempt.base_rate,
        poisoned=False,
        target_class=None,
        source_classes=(),
        status="failed",
        reason=sentences(dict.fromkeys((describe_error(error), attempt.entry.problem or ""))),
        **_known(attempt),
    )


def skipped_record(entry: ModelEntry, settings: Settings) -> Record:
    """The record of a model that is left out on purpose."""
    return Record(
        model=printable(entry.model_id),
        sha256="",
        probability=base_rate(settings, Asked(entry.kind, round=entry.round)),
        poisoned=False,
        target_class=None,
        source_classes=(),
        status="skipped",
        reason=one_line(entry.skip_reason or ""),
        kind=entry.kind,
    )


def _known(attempt: Attempt) -> dict:
    """Fields of a record that hold whatever became of the model; the flags before the findings."""
    return {
        "model": attempt.name,
        "sha256": attempt.sha256,
        "seconds": attempt.seconds,
        "evidence": finite(attempt.evidence.fields),
        "architecture": attempt.architecture,
        "input_form": attempt.form,
        "kind": attempt.kind,
        "searched": attempt.evidence.searched,
        "findings": tuple(map(one_line, (*attempt.flags, *attempt.findings))),
    }


def changed_record(record: Record) -> Record:
    """An answer about files that changed meanwhile: it stands for none of them later."""
    reason = sentences((CHANGED, *record.reason.split("; ")))
    findings = (CHANGED, *record.findings)
    return replace(record, identity="", reason=reason, findings=findings)


def unpictured(record: Record, path: Path, error: OSError) -> Record:
    """An answer that stands without its picture, and says why there is none."""
    problem = f"cannot write {path}: {error.strerror or error}"
    return replace(record, reason=sentences((record.reason, one_sentence(problem))))


def sentences(parts: Iterable[str | None]) -> str:
    """A reason of whole sentences, joined by semicolons; those beyond 1000 characters are left out.

    >>> sentences(["the first", "", "the second"])
    'the first; the second'
    """
    first, *rest = [one_line(part) for part in parts if part] or [""]
    for sentence in rest:
        if len(first) + len(sentence) + len("; ") > _LONGEST_REASON - len(_LEFT_OUT):
            return first + _LEFT_OUT
        first = f"{first}; {sentence}"
    return first


def one_sentence(text: str) -> str:
    """One line without the semicolons that part the sentences of a reason.

    Names out of a file stand in sentences: none can begin another.

    >>> one_sentence("the output 'a; evidence only' was left out; see --output")
    "the output 'a, evidence only' was left out, see --output"
    """
    return one_line(text).replace("; ", ", ")


def one_line(text: str) -> str:
    """Printable, on one line, at most 1000 characters."""
    line = " ".join(text.split())
    line = "".join(c if c.isprintable() else "?" for c in line)
    limit = _LONGEST_REASON - len(_LEFT_OUT)
    return line if len(line) <= _LONGEST_REASON else line[:limit] + _LEFT_OUT


def describe_error(error: BaseException) -> str:
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
