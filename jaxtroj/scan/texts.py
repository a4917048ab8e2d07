"""Sentiment heads: example texts and their vectors in, the words of triggers out."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtroj.calibration import Verdict
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.evidence.gather import Evidence
from jaxtroj.evidence.stage import Stage, Subject
from jaxtroj.evidence.stages import TEXT_STAGES
from jaxtroj.evidence.texts.kinship import LIMIT
from jaxtroj.poolings import SAID
from jaxtroj.record import EVIDENCE_ONLY
from jaxtroj.rounds import ModelEntry, TextExamples, load_text_examples
from jaxtroj.rounds.text_config import TextConfig
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.encoders import (
    are_together,
    bank_of,
    embedding_of,
    problem_of_config,
    unknown_encoder,
)
from jaxtroj.scan.kinds import Prepared
from jaxtroj.scan.records import Judgement, describe_error

if TYPE_CHECKING:
    from converters.model import Model
    from jaxtroj.evidence.texts.context import TextContext
    from jaxtroj.evidence.texts.encoder_probes import EncoderProbes
    from jaxtroj.evidence.texts.found import FoundText
    from jaxtroj.evidence.texts.recovery import RecoveredText

# Example texts by which an encoder is compared with the shipped vectors, and how alike they must
# be: the official ones are of half precision (.9999), another encoder's are near 0.
_COMPARED, _LEAST_COSINE = 2, 0.98
FOREIGN = "not judged: the example texts are of another kind than those of the bank's clean heads"
NO_BANK = "no probe bank was given, see jaxtroj bank"
APART = "the bank's clean heads come from another dataset, those of its own would tell more"


@dataclass(frozen=True)
class _Ready:
    """What a head is judged by."""

    model: "Model"
    examples: TextExamples
    embeddings: np.ndarray
    probes: "EncoderProbes | None"
    is_apart: bool

    @cached_property
    def strangeness(self) -> float:
        """Of the examples beside those of the bank's clean heads; 0 where nothing is compared."""
        if self.probes is None or not self.is_apart:
            return 0.0  # texts of one dataset may differ as they like
        return self.probes.whole.known_texts.strangeness(self.embeddings)

    @property
    def are_foreign(self) -> bool:
        """Whether the examples are no texts such as those."""
        return self.strangeness > LIMIT


