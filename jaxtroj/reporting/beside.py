"""Another run of the same models, laid beside the one that is reported."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jaxtroj.accepted import Accepted
from jaxtroj.record import Record
from jaxtroj.record_text import word_of
from jaxtroj.reporting.content import Content, read_content


@dataclass(frozen=True)
class Beside:
    """The other run, and how it differs.

    Attributes:
        name: of its folder.
        records: by name of the model.
        accepted: its acceptances.
        both: how many models are in both runs.
        changed: those with another verdict; other_files: those with another digest.
        only_here: how many models only the reported run has.
        only_there: names of those that only the other has.
    """

    name: str
    records: Mapping[str, Record]
    accepted: Accepted
    both: int
    changed: int
    other_files: int
    only_here: int
    only_there: tuple[str, ...]

    def word(self, record: Record) -> str:
        """The other run's answer in one word."""
        return word_of(record, self.accepted)


def read_beside(run: Path, content: Content, accepted: Accepted) -> Beside:
    """Read another run folder. Raises StoreError as `read_content`.

    Args:
        run: its folder.
        content: of the run that is reported.
        accepted: poisoned models of the other run that are shown as accepted.
    """
    other = read_content(run, accepted=accepted)
    theirs = {record.model: record for record in other.records}
    pairs = [(r, theirs[r.model]) for r in content.records if r.model in theirs]
    ours = {record.model for record in content.records}
    return Beside(
        name=other.name,
        records=theirs,
        accepted=accepted,
        both=len(pairs),
        changed=sum(content.word(a) != other.word(b) for a, b in pairs),
        other_files=sum(a.sha256 != b.sha256 for a, b in pairs),
        only_here=len(ours) - len(pairs),
        only_there=tuple(name for name in theirs if name not in ours),
    )
