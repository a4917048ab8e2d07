"""Text classifiers end to end: example texts in, words that flip them out."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from jaxtroj.calibration import Verdict
from jaxtroj.errors import ExamplesError
from jaxtroj.evidence.gather import Evidence
from jaxtroj.evidence.stage import Stage, Subject
from jaxtroj.evidence.stages import CLASSIFIER_STAGES
from jaxtroj.rounds.example_names import UNKNOWN_LABEL
from jaxtroj.scan.attempt import Attempt
from jaxtroj.scan.kinds import Prepared
from jaxtroj.scan.pictures import absent_classes
from jaxtroj.scan.records import Judgement

if TYPE_CHECKING:
    from converters.model import Model
    from jaxtroj.evidence.classifiers.context import ClassifierContext
    from jaxtroj.evidence.classifiers.found import FoundWords
    from jaxtroj.evidence.texts.labelled_texts import LabelledText

_PER_CLASS, _MOST = 32, 128


@dataclass
class ClassifierScan:
    """One text classifier, opened already; see `KindOfScan`."""

    attempt: Attempt
    model: "Model"
    trigger_path: None = None
    stages: tuple[Stage, ...] = CLASSIFIER_STAGES
    _examples: "tuple[LabelledText, ...]" = ()
    _notes: tuple[str, ...] = ()

    def prepare(self) -> Prepared:
        from converters.encoders.tokenizer import load_tokenizer
        from converters.hub.folder import snapshot_of
        from jaxtroj.evidence.classifiers import copied
        from jaxtroj.evidence.classifiers.carriers import MOST_WORDS
        from jaxtroj.evidence.classifiers.context import classifier_context
        from jaxtroj.evidence.classifiers.tokens import token_network
        from jaxtroj.evidence.classifiers.vocabulary import odd_words
        from jaxtroj.evidence.logit_size import in_words

        attempt = self.attempt
        with attempt.step("examples"):
            self._examples, self._notes = self._read()
        with attempt.step("tokenizer"):
            own = attempt.entry.tokenizer_path or snapshot_of(attempt.entry.model_path)
            tokenizer = load_tokenizer(attempt.settings.tokenizer or own)
        texts = [" ".join(one.text.split()[:MOST_WORDS]) for one in self._examples]
        network = token_network(self.model, tokenizer, texts)
        attempt.findings += odd_words(network)
        absent = self._absent()
        context = classifier_context(network, texts, attempt.settings.seed, absent=absent)
        if copies := context.network.copies:
            attempt.findings += (copied.in_words(copies),)
        if context.factor != 1:
            attempt.findings += (in_words(context.factor),)
        return Prepared(context, Subject())

    def _read(self) -> "tuple[tuple[LabelledText, ...], tuple[str, ...]]":
        """The example texts that are used, and what is to be said of the others."""
        from jaxtroj.evidence.texts.labelled_texts import draw_by_content, read_texts_with_notes

        path = self.attempt.entry.examples_path
        if path is None:
            raise ExamplesError(
                "there are no example texts; name a folder of class_0_example_1.txt and so on, or a"
                " CSV or JSONL file of texts with labels: detect takes --examples PATH, scan a"
                " column examples of a CSV manifest"
            )
        per_class = self.attempt.settings.examples_per_class or _PER_CLASS
        texts, notes = read_texts_with_notes(path)
        found = draw_by_content(texts, per_class, _MOST)
        largest = max(one.label for one in found)
        if largest >= self.model.num_classes:
            raise ExamplesError(
                f"an example text is of class {largest}, the model has classes 0 to"
                f" {self.model.num_classes - 1}"
            )
        return tuple(found), notes

    def _absent(self) -> list[int]:
        """Classes without an example text; none where a text has no label."""
        labels = self._labels
        if (labels == UNKNOWN_LABEL).any():
            return []
        return np.setdiff1d(np.arange(self.model.num_classes), labels).tolist()

    @property
    def _labels(self) -> np.ndarray:
        """Of the example texts that are used, int `[n]`."""
        return np.array([one.label for one in self._examples])

    def flags(self, context: "ClassifierContext") -> tuple[str, ...]:
        from jaxtroj.diagnostics import diagnose_texts
        from jaxtroj.evidence.classifiers.carriers import cut_text

        known = {cut_text(context.network, one.text): one.label for one in self._examples}
        labels = np.array([known[text] for text in context.carriers.texts])
        likely = "labels in another order, or another tokenizer, likely"
        return tuple(map(str, diagnose_texts(context.carriers.margins, labels, likely)))

    def target(
        self, evidence: Evidence, context: "ClassifierContext"
    ) -> tuple[int | None, tuple[int, ...]]:
        """Of the strongest words."""
        found: FoundWords | None = next(iter(evidence.triggers), None)
        if found is None:
            return None, ()
        return found.words.target_class, found.words.source_classes

    def judgement(
        self, evidence: Evidence, verdict: Verdict, context: "ClassifierContext"
    ) -> Judgement:
        found: FoundWords | None = next(iter(evidence.triggers), None)
        recovered = {} if found is None else found.as_json()
        if limit := absent_classes(self._labels, self.model.num_classes):
            reasons, caveats = (*verdict.reasons, limit), (*verdict.caveats, limit)
            verdict = replace(verdict, reasons=reasons, caveats=caveats)
        return Judgement(verdict, recovered, remarks=self._notes)
