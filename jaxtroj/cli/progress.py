"""Progress on stderr, results on stdout, without one garbling the other."""

import shutil
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from jaxtroj.record import Record, shown

if TYPE_CHECKING:
    from jaxtroj.accepted import Accepted

_WIDTHS = 60, 120  # of lines on a terminal, least and most


class Progress:
    """What a command is doing now and has done; use as a context manager.

    On a terminal the present step is a live line with a spinner; elsewhere only `line` shows.
    """

    def __init__(self) -> None:
        self.results = sys.stdout
        """Where results go, also while what others print is kept from it."""
        self._console = Console(file=sys.stderr, highlight=False, soft_wrap=True, emoji=False)
        self._spinner = Spinner("dots")
        self._live: Live | None = None

    def update(self, text: str) -> None:
        """Replace the live line; names in it may be a stranger's, so they are escaped."""
        self._spinner.update(text=Text(shown(text)))

    def line(self, text: str) -> None:
        """Add one line that stays, on stderr; escaped as in `update`."""
        self._console.print(shown(text), markup=False)

    def result(self, text: str) -> None:
        """Add one line to stdout, at once."""
        if self._live is not None:
            self._live.stop()
        try:
            print(text, file=self.results, flush=True)
        finally:
            if self._live is not None:
                self._live.start()

    @property
    def is_live(self) -> bool:
        """Whether there is a live line for people to look at."""
        return self._live is not None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            # rich would send our stdout to its own console, away from a pipe: not wanted.
            self._live = Live(
                self._spinner,
                console=self._console,
                transient=True,
                refresh_per_second=4,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def record_format(
    as_json: bool, results: TextIO | None = None
) -> "Callable[[Record, Accepted], str]":
    """How a command shows a record on stdout, or where results go instead: one line, or on a
    terminal as many as people need."""
    from jaxtroj.record_text import json_line, text_line, text_lines

    if as_json:
        return json_line
    if not (results or sys.stdout).isatty():
        return text_line
    least, most = _WIDTHS
    return partial(text_lines, width=min(max(shutil.get_terminal_size().columns, least), most))


def remaining(done: int, total: int, seconds: float) -> str:
    """Time left in words, from `done` of `total` models that took `seconds`.

    >>> remaining(1, 4, 30.0), remaining(0, 4, 0.0), remaining(10, 1000, 100.0)
    ('1.5 min left', '', '2.8 h left')
    """
    if not 0 < done < total:
        return ""
    left = seconds / done * (total - done)
    if left < 60:
        return f"{left:.0f} s left"
    return f"{left / 60:.1f} min left" if left < 3600 else f"{left / 3600:.1f} h left"
