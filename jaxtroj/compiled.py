"""Compiled programs that this process holds: how near they bring it to a limit, and how they go.

Linux gives a process some 65,000 mappings of memory, and a program of XLA takes several. A process
that scans network after network by `scan_model` or `detect` came to that limit after some forty of
different architectures, and LLVM ended it. Workers of a scan drop theirs long before
(`jaxtroj.engine.programs`).
"""

import gc
import sys
from pathlib import Path

from jaxtroj import runtime

_MOST = 0.5
_OWN, _LIMIT = Path("/proc/self/maps"), Path("/proc/sys/vm/max_map_count")


def mappings() -> float:
    """Share of the memory mappings that the kernel allows which this process has; 0 if unknown."""
    try:
        with _OWN.open("rb") as lines:
            return sum(1 for _ in lines) / int(_LIMIT.read_bytes())
    except (OSError, ValueError, ZeroDivisionError):
        return 0.0


def drop() -> None:
    """Forget all compiled programs and what jax remembers of tracing them.

    All of them go at once, for jax does not say whose they are, the caller's own among them. What
    is called again is loaded from the disk where programs are kept there, else compiled anew.
    """
    if "jax" in sys.modules:
        import jax

        jax.clear_caches()
    gc.collect()
    runtime.give_back(above=0)


def make_room(most: float = _MOST) -> None:
    """Drop them where mappings are used beyond such a share of what is allowed."""
    if mappings() > most:
        drop()
