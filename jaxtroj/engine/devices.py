"""Which GPUs there are, told without loading jax, and how much memory this machine has."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jaxtroj import runtime

_LISTED = re.compile(r"UUID: ((?:GPU|MIG)-[^)\s]+)")
_SHARE_OF_MEMORY = 0.9
_GPU_SHARE = 0.9
_CGROUPS = Path("/sys/fs/cgroup")
_V2, _V1, _V1_FOLDER = "memory.max", "memory.limit_in_bytes", "memory"
_OWN_CGROUPS = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Slot:
    """Where one worker runs: a name for people, what its environment must say; None is nothing."""

    name: str
    environment: Mapping[str, str | None] = field(default_factory=dict)


def local_slots(workers: int | None) -> list[Slot]:
    """A slot for each GPU, or one on the processor; `workers` of them if that is given.

    More workers than GPUs share them, and their memory in equal parts.
    """
    gpus = visible_gpus()
    count = workers or max(1, len(gpus))
    if not gpus:
        return [Slot("the processor")] * count
    sharing = -(-count // len(gpus))
    slots = []
    for number in range(count):
        gpu = gpus[number % len(gpus)]
        environment: dict[str, str | None] = {"CUDA_VISIBLE_DEVICES": gpu}
        if sharing > 1 and "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ:
            environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] = f"{_GPU_SHARE / sharing:.3f}"
        slots.append(Slot(f"GPU {gpu}", environment))
    return slots


def visible_gpus() -> list[str]:
    """What `CUDA_VISIBLE_DEVICES` of each usable GPU would be; none where jax cannot use them."""
    if not runtime.may_use_gpus(os.environ):
        return []
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        names = [name.strip() for name in chosen.split(",")]
        return [name for name in names if name and name != "-1"]
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):  # no driver, so no GPU that jax could use
        return []
    return parse_gpu_list(listed.stdout)


def parse_gpu_list(text: str) -> list[str]:
    """UUIDs in what `nvidia-smi -L` prints; a GPU that is divided counts by its parts.

    >>> parse_gpu_list("GPU 0: H200 (UUID: GPU-a)\\nGPU 1: A30 (UUID: GPU-b)\\n  MIG 1g.6gb"
    ...                " Device 0: (UUID: MIG-c)\\n  MIG 1g.6gb Device 1: (UUID: MIG-d)")
    ['GPU-a', 'MIG-c', 'MIG-d']
    """
    found: list[str] = []
    for name in _LISTED.findall(text):
        if name.startswith("MIG-") and found and found[-1].startswith("GPU-"):
            found.pop()
        found.append(name)
    return found


def memory_of_machine() -> int:
    """Bytes that this process may use: the machine's, or its control groups' if that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([total, *cgroup_limits(_OWN_CGROUPS, _CGROUPS)])


def cgroup_limits(own: Path, root: Path) -> list[int]:
    """Limits of memory, in bytes, of a process's control groups and of those that they lie in.

    In a container `own` may name a path that is not mounted there; the root of what is mounted is
    then the container's group, so the root is always looked at.

    Args:
        own: as `/proc/self/cgroup`, lines such as `0::/user.slice` or `4:memory:/job_7`.
        root: where control groups are mounted.
    """
    found = []
    for folder, name in _cgroup_folders(own, root):
        try:
            text = (folder / name).read_text().strip()
        except OSError:  # this machine has no such control group, or sets no limit to it
            continue
        if text.isdecimal():
            found.append(int(text))
    return found


def _cgroup_folders(own: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """Folders of control groups, and what their file of the limit is called."""
    yield root, _V2
    yield root / _V1_FOLDER, _V1
    try:
        lines = os.fsdecode(own.read_bytes()).splitlines()
    except OSError:  # no Linux, or no control groups
        return
    for line in lines:
        _, controllers, place = (*line.split(":", 2), "", "")[:3]
        if controllers and _V1_FOLDER not in controllers.split(","):
            continue
        home, name = (root / _V1_FOLDER, _V1) if controllers else (root, _V2)
        parts = [part for part in place.split("/") if part not in ("", "..")]
        for count in range(len(parts), 0, -1):
            yield home.joinpath(*parts[:count]), name


def memory_per_worker(workers: int) -> int:
    """Bytes that each of several workers may take before the machine is in danger."""
    return int(memory_of_machine() * _SHARE_OF_MEMORY) // workers
