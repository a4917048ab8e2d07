"""Arms over several devices of one process: each device runs the program of one device on a chunk
of its own, so answers are the same whatever the number of devices, but for float32 rounding.

Devices exchange nothing within a step. Before the steps the network and the examples are copied to
every device once, and each chunk to its own; afterwards the arms come back.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_AXIS = "arms"
Step = Callable[[Any, Any, Any, Any], Any]
"""Takes params, states, tasks and examples to states."""


def devices_for(chunks: int) -> int:
    """How many of this process's devices so many chunks of arms are spread over."""
    return max(1, min(chunks, jax.local_device_count()))


@lru_cache(maxsize=8)
def mesh_of(devices: int) -> Mesh:
    """The first devices in a row."""
    return Mesh(np.array(jax.local_devices()[:devices]), (_AXIS,))


def everywhere(tree: Any, devices: int) -> Any:
    """Arrays copied to every device."""
    return jax.device_put(tree, NamedSharding(mesh_of(devices), PartitionSpec()))


def dealt(tree: Any, devices: int) -> Any:
    """Arrays cut along their first axis, a part to each device."""
    return jax.device_put(tree, NamedSharding(mesh_of(devices), PartitionSpec(_AXIS)))


def on_each(step: Step, devices: int) -> Step:
    """A step of one chunk as a step of a chunk on each device; params and examples lie
    `everywhere`, states and tasks are `dealt`."""
    whole, part = PartitionSpec(), PartitionSpec(_AXIS)
    return jax.shard_map(
        step, mesh=mesh_of(devices), in_specs=(whole, part, part, whole), out_specs=part,
        check_vma=False,
    )  # fmt: skip
