"""Every program that a scan compiles, and whether accelerators could run it.

    python -m benchmarks.speed.programs MODEL [--examples DIR] [--stages a,b] [--network CODE]
        [--bank DIR]

scans a model, or all of a folder, on this machine, and lowers each program that was compiled for
`cuda` and `tpu` with jax's export, for which neither has to be there. Printed is a JSON line for
each program: name, shapes, calls, and what is wrong with it: a callback to the host, a call that
only CPUs know, a shape that is not fixed. Small operations that jax runs one by one between
programs are not seen.

`record` must be called before the scanner is imported: it stands in for `jax.jit`.
"""

import argparse
import functools
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.core
import jax.export

if TYPE_CHECKING:
    from jaxtroj.record import Record
    from jaxtroj.rounds import ModelEntry

PLATFORMS = ("cuda", "tpu")
_OURS = ("jaxtroj.", "converters.")
_CALL = re.compile(r"custom_call @([\w.$]+)|call_target_name = \"([^\"]+)\"")
_OPEN_SHAPE = re.compile(r"tensor<(?:[\dx]*\?)")
_HARMLESS = {
    "cuda": {"cu_threefry2x32", "cu_threefry2x32_ffi", "cusolver_getrf_ffi", "Sharding"},
    "tpu": {"Sharding", "ApproxTopK", "TopK"},
}
"""Calls that the platform's own runtime has."""


@dataclass
class Program:
    """One compiled program.

    Attributes:
        name: module and function.
        jitted: what jax compiled it from.
        arguments, keywords: of a call, arrays as their shapes.
        calls: how often it ran.
    """

    name: str
    jitted: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    calls: int = 0

    @property
    def shapes(self) -> str:
        """Shapes of what it is given besides parameters of a network, the largest three."""
        found = [x for x in jax.tree.leaves((self.arguments, self.keywords)) if _is_array(x)]
        found.sort(key=lambda x: -x.size)
        return " ".join(f"{x.dtype}{list(x.shape)}" for x in found[:3])

    def exported(self, platform: str) -> jax.export.Exported:
        """The program lowered for a platform; raises what jax raises where that cannot be."""
        export = jax.export.export(self.jitted, platforms=[platform])
        return export(*self.arguments, **self.keywords)


def record() -> list[Program]:
    """From now on every function that the scanner compiles is noted here with its shapes.

    Raises RuntimeError where the scanner was imported before.
    """
    if "jaxtroj.network" in sys.modules:
        raise RuntimeError("record() must be called before the scanner is imported")
    found: dict[Any, Program] = {}
    programs: list[Program] = []
    jit = jax.jit

    def recording(function: Callable[..., Any], **options: Any) -> Any:
        jitted = jit(function, **options)
        if not str(getattr(function, "__module__", "")).startswith(_OURS):
            return jitted
        name = f"{function.__module__}.{function.__qualname__}"

        @functools.wraps(function)
        def called(*arguments: Any, **keywords: Any) -> Any:
            leaves, tree = jax.tree.flatten((arguments, keywords))
            if not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
                key = (jitted, tree, tuple(map(_key, leaves)))
                if key not in found:
                    shapes = jax.tree.map(_shape, (arguments, keywords))
                    found[key] = Program(name, jitted, *shapes)
                    programs.append(found[key])
                found[key].calls += 1
            return jitted(*arguments, **keywords)

        return called

    jax.jit = recording
    return programs


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _shape(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if _is_array(leaf) else leaf


def _key(leaf: Any) -> Any:
    return (leaf.shape, str(leaf.dtype)) if _is_array(leaf) else (type(leaf), leaf)


def faults(program: Program, platform: str) -> Iterator[str]:
    """What keeps a platform from running a program; nothing, if it can."""
    try:
        text = program.exported(platform).mlir_module()
    except Exception as error:  # whatever jax says is the answer
        yield f"{type(error).__name__}: {str(error)[:300]}"
        return
    calls = {name for pair in _CALL.findall(text) for name in pair if name}
    for name in sorted(calls - _HARMLESS[platform]):
        yield f"calls {name}"
    if _OPEN_SHAPE.search(text):
        yield "has a shape that is not fixed"


def scanned(programs: list[Program], args: argparse.Namespace) -> "list[Record]":
    """Records of scans with every stage that `args` names; raises SystemExit if one failed."""
    from dataclasses import replace

    from jaxtroj.scan.model import scan_model
    from jaxtroj.settings import Settings

    settings = Settings(early_stop=False, bank=args.bank)
    if args.stages:
        settings = replace(settings, stages=args.stages, calibrator=None, text_calibrator=None)
    entries = list(_entries(args))
    programs.clear()
    records = [scan_model(entry, settings) for entry in entries]
    for record in records:
        if record.status != "ok":
            raise SystemExit(f"{record.model}: the scan failed: {record.reason}")
    return records


def _entries(args: argparse.Namespace) -> "Iterator[ModelEntry]":
    from dataclasses import replace

    from converters.user_code import network_code
    from jaxtroj.errors import UsageError
    from jaxtroj.rounds import iter_models
    from jaxtroj.rounds.single import entry_of

    try:
        found = [entry_of(args.model)]
    except UsageError:  # several models
        found = list(iter_models(args.model, include_errata=True))
    for entry in found:
        own = entry if args.examples is None else replace(entry, examples_path=args.examples)
        yield own if args.network is None else replace(own, code=network_code(args.network, None))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `scanned` reads."""
    parser.add_argument("model", type=Path)
    parser.add_argument("--examples", type=Path)
    parser.add_argument("--stages", type=lambda text: tuple(text.split(",")))
    parser.add_argument("--bank", type=Path, help="probe bank of text heads")
    parser.add_argument(
        "--network", metavar="FILE.py:NAME", help="code of its network, which is run"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Scan, lower, print; status 1 where a program has a fault."""
    parser = argparse.ArgumentParser(description="Whether accelerators could run every program.")
    add_arguments(parser)
    args = parser.parse_args(words)
    programs = record()
    scanned(programs, args)
    is_faulty = False
    for program in programs:
        wrong = {p: list(faults(program, p)) for p in PLATFORMS}
        is_faulty |= any(wrong.values())
        line = {"name": program.name, "shapes": program.shapes, "calls": program.calls, **wrong}
        print(json.dumps(line), flush=True)
    return int(is_faulty)


if __name__ == "__main__":
    sys.exit(main())
