"""Settings of the C library and of XLA that make jax fast, for this process and its children.

Memory: jax takes one block for all that a program needs, half a gigabyte for a DenseNet121
gradient, and frees it at the end of each call. By default glibc asks the kernel for every such
block anew, which then clears it page by page: a fifth of a gradient's time. Blocks above 32 MiB
cannot be kept by a larger M_MMAP_THRESHOLD (glibc refuses it), nor in the arenas of its threads.

XLA: jaxlib 0.10 gives convolutions to a library that hardly gains from a second core and is up to
three times slower without padding; 0.12 does not. On GPUs it times every kernel that a product or
convolution could have, Triton's too, and checks what each computes: on an H100 a network's first
scan compiled for minutes. cuDNN's and cuBLAS's alone, unchecked, are chosen in seconds and no
slower. Untimed ones are: up to fifty times. See docs/performance.md for the measurements.

Precision: on GPUs jax multiplies float32 in TF32, which keeps ten bits. The calibrators were fitted
to evidence of float32, so networks are computed in it there, too.
"""

import ctypes
import importlib.util
import os
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from jaxtroj.errors import EngineError

# Environment variable, number of mallopt(3), value: one arena, from which every block is taken, and
# which is never trimmed (-1 turns to the largest size).
_MEMORY = (
    ("MALLOC_ARENA_MAX", -8, 1),
    ("MALLOC_MMAP_MAX_", -4, 0),
    ("MALLOC_TRIM_THRESHOLD_", -1, -1),
)
_LIBRARY_FLAG = "--xla_cpu_experimental_ynn_fusion_type"
# XLA ends the process over a flag that it does not know: tried with 0.10.0, 0.10.1 and 0.10.2.
_FLAGS = {"0.10": f"{_LIBRARY_FLAG}=LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"}
GPU_PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin")
"""Packages by which jax finds NVIDIA's GPUs."""
_GPU_PLATFORMS = frozenset({"cuda", "gpu"})
# Known to jaxlib 0.8.0 (tried) to 0.12.0 (read in its library).
_GPU_FLAGS = ("--xla_gpu_enable_triton_gemm=false", "--xla_gpu_autotune_level=1")
_MOST_SAID = 200  # of an error of jax, characters
_PRECISION = {"JAX_DEFAULT_MATMUL_PRECISION": "highest"}


def prepare() -> None:
    """Apply what the user's environment does not say otherwise; call before jax is imported.

    C libraries other than glibc are left alone.
    """
    os.environ.update(_flags(os.environ) | _precision(os.environ))
    mallopt = _of_glibc("mallopt")
    if mallopt is None:
        return
    for name, number, value in _MEMORY:
        if name not in os.environ:
            mallopt(number, value)


def check_backend() -> None:
    """Look whether jax has what JAX_PLATFORMS asks for; without it every model would fail alike.

    Loads jax only where the variable asks for another platform than the processor, which all have.

    Raises:
        EngineError: it has not.
    """
    asked = os.environ.get("JAX_PLATFORMS", "")
    if "jax" in sys.modules:  # which may have been told otherwise
        import jax

        asked = getattr(jax.config, "jax_platforms", None) or ""
    if asked in ("", "cpu"):
        return
    import jax

    try:
        jax.devices()
    except Exception as error:  # an AssertionError without a word, where a plugin is not there
        said = f" ({' '.join(str(error).split())[:_MOST_SAID]})" if str(error) else ""
        raise EngineError(
            f"JAX_PLATFORMS is {asked!r}, and jax finds no such device here{said}; unset it, or set"
            " it to cpu"
        ) from error


def give_back(above: int = 2**31) -> None:
    """Hand free memory to the kernel where it is more than so many bytes.

    What one model needed the next may not; below that, to have it cleared again costs more.
    """
    trim = _of_glibc("malloc_trim")
    if trim is not None and _free() > above:
        trim(0)


def resident(pid: int) -> int:
    """Bytes of memory that a process holds; 0 if it has gone."""
    try:
        pages = Path(f"/proc/{pid}/statm").read_bytes().split()[1]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def in_use() -> int:
    """Bytes that this process holds and has not freed."""
    return resident(os.getpid()) - _free()


def _free() -> int:
    """Bytes in free blocks of the C library; 0 where it is not glibc."""
    count = _of_glibc("mallinfo2")
    if count is None:
        return 0
    count.restype = _Mallinfo2
    return count().fordblks


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """The same settings for a child process, as variables to add to its environment.

    A worker keeps what it compiles, whoever started it: else every call would compile anew.
    """
    memory = {name: str(value % 2**64) for name, _, value in _MEMORY if name not in environment}
    ours = _flags(environment) | _precision(environment)
    return memory | ours | compiled_programs(environment)


def compiled_programs(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables with which jax keeps compiled programs on disk; none that the environment has.

    They go to the user's cache folder; one that cannot be written costs the time to compile again.
    """
    caches = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # A first scan runs hundreds of small programs: together they take as long as the network's.
    wanted = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
    if os.path.isabs(caches):
        wanted["JAX_COMPILATION_CACHE_DIR"] = os.path.join(caches, "jaxtroj", "compiled")
    return {name: value for name, value in wanted.items() if name not in environment}


class _Mallinfo2(ctypes.Structure):
    """mallinfo(3); `fordblks` is the bytes in free blocks."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks".split()
        + ["fordblks", "keepcost"]
    ]


def _of_glibc(name: str):
    try:
        return getattr(ctypes.CDLL(None), name)
    except (OSError, AttributeError):
        return None


def may_use_gpus(environment: Mapping[str, str]) -> bool:
    """Whether jax looks for NVIDIA's GPUs: it has a plugin for them, and nothing rules them out."""
    platforms = {name.strip() for name in environment.get("JAX_PLATFORMS", "").split(",")} - {""}
    if platforms and not platforms & _GPU_PLATFORMS:
        return False
    return any(importlib.util.find_spec(name) for name in GPU_PLUGINS)


def _precision(environment: Mapping[str, str]) -> dict[str, str]:
    """Products in float32 where GPUs may compute them; what the environment has stands."""
    return {} if not may_use_gpus(environment) or environment.keys() & _PRECISION else _PRECISION


def _flags(environment: Mapping[str, str]) -> dict[str, str]:
    """XLA_FLAGS with those that the installed jaxlib needs and that are not there."""
    try:
        version = metadata.version("jaxlib")
    except metadata.PackageNotFoundError:
        return {}
    given = environment.get("XLA_FLAGS", "")
    wanted = [_FLAGS.get(".".join(version.split(".")[:2]), "")]
    wanted += _GPU_FLAGS if may_use_gpus(environment) else ()
    missing = [flag for flag in wanted if flag and flag.split("=")[0] not in given]
    return {"XLA_FLAGS": " ".join([given, *missing]).strip()} if missing else {}
