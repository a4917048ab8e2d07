"""The runtime's side: a process that imports torch once and opens each file in a fork of itself.

    python -m benchmarks.reading.differential.serve

Reads one JSON object a line: the file, the openings to try (names in `OPENINGS`), the shape of the
example, and where the arrays go. Answers with one JSON object a line: what each opening gave,
"refused" with the reason, or "read" with the names of its arrays in the .npz file. A fork has
limits of memory and processor time, and it dies with whatever the file did.
"""

import importlib.util
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOST_BYTES = 2 * 2**30
MOST_SECONDS = 20
_MOST_TENSORS = 5000


def _torch_load(**options: Any) -> Callable[[str], Any]:
    def opening(path: str) -> Any:
        import torch

        return torch.load(path, map_location="cpu", **options)

    return opening


def _script(path: str) -> Any:
    import torch

    return torch.jit.load(path, map_location="cpu")


def _safetensors(path: str) -> Any:
    from safetensors.torch import load_file

    return load_file(path)


class _Session:
    """A file in onnxruntime; called with an image it gives its first output as one row."""

    def __init__(self, path: str):
        import onnxruntime  # pyright: ignore[reportMissingImports]

        onnxruntime.set_default_logger_severity(4)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            path, options, providers=["CPUExecutionProvider"]
        )

    def __call__(self, image: Any) -> Any:
        names = [value.name for value in self._session.get_outputs()]
        given = {value.name: image for value in self._session.get_inputs()}
        return self._session.run(names[:1], given)[0]


class _Program:
    """An exported program as torch loads it."""

    def __init__(self, path: str):
        import torch

        self._module = torch.export.load(path).module()

    def __call__(self, image: Any) -> Any:
        import torch

        with torch.no_grad():
            made = self._module(torch.from_numpy(image))
        return (made[0] if isinstance(made, tuple | list) else made).numpy()


OPENINGS: dict[str, Callable[[str], Any]] = {
    "torch.load": _torch_load(weights_only=False),
    "torch.load mmap": _torch_load(weights_only=False, mmap=True),
    "torch.load weights_only": _torch_load(weights_only=True),
    "torch.jit.load": _script,
    "safetensors": _safetensors,
    "onnxruntime": _Session,
    "torch.export.load": _Program,
}


def example(shape: tuple[int, ...]) -> Any:
    """The input of every comparison, as a NumPy array in [0, 1]."""
    import numpy as np

    return np.random.default_rng(5).random(shape, np.float32)


def arrays(value: Any, shape: tuple[int, ...]) -> dict[str, Any]:
    """What an opened object is: logits of a network, else its tensors by dotted name."""
    import torch

    if isinstance(value, _Session | _Program):
        return {"logits": value(example(shape)).astype("float64").reshape(1, -1)}
    if isinstance(value, torch.nn.Module):
        with torch.no_grad():
            return {"logits": value.eval()(torch.from_numpy(example(shape))).double().numpy()}
    found: dict[str, Any] = {}
    _collect(value, "", found, 0)
    return {f"tensor:{name}": tensor for name, tensor in found.items()}


def _collect(value: Any, path: str, found: dict[str, Any], depth: int) -> None:
    import numpy as np
    import torch

    if depth > 8 or len(found) > _MOST_TENSORS:
        return
    if isinstance(value, torch.Tensor):
        value = value.detach().resolve_conj().resolve_neg()
        found[path] = (value.double() if value.is_floating_point() else value).numpy()
    elif isinstance(value, np.ndarray):
        found[path] = value
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str):
                _collect(item, f"{path}/{key}" if path else key, found, depth + 1)


def _open_all(request: dict[str, Any]) -> dict[str, Any]:
    import numpy as np

    answers, names, kept = {}, {}, []
    for opening in request["openings"]:
        try:
            got = arrays(OPENINGS[opening](request["path"]), tuple(request["shape"]))
        except BaseException as error:  # noqa: BLE001  whatever a mutant raises is a refusal
            answers[opening] = f"refused: {type(error).__name__}: {str(error)[:300]}"
            continue
        names[opening] = list(got)
        kept += got.values()
        answers[opening] = "read"
    np.savez(request["out"], *kept)
    return {"answers": answers, "names": names}


def _forked(request: dict[str, Any]) -> dict[str, Any]:
    """The answers of a fork of this process, or what ended it."""
    ours, theirs = os.pipe()
    process = os.fork()
    if not process:
        os.close(ours)
        _limit()
        try:
            answer = json.dumps(_open_all(request)).encode()
        except BaseException as error:  # noqa: BLE001  the parent says that it died
            answer = b""
            print(repr(error), file=sys.stderr)
        os.write(theirs, answer)
        os._exit(0)
    os.close(theirs)
    answer = _read(ours, process)
    os.close(ours)
    _, status = os.waitpid(process, 0)
    dead = {opening: f"died: {status}" for opening in request["openings"]}
    return json.loads(answer) if answer else {"answers": dead, "names": {}}


def _limit() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, used + MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, MOST_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


def _read(pipe: int, process: int) -> bytes:
    """All that the fork writes; it is ended after ten times its processor time."""
    os.set_blocking(pipe, False)
    deadline, found = time.monotonic() + 10 * MOST_SECONDS, b""
    while time.monotonic() < deadline:
        try:
            part = os.read(pipe, 2**20)
        except BlockingIOError:
            time.sleep(0.002)
            continue
        if not part:
            return found
        found += part
    os.kill(process, signal.SIGKILL)
    return b""


def main() -> int:
    """Serves until its input ends."""
    import warnings

    import numpy  # noqa: F401
    import safetensors.torch  # noqa: F401
    import torch
    import torchvision  # noqa: F401

    if importlib.util.find_spec("onnxruntime"):  # without it every ONNX file is refused
        import onnxruntime  # noqa: F401  # pyright: ignore[reportMissingImports]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(json.dumps({"ready": torch.__version__}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_forked(json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
