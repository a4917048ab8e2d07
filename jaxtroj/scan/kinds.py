"""What a scan asks of each kind of model; `images` and `texts` answer."""

from dataclasses import dataclass
from typing import Any, Protocol

from jaxtroj.calibration import Verdict
from jaxtroj.evidence.context import Context
from jaxtroj.evidence.gather import Evidence
from jaxtroj.evidence.stage import Stage, Subject
from jaxtroj.scan.records import Judgement


@dataclass(frozen=True)
class Prepared:
    """A model ready for its stages.

    Attributes:
        context: what the stages are given.
        subject: what their choice depends on.
    """

    context: Context
    subject: Subject


class KindOfScan(Protocol):
    """One opened model of a kind on its way to its record."""

    stages: tuple[Stage, ...]

    def prepare(self) -> Prepared:
        """Read the examples and whatever else the stages need."""
        ...

    def flags(self, context: Any) -> tuple[str, ...]:
        """Doubts about the model's input, the gravest first."""
        ...

    def target(self, evidence: Evidence, context: Any) -> tuple[int | None, tuple[int, ...]]:
        """Target and source classes, where a trigger or a sign names any; else None and ()."""
        ...

    def judgement(self, evidence: Evidence, verdict: Verdict, context: Any) -> Judgement:
        """The verdict with the trigger made visible, and remarks."""
        ...
