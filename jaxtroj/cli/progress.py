"""Progress on stderr: a live line on a terminal, plain lines elsewhere."""

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.status import Status


class Progress:
    """What a command is doing now (`update`) and has done (`line`); use as a context manager.

    On a terminal the present step is a live line with a spinner; elsewhere only `line` shows.
    """

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._status: Status | None = None
        self._started = time.monotonic()

    def update(self, text: str) -> None:
        """Replace the live line."""
        if self._status is not None:
            self._status.update(escape(text))

    def line(self, text: str) -> None:
        """Add one line that stays."""
        self._console.print(text, markup=False)

    @property
    def seconds(self) -> float:
        """Wall time since the start."""
        return time.monotonic() - self._started

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def remaining(done: int, total: int, seconds: float) -> str:
    """Time left in words, from the models finished so far.

    >>> remaining(1, 4, 30.0), remaining(0, 4, 0.0), remaining(10, 1000, 100.0)
    ('1.5 min left', '', '2.8 h left')
    """
    if not 0 < done < total:
        return ""
    left = seconds / done * (total - done)
    if left < 60:
        return f"{left:.0f} s left"
    return f"{left / 60:.1f} min left" if left < 3600 else f"{left / 3600:.1f} h left"
