"""What is known of a scan's records without keeping them: counts and scores."""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import repeat

from jaxtroj.accepted import NONE, Accepted
from jaxtroj.record import EVIDENCE_ONLY, Record, is_evidence_only
from jaxtroj.scoring import Scores, contributions, score


@dataclass
class Tally:
    """The answers of a scan so far; sixteen bytes for a model whose truth is known, else none.

    Attributes:
        total: models of the scan.
        done: those with a record.
        fresh: those of them that this session scanned.
        accepted: poisoned models that count as accepted.
        at_base_rate: models whose truth is known and that have no answer: failed ones, and those of
            which only evidence was gathered.
    """

    total: int
    done: int = 0
    fresh: int = 0
    accepted: Accepted = NONE
    at_base_rate: int = 0
    _loss: float = 0.0
    _probabilities: array = field(default_factory=lambda: array("d"))
    _truths: array = field(default_factory=lambda: array("b"))
    _kinds: dict[tuple[str, bool, bool, bool], tuple[Record, int]] = field(default_factory=dict)

    def add(self, record: Record, fresh: bool, poisoned: bool | None = None) -> None:
        """Count a record; `poisoned` is the truth, if it is known and wanted."""
        self.done += 1
        self.fresh += fresh
        gathered = is_evidence_only(record)
        kind = (
            record.status,
            record.poisoned,
            gathered,
            self.accepted.of(record) is not None,
        )
        bare = replace(record, evidence={}, seconds={}, reason=EVIDENCE_ONLY if gathered else "")
        self._kinds[kind] = (bare, self._kinds.get(kind, (bare, 0))[1] + 1)
        if poisoned is not None and record.status != "skipped":
            self._loss += float(contributions([record.probability], [poisoned])[0])
            self._probabilities.append(record.probability)
            self._truths.append(poisoned)
            self.at_base_rate += record.status != "ok" or gathered

    def kinds(self) -> Iterator[Record]:
        """A record for each that was counted, alike in status and answer, to be counted again."""
        for record, times in self._kinds.values():
            yield from repeat(record, times)

    @property
    def log_score(self) -> float | None:
        """Log score so far, nats; None while no truth is known."""
        return self._loss / len(self._truths) if self._truths else None

    def scores(self) -> Scores | None:
        """All scores; None while no truth is known."""
        return score(self._probabilities, self._truths) if self._truths else None
