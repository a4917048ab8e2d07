"""The caller's own settings of jax, put aside while a scan runs in the caller's process.

Some forbid what jax does by default: promotion of ranks and types, and implicit transfers. A scan
is written for the defaults, and failed under them.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

_DEFAULTS = (
    ("jax_numpy_rank_promotion", "numpy_rank_promotion", "allow"),
    ("jax_numpy_dtype_promotion", "numpy_dtype_promotion", "standard"),
    ("jax_transfer_guard_host_to_device", "transfer_guard_host_to_device", "allow"),
    ("jax_transfer_guard_device_to_host", "transfer_guard_device_to_host", "allow"),
    ("jax_transfer_guard_device_to_device", "transfer_guard_device_to_device", "allow"),
)
"""Setting, jax's context manager of it, and its default."""


@contextmanager
def usual_jax() -> Iterator[None]:
    """Within it jax has these defaults, in this thread; what is set so already is left alone."""
    import jax

    with ExitStack() as stack:
        for setting, manager, default in _DEFAULTS:
            value: Any = getattr(jax.config, setting, None)
            if getattr(value, "value", value) not in (None, default):
                stack.enter_context(getattr(jax, manager)(default))
        yield