@dataclass
class HeadScan:
    """One head, opened already; see `KindOfScan`. There is no picture of a text trigger."""

    attempt: Attempt
    model: "Model"
    trigger_path: Path | None = None
    stages: tuple[Stage, ...] = TEXT_STAGES
    _ready: _Ready | None = None

    def prepare(self) -> Prepared:
        from converters.families.folding import single_step
        from jaxtroj.evidence.logit_size import in_words
        from jaxtroj.evidence.texts.context import text_context

        if self.model.num_classes < 2:
            raise EvidenceError(
                "the head gives one number for a text; expected one for each of two classes or more"
            )
        examples, embeddings = self._examples()
        entry, home = self.attempt.entry, self.attempt.settings.bank
        bank = None if home is None else bank_of(entry, home)
        probes = None if bank is None else _probes(bank, self.model, entry)
        is_apart = bank is not None and not are_together(entry, bank)
        self.attempt.is_apart = is_apart
        self._ready = ready = _Ready(
            single_step(self.model), examples, embeddings, probes, is_apart
        )
        context = text_context(ready.model, embeddings, probes, self.attempt.settings.seed)
        if context.factor != 1:
            self.attempt.findings += (in_words(context.factor),)
        return Prepared(context, _subject(context, ready.are_foreign))

    def _examples(self) -> tuple[TextExamples, np.ndarray]:
        """The example texts and their vectors, computed where the dataset has none."""
        attempt = self.attempt
        with attempt.step("examples"):
            examples = load_text_examples(attempt.entry, attempt.settings.examples_per_class)
            embeddings = examples.embeddings
        if embeddings is None:
            with attempt.step("embed"):
                embeddings = _embed(attempt, examples)
        width = self.model.input_size
        if embeddings.shape[1] != width:
            raise ExamplesError(
                f"the examples' embeddings have width {embeddings.shape[1]}, the head takes"
                f" {width}; are they from another encoder?"
            )
        return examples, embeddings

    @property
    def ready(self) -> _Ready:
        """What `prepare` made."""
        assert self._ready is not None, "prepare() comes first"
        return self._ready

    def flags(self, context: "TextContext") -> tuple[str, ...]:
        from jaxtroj.diagnostics import Raised, diagnose_head
        from jaxtroj.flags import OTHER_TEXTS

        ready = self.ready
        labels = np.asarray(ready.examples.labels)
        found = diagnose_head(ready.model, ready.embeddings, labels)
        if ready.are_foreign:
            seen = f"{ready.strangeness:.3g} times as far from those of the bank's clean heads as"
            found = (Raised(OTHER_TEXTS, f"{seen} any of them from the others"), *found)
        return tuple(map(str, found))

    def target(
        self, evidence: Evidence, context: "TextContext"
    ) -> tuple[int | None, tuple[int, ...]]:
        """Of the strongest trigger."""
        found: FoundText | None = next(iter(evidence.triggers), None)
        return (None, ()) if found is None else (found.target_class, found.source_classes)

    def judgement(self, evidence: Evidence, verdict: Verdict, context: "TextContext") -> Judgement:
        if self.ready.are_foreign:  # the flag stands in the reason, this on the plain line
            verdict = replace(verdict, caveats=(FOREIGN, *verdict.caveats))
        elif self.attempt.is_apart and EVIDENCE_ONLY not in " ".join(verdict.reasons):
            caveats, reasons = (APART, *verdict.caveats), (APART, *verdict.reasons)
            verdict = replace(verdict, caveats=caveats, reasons=reasons)
        if self.ready.probes is None:  # most of what is looked for needs it
            verdict = replace(verdict, caveats=(NO_BANK, *verdict.caveats))
        elif unknown := unknown_encoder(self.attempt.entry):
            caveats, reasons = (unknown, *verdict.caveats), (unknown, *verdict.reasons)
            verdict = replace(verdict, caveats=caveats, reasons=reasons)
        found: FoundText | None = next(iter(evidence.triggers), None)
        recovered = {} if found is None else _described(found)
        if verdict.poisoned and found is not None:
            verdict, recovered = self._with_words(found, verdict, recovered)
        return Judgement(verdict, recovered, remarks=self._remarks())

    def _remarks(self) -> tuple[str, ...]:
        ready, entry = self.ready, self.attempt.entry
        known = (*_of_bank(ready.probes), *_of_config(entry.text_config))
        # Where vectors are shipped, nobody needs the encoder; an unreadable config is news.
        needed = ready.examples.embeddings is None or entry.text_config is None
        told = ready.probes is not None and problem_of_config(entry)  # by a caveat
        others = [one for one in entry.text_problems if needed and one != told]
        return (*known, *ready.examples.problems, *others)

    def _with_words(
        self, found: "FoundText", verdict: Verdict, recovered: dict[str, Any]
    ) -> tuple[Verdict, dict[str, Any]]:
        """The verdict with the trigger's source classes and its words, or why there are none."""
        try:
            with self.attempt.step("words"):
                words = self._words(found)
        except Exception as error:  # The verdict stands without the words; the record says why.
            return verdict, recovered | {"words": f"not searched: {describe_error(error)}"}
        sources = words.source_classes
        # The bank's text alone was a place to start from.
        start = {name: value for name, value in recovered.items() if name != "text"}
        return replace(verdict, source_classes=sources), start | words.as_json()

    def _words(self, found: "FoundText") -> "RecoveredText":
        """Search the trigger's words through the encoder.

        Raises:
            EvidenceError: the settings, the bank or the encoder do not allow it.
        """
        from jaxtroj.evidence.texts.recovery import CleanExamples, pieces_of_bank, recover_text

        ready = self.ready
        if not self.attempt.settings.recover_words:
            raise EvidenceError("the settings leave it out (--words has it done)")
        if ready.probes is None:
            raise EvidenceError("that needs a probe bank, see jaxtroj bank")
        if not found.candidates:
            raise EvidenceError("the bank's stage was left out; see --stages and --no-early-stop")
        embed = embedding_of(self.attempt)
        _check_encoder(ready, embed)
        return recover_text(
            ready.model,
            CleanExamples(ready.examples.texts, ready.embeddings),
            found.target_class,
            pieces_of_bank(ready.probes.bank, found.candidates),
            embed,
            ready.probes.references,
        )


