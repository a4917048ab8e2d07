"""What a worker keeps of the networks that it has met: programs, until they are too many."""

from jaxtroj import compiled, runtime

MOST_GROWTH = 2**30
"""Bytes by which a worker may grow: programs of some twenty small networks or more."""


class Programs:
    """The compiled programs of this process, and what jax remembers of tracing them.

    All of them go at once, for jax does not say whose they are; the next model has its own loaded
    from the disk again, which takes seconds. Models of one architecture share theirs, so a folder
    of one never grows that far.

    Args:
        most: bytes by which the process may grow beyond what it held after its first model.
    """

    def __init__(self, most: int = MOST_GROWTH):
        self._most = most
        self._after_first: int | None = None

    def too_many(self) -> bool:
        """Whether the process has grown too far; to be asked after each model."""
        held = runtime.in_use()
        if self._after_first is None:
            self._after_first = held
        return held - self._after_first > self._most

    def drop(self) -> None:
        """Forget them all; the next model counts as the first."""
        compiled.drop()
        self._after_first = None
