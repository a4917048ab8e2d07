"""TorchScript archives changed: their code, their data, and the archive itself."""

import io
import re
import warnings
import zipfile
from collections.abc import Callable
from functools import cache
from typing import Any

from benchmarks.reading.differential import containers
from benchmarks.reading.differential.draw import Random, one
from benchmarks.reading.differential.seeds import network

_NETWORKS = ("resnet", "bottleneck", "shufflenet")
_IMAGE = (1, 3, 32, 32)


@cache
def archive(name: str, traced: bool) -> bytes:
    """What torch.jit.save writes of one of the small networks."""
    import torch

    made: Any = network(name)
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.jit.trace(made, torch.zeros(_IMAGE)) if traced else torch.jit.script(made)
        torch.jit.save(made, out)
    return out.getvalue()


def mutant(random: Random) -> tuple[bytes, str]:
    """An archive with a change to its code, or to its container and data."""
    content = archive(one(_NETWORKS, random), bool(random.integers(2)))
    if random.random() < 0.5:
        others = [archive(name, traced) for name in _NETWORKS for traced in (False, True)]
        return containers.mutate(content, others, random)
    change = one(CODES, random)
    with zipfile.ZipFile(io.BytesIO(content)) as source:
        members = [(info.filename, source.read(info)) for info in source.infolist()]
    places = [k for k, (name, _) in enumerate(members) if name.endswith(".py")]
    place = one(places, random)
    members[place] = (members[place][0], change(members[place][1].decode(), random).encode())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as target:
        for name, data in members:
            target.writestr(zipfile.ZipInfo(name), data)
    return out.getvalue(), f"code {change.__name__.strip('_')}"


def _replaced(text: str, pattern: str, random: Random, made: Callable[[str], str]) -> str:
    """One match of a pattern becomes what `made` says; the text itself where there is none."""
    found = list(re.finditer(pattern, text))
    if not found:
        return text
    match = one(found, random)
    return text[: match.start()] + made(match[0]) + text[match.end() :]


def _number(text: str, random: Random) -> str:
    number = one(("0", "1", "2", "3", "1.0000000000000001e-05", "0.5"), random)
    return _replaced(text, r"(?<![\w.])\d+(\.\d+)?(e-\d+)?(?![\w.])", random, lambda _: number)


def _flag(text: str, random: Random) -> str:
    return _replaced(
        text, r"\b(True|False)\b", random, lambda t: "False" if t == "True" else "True"
    )


def _operator(text: str, random: Random) -> str:
    """A call of torch's becomes another."""
    names = ("relu", "relu_", "sigmoid", "tanh", "neg", "abs", "gelu", "add", "mul", "flatten")
    return _replaced(text, r"(?<=torch\.)\w+(?=\()", random, lambda _: one(names, random))


def _name(text: str, random: Random) -> str:
    """A name of the code becomes another one of it."""
    names = re.findall(r"\b_?[a-z]\w*\b", text) or ["x"]
    return _replaced(text, r"\b_?[a-z]\w*\b", random, lambda _: one(names, random))


def _lines(text: str, random: Random) -> str:
    """Two lines change places, or one comes twice or goes."""
    lines = text.splitlines(keepends=True)
    if not lines:
        return text
    first, second = (int(random.integers(len(lines))) for _ in range(2))
    kind = int(random.integers(3))
    if kind == 0:
        lines[first], lines[second] = lines[second], lines[first]
    elif kind == 1:
        lines.insert(first, lines[second])
    else:
        del lines[first]
    return "".join(lines)


def _spaces(text: str, random: Random) -> str:
    """What changes no meaning: spaces, comments, empty lines."""
    lines = text.splitlines(keepends=True) or ["\n"]
    place = int(random.integers(len(lines)))
    lines[place] = one(("\n" + lines[place], lines[place][:-1] + "  # x\n", lines[place]), random)
    return "".join(lines)


def _class(text: str, random: Random) -> str:
    """A class named in the code becomes another one of it."""
    names = re.findall(r"__torch__(?:\.\w+)+", text) or ["x"]
    return _replaced(text, r"__torch__(?:\.\w+)+", random, lambda _: one(names, random))


def _unused(text: str, random: Random) -> str:
    """Code that nothing calls: a class or a function, in the file's style."""
    added = (
        "class Unused(Module):\n  __parameters__ = []\n  __buffers__ = []\n",
        "def unused(x: Tensor) -> Tensor:\n  return torch.neg(x)\n",
    )
    return text + one(added, random)


CODES: tuple[Callable[[str, Random], str], ...] = (
    *(_number, _flag, _operator, _name, _lines, _spaces, _class, _unused),
)
