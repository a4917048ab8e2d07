"""Settings for jax: the user's own win, children get the same, and they do what they are for."""

import subprocess
import sys

import pytest

from jaxtroj import runtime
from jaxtroj.errors import EngineError

_COMPILED = {"JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"}
_MEMORY = {"MALLOC_ARENA_MAX", "MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_"}
# A large block from a thread that is not the first, as jax takes it: page faults of the second.
_BLOCKS = """
import ctypes, os, resource, sys, threading
if "prepare" in sys.argv:
    from jaxtroj import runtime
    runtime.prepare()
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
def block():
    size = 200 * 2**20
    place = libc.malloc(size)
    ctypes.memset(place, 1, size)
    libc.free(place)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def work():
    block()
    if "give back" in sys.argv:
        runtime.give_back(above=100 * 2**20)
    before = faults()
    block()
    print(faults() - before)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""


def _faults(*arguments: str, environment: dict[str, str] | None = None) -> int:
    command = [sys.executable, "-c", _BLOCKS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_a_large_block_is_kept_for_the_next_call():
    pages = 200 * 2**20 // 4096
    assert _faults(environment={}) > pages / 600, "the control: 2 MiB pages at the most"
    assert _faults("prepare", environment={}) < 20
    assert _faults(environment=runtime.variables({})) < 20


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's settings")
def test_what_is_free_is_given_back_when_asked():
    pages = 200 * 2**20 // 4096
    assert _faults("prepare", "give back", environment={}) > pages / 600


def test_a_child_keeps_what_the_user_set():
    given = {"MALLOC_ARENA_MAX": "4", "XLA_FLAGS": "--xla_cpu_experimental_ynn_fusion_type="}
    given |= {name: "theirs" for name in _COMPILED}
    assert set(runtime.variables(given)) == _MEMORY - {"MALLOC_ARENA_MAX"}
    assert set(runtime.variables({})) >= _MEMORY


def test_a_child_keeps_what_it_compiles_in_the_users_cache(tmp_path):
    found = runtime.variables({"XDG_CACHE_HOME": str(tmp_path)})
    assert found["JAX_COMPILATION_CACHE_DIR"] == str(tmp_path / "jaxtroj" / "compiled")
    assert set(runtime.variables({"XDG_CACHE_HOME": "relative"})) >= _COMPILED - {
        "JAX_COMPILATION_CACHE_DIR"
    }


@pytest.mark.parametrize(
    ("version", "given", "expected"),
    [
        ("0.10.2", "", "--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"),
        (
            "0.10.0",
            "--xla_dump_to=d",
            "--xla_dump_to=d "
            "--xla_cpu_experimental_ynn_fusion_type=LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT",
        ),
        ("0.10.2", "--xla_cpu_experimental_ynn_fusion_type=", None),
        ("0.12.0", "", None),
        ("0.9.1", "", None),
    ],
)
def test_xla_gets_a_flag_only_where_its_version_knows_it(monkeypatch, version, given, expected):
    monkeypatch.setattr(runtime.metadata, "version", lambda name: version)
    assert runtime.variables({"XLA_FLAGS": given}).get("XLA_FLAGS") == expected


_GPU = "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=1"


@pytest.mark.parametrize(
    ("given", "flags", "precision"),
    [
        ({}, _GPU, "highest"),
        ({"JAX_PLATFORMS": "cuda,cpu"}, _GPU, "highest"),
        ({"JAX_PLATFORMS": "cpu"}, None, None),
        ({"JAX_DEFAULT_MATMUL_PRECISION": "default"}, _GPU, None),
        (
            {"XLA_FLAGS": "--xla_gpu_autotune_level=4"},
            "--xla_gpu_autotune_level=4 --xla_gpu_enable_triton_gemm=false",
            "highest",
        ),
    ],
)
def test_gpus_compute_in_float32_with_kernels_that_are_chosen_fast(
    monkeypatch, given, flags, precision
):
    monkeypatch.setattr(runtime.metadata, "version", lambda name: "0.12.0")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    found = runtime.variables(given)
    assert found.get("XLA_FLAGS") == flags
    assert found.get("JAX_DEFAULT_MATMUL_PRECISION") == precision


def test_xla_knows_the_flags_for_gpus():
    """XLA ends the process over a flag that it does not know, also where there is no GPU."""
    code = "import jax; print(jax.numpy.ones(2).sum())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"XLA_FLAGS": _GPU, "JAX_PLATFORMS": "cpu"},
    )
    assert (done.returncode, done.stdout) == (0, "2.0\n")


def test_what_jax_was_told_in_this_process_counts(monkeypatch):
    import jax

    runtime.check_backend()
    told = getattr(jax.config, "jax_platforms", None)
    monkeypatch.setattr(jax, "devices", lambda: [][0])
    jax.config.update("jax_platforms", "cuda")
    try:
        with pytest.raises(EngineError, match=r"JAX_PLATFORMS is 'cuda', .* \(list index out of"):
            runtime.check_backend()
    finally:
        jax.config.update("jax_platforms", told)
