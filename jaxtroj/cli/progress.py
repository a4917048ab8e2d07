"""Progress on stderr, results on stdout, without one garbling the other."""

import sys
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from jaxtroj.record import shown


class Progress:
    """What a command is doing now and has done; use as a context manager.

    On a terminal the present step is a live line with a spinner; elsewhere only `line` shows.
    """

    def __init__(self) -> None:
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
        print(text, flush=True)
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
