"""The runtime's side: a process that imports torch once and opens files in forks of itself.

    python -m benchmarks.reading.differential.serve

Reads one JSON object a line: files, the openings to try (names in `OPENINGS`), the shape of the
example, and where the arrays go. Answers with one JSON object a line and file: what each opening
gave, "refused" with the reason, or "read" with its arrays' names and their places in the file of
arrays. A fork opens file after file, with limits of memory and of processor time for each. One in
which it dies is opened again in a fork of its own, and a new fork goes on behind it.
"""

import importlib.util
import json
import os
import pickle
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

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


def _pickle(path: str) -> Any:
    with open(path, "rb") as file:
        return pickle.load(file)


def _numpy(path: str) -> Any:
    import numpy as np

    return np.load(path, allow_pickle=True)


OPENINGS: dict[str, Callable[[str], Any]] = {
    "torch.load": _torch_load(weights_only=False),
    "torch.load mmap": _torch_load(weights_only=False, mmap=True),
    "torch.load weights_only": _torch_load(weights_only=True),
    "torch.jit.load": _script,
    "safetensors": _safetensors,
    "pickle.load": _pickle,
    "numpy.load": _numpy,
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


def _open_all(path: str, out: str, request: dict[str, Any]) -> dict[str, Any]:
    """What every opening gives of one file; arrays that are equal are stored once."""
    answers, arrays_of = {}, {}
    places: dict[tuple[str, tuple[int, ...], bytes], int] = {}
    with open(out, "wb") as stored:
        for opening in request["openings"]:
            try:
                got = arrays(OPENINGS[opening](path), tuple(request["shape"]))
            except BaseException as error:  # noqa: BLE001  whatever a mutant raises is a refusal
                answers[opening] = f"refused: {type(error).__name__}: {str(error)[:300]}"
                continue
            arrays_of[opening] = {n: _stored(array, stored, places) for n, array in got.items()}
            answers[opening] = "read"
    return {"answers": answers, "arrays": arrays_of}


def _stored(array: Any, stored: Any, places: dict) -> list[Any]:
    """Type, shape and place of an array's bytes; objects of Python's are stored as their text."""
    import numpy as np

    array = np.asarray(repr(array.tolist()) if array.dtype.hasobject else array)
    content = array.tobytes()
    key = array.dtype.str, array.shape, content
    if key not in places:
        places[key] = stored.tell()
        stored.write(content)
    return [array.dtype.str, list(array.shape), places[key]]


def _answers(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One answer a file, in their order."""
    files = list(zip(request["paths"], request["outs"], strict=True))
    while files:
        told = 0
        for answer in _forked(files, request):
            yield answer
            told += 1
        files = files[told:]
        if files:  # the fork died in the next one, perhaps of those before it
            alone = list(_forked(files[:1], request))
            dead = {opening: "died" for opening in request["openings"]}
            yield alone[0] if alone else {"answers": dead, "arrays": {}}
            files = files[1:]


def _forked(files: list[tuple[str, str]], request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The answers of a fork of this process, as many as it gives before it ends."""
    ours, theirs = os.pipe()
    process = os.fork()
    if not process:
        os.close(ours)
        _in_fork(files, request, theirs)
    os.close(theirs)
    try:
        for line in _lines(ours, process):
            yield json.loads(line)
    finally:
        os.close(ours)
        os.waitpid(process, 0)


def _in_fork(files: list[tuple[str, str]], request: dict[str, Any], pipe: int) -> NoReturn:
    try:
        _limit()
        with open(pipe, "w") as answers:
            for path, out in files:
                _limit_seconds()
                print(json.dumps(_open_all(path, out, request)), file=answers, flush=True)
    finally:
        os._exit(0)


def _limit() -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, used + MOST_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)


def _limit_seconds() -> None:
    """So much processor time for the next file, beside what was used."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + MOST_SECONDS, hard))


def _lines(pipe: int, process: int) -> Iterator[bytes]:
    """The lines that a fork writes; it is ended when one takes ten times its processor time."""
    rest = b""
    while select.select([pipe], [], [], 10 * MOST_SECONDS)[0]:
        part = os.read(pipe, 2**20)
        if not part:
            return
        *lines, rest = (rest + part).split(b"\n")
        yield from lines
    os.kill(process, signal.SIGKILL)


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
        for answer in _answers(json.loads(line)):
            print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
