"""What `jaxtroj.detect` answers: a record, and its trigger as arrays and as a picture."""

import html
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from jaxtroj.errors import JaxtrojError
from jaxtroj.record import Record
from jaxtroj.record_text import text_line, trigger_png, word_of

_MASKED = ("clean", "triggered", "mask", "pattern")
_CHANGED = ("clean", "triggered", "difference")


class ScanError(JaxtrojError):
    """One network could not be judged.

    Attributes:
        record: of status `failed`, with the reason and what was found out before.
    """

    def __init__(self, record: Record):
        super().__init__(record.reason)
        self.record = record

    def __reduce__(self):
        # Exceptions are made again of their message alone, in copies and in pools of processes.
        return type(self), (self.record,), vars(self)


@dataclass(frozen=True, repr=False, eq=False)
class FoundTrigger:
    """A recovered trigger on one clean example; notebooks show its picture.

    Attributes:
        panels: its picture: each float32 `[h, w, c]` in [0, 1], RGB or grey: the clean example, the
            same with the trigger, then of kinds with a mask that and the pattern under it, of
            others the difference about grey.
        facts: numbers of it, as `Record.recovered`: `kind`, `method`, `score` and the like.
    """

    panels: tuple[np.ndarray, ...]
    facts: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """Kind of trigger, such as "patch"."""
        return str(self.facts["kind"])

    @property
    def clean(self) -> np.ndarray:
        """The clean example `[h, w, c]` in [0, 1]."""
        return self.panels[0]

    @property
    def triggered(self) -> np.ndarray:
        """The same example with the trigger, `[h, w, c]` in [0, 1]."""
        return self.panels[1]

    @property
    def array(self) -> np.ndarray:
        """What the trigger changes in that example: triggered minus clean, `[h, w, c]`."""
        return self.triggered - self.clean

    @property
    def mask(self) -> np.ndarray | None:
        """Blending weight `[h, w, 1]` in [0, 1]; None of kinds without a mask."""
        return self.named["mask"][..., :1] if "mask" in self.named else None

    @property
    def pattern(self) -> np.ndarray | None:
        """What is blended in, times the mask, `[h, w, c]`; None of kinds without a mask."""
        return self.named.get("pattern")

    @property
    def named(self) -> dict[str, np.ndarray]:
        """The panels by what they show."""
        names = _MASKED if len(self.panels) == len(_MASKED) else _CHANGED
        return dict(zip(names, self.panels, strict=True))

    @cached_property
    def png(self) -> bytes:
        """The panels side by side, as a PNG file; small pictures are enlarged."""
        return trigger_png(self.panels)

    def __repr__(self) -> str:
        share = f"{self.facts.get('score', 0.0):.2f}"
        return (
            f"<{self.kind} trigger, works on {share} of held-out examples: {', '.join(self.named)}>"
        )

    def _repr_png_(self) -> bytes:
        return self.png

    def _repr_html_(self) -> str:
        names = ", ".join(self.named)
        image = b64encode(self.png).decode()
        return f'<img alt="{names}" title="{names}" src="data:image/png;base64,{image}">'


@dataclass(frozen=True, eq=False)
class Verdict:
    """The answer for one network; equal to itself alone, compare `record` for its content.

    Attributes:
        record: all that is known, as a scan stores it.
        trigger: what was recovered; None for a network that is called clean, or of text.
    """

    record: Record
    trigger: FoundTrigger | None = None

    @property
    def probability(self) -> float:
        """P(poisoned), in (0, 1)."""
        return self.record.probability

    @property
    def poisoned(self) -> bool:
        """Whether the probability exceeds the threshold of the settings."""
        return self.record.poisoned

    @property
    def target_class(self) -> int | None:
        """The class that the trigger forces; None where the network is called clean."""
        return self.record.target_class

    @property
    def source_classes(self) -> tuple[int, ...]:
        """The classes that the trigger works from."""
        return self.record.source_classes

    @property
    def reasons(self) -> tuple[str, ...]:
        """What the verdict rests on, in sentences: doubts first, then what weighs most."""
        return tuple(part for part in self.record.reason.split("; ") if part)

    @property
    def evidence(self) -> Mapping[str, float]:
        """Named finite numbers, see docs/evidence.md."""
        return self.record.evidence

    def __str__(self) -> str:
        return text_line(self.record)

    def _repr_html_(self) -> str:
        rows = [("verdict", word_of(self.record)), ("probability", f"{self.probability:.3f}")]
        if self.target_class is not None:
            rows.append(("target class", str(self.target_class)))
        if self.source_classes:
            rows.append(("source classes", " ".join(map(str, self.source_classes))))
        rows.append(("searched for", ", ".join(self.record.searched)))
        picture = "" if self.trigger is None else self.trigger._repr_html_()
        return f"{_table(rows)}{picture}{_list(self.reasons)}"


def _table(rows: Sequence[tuple[str, str]]) -> str:
    cells = (f"<tr><th>{name}</th><td>{html.escape(text)}</td></tr>" for name, text in rows)
    return f"<table>{''.join(cells)}</table>"


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{html.escape(line)}</li>' for line in lines)}</ul>"