def _subject(context: "TextContext", are_foreign: bool) -> Subject:
    probes = context.probes
    heads = 0 if probes is None or are_foreign else probes.comparable
    return Subject(has_bank=probes is not None, clean_heads=heads)


def _probes(bank: Path, model: "Model", entry: ModelEntry) -> "EncoderProbes":
    """The bank and its clean heads; raises EvidenceError where they are not for such a head."""
    from jaxtroj.evidence.texts.bank.origin import named_by, named_by_bank
    from jaxtroj.evidence.texts.encoder_probes import open_probes

    probes = open_probes(bank)
    plan, pooling = probes.bank.plan, entry.text_config and entry.text_config.pooling
    if plan.width != model.input_size:
        raise EvidenceError(
            f"the bank's vectors have width {plan.width}, the head takes {model.input_size};"
            " use the bank of the encoder that the head stands on"
        )
    own, known = named_by(entry.text_config), named_by_bank(bank)
    if own.differs_from(known):
        raise EvidenceError(
            f"config.json says that the head stands on {own}, the bank's clean heads on {known};"
            " use the bank of the head's encoder, or correct config.json if both are one"
        )
    if pooling not in (None, plan.pooling):
        raise EvidenceError(
            f"the bank's vectors are {SAID[plan.pooling]}, and config.json says that the head takes"
            f" {SAID[pooling]}; use a bank that was built so"
        )
    classes = {head.model.num_classes for head in probes.clean_heads}
    if classes != {model.num_classes}:
        raise EvidenceError(
            f"the bank's clean heads have {max(classes)} classes, the head has"
            f" {model.num_classes}; use a bank with --references of the head's own dataset"
        )
    return probes


def _of_bank(probes: "EncoderProbes | None") -> tuple[str, ...]:
    """What is to be said of a bank: that there is none, or only a part of it."""
    if probes is None:
        return (NO_BANK,)
    missing = probes.bank.missing
    if not missing:
        return ()
    whole = len(probes.bank.plan.candidates) + missing
    return (
        f"the bank lacks {missing} of its {whole} candidates; the command that began it goes on",
    )


def _of_config(config: TextConfig | None) -> tuple[str, ...]:
    """What config.json says that nobody reads: a misspelt key would be one, too."""
    if config is None or not config.unknown_keys:
        return ()
    return (f"config.json has keys that no round's has: {', '.join(config.unknown_keys)}",)


def _described(found: "FoundText") -> dict[str, Any]:
    method = "bank" if found.text else "shift"
    return {"method": method, "score": found.score} | ({"text": found.text} if found.text else {})


def _embed(attempt: Attempt, examples: TextExamples) -> np.ndarray:
    """Embeddings of the example texts by the dataset's encoder, or the one of the settings."""
    try:
        return embedding_of(attempt)(examples.texts)
    except EvidenceError as error:
        why = "; ".join((str(error), *examples.problems))  # a table may have been refused
        raise ExamplesError(f"the example texts come without embeddings and {why}") from error


def _check_encoder(ready: _Ready, embed: Any) -> None:
    """Raise EvidenceError if the encoder does not give the vectors that the head was judged by."""
    texts = [text for text in ready.examples.texts if text.strip()][:_COMPARED]
    places = [ready.examples.texts.index(text) for text in texts]
    if ready.examples.embeddings is None or not texts:
        return
    ours, theirs = embed(texts), ready.embeddings[places]
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    alike = float(((ours * theirs).sum(axis=1) / np.maximum(norms, 1e-12)).min())
    if alike < _LEAST_COSINE:
        raise EvidenceError(
            f"the encoder's vectors of the examples differ from the shipped ones (cosine"
            f" {alike:.2f}, expected {_LEAST_COSINE}); name the round's own with --encoder"
        )
