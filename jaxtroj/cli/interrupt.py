"""Ctrl-C that is not lost.

Python drops an exception that is raised inside a callback of the garbage collector, and jax has
one that runs at every collection. A long command therefore notes the signal, too, and asks now and
then.
"""

import signal
from types import FrameType
from typing import Self


class Interrupts:
    """While entered, SIGINT raises KeyboardInterrupt at once, and again at the next `check`."""

    def __init__(self) -> None:
        self._seen = False

    def check(self) -> None:
        """Raises KeyboardInterrupt if SIGINT came and was lost on its way."""
        if self._seen:
            self._seen = False
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._seen = True
        raise KeyboardInterrupt
