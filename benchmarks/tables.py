"""The tables in the documents that code knows best: `python -m benchmarks.tables` rewrites them.

A table stands between `<!-- table NAME -->` and `<!-- end -->`; tests/test_docs.py fails when one
is not what this writes.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from converters.limits import Limits
from jaxtroj.cli.main import COMMANDS
from jaxtroj.evidence.stage import Stage
from jaxtroj.evidence.stages import CLASSIFIERS, IMAGES, TEXTS

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"(?<=<!-- table )(\w+)( -->\n).*?(?=<!-- end -->)", re.DOTALL)
_DIRECTIONS = {1: "larger", -1: "smaller", 0: "either"}


def main() -> int:
    """Rewrite the tables of all documents; returns the exit status."""
    for path in documents():
        text = path.read_text()
        if (current := rewritten(text)) != text:
            path.write_text(current)
            print(path.relative_to(ROOT))
    return 0


def documents() -> list[Path]:
    """Markdown files that may hold tables."""
    return sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def rewritten(text: str) -> str:
    """The text with every marked table as it should be.

    Raises:
        KeyError: a marked table has a name that is not in `TABLES`.
    """
    return _BLOCK.sub(lambda found: f"{found[1]}{found[2]}{TABLES[found[1]]()}\n", text)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def evidence() -> str:
    """Every evidence field, in the order in which it is gathered."""
    rows = [
        (field.stage, f"`{field.name}`", field.unit, _DIRECTIONS[field.direction], field.meaning)
        for field in IMAGES.fields
    ]
    return _table(("stage", "field", "unit", "in poisoned models", "how it is computed"), rows)


def stages() -> str:
    """Every stage: for which models, which kinds of trigger it searches for."""
    rows = [
        (stage.name, table.kind, _needs(stage), ", ".join(stage.kinds) or "none, signs of any")
        for table in (IMAGES, TEXTS, CLASSIFIERS)
        for stage in table.stages
    ]
    return _table(("stage", "models", "runs by itself for", "kinds of trigger searched"), rows)


def _needs(stage: Stage) -> str:
    """What a stage needs, in words."""
    if stage.needs.bank:
        return "heads with a probe bank"
    if stage.needs.batch_norm:
        return "networks with batch norms"
    least, most = stage.needs.sides
    if most < float("inf"):
        return f"pictures with sides of at most {most} px"
    return f"pictures with a side of {least} px or more" if least > 1 else "all"


def commands() -> str:
    """Every command with its line of `jaxtroj --help`."""
    return _table(("command", "what it does"), ((f"`{n}`", text) for n, text in COMMANDS.items()))


def limits() -> str:
    """Caps on one model file; their meaning stands in `converters/limits.py`."""
    rows = ((f"`{f.name}`", f"{getattr(Limits(), f.name):,}") for f in fields(Limits))
    return _table(("field of `Limits`", "default"), rows)


def budget() -> str:
    """What each evidence stage of images may spend."""
    from jaxtroj.evidence.images.context import ExampleBudget

    rows = list(_budget_rows(ExampleBudget(), "examples."))
    for stage in IMAGES.stages:
        rows += [] if stage.budget is None else _budget_rows(stage.budget(), f"{stage.name}.")
    return _table(("budget", "default"), rows)


def _budget_rows(value: Any, path: str) -> Iterator[tuple[str, ...]]:
    for entry in fields(value):
        inner, name = getattr(value, entry.name), f"{path}{entry.name}"
        if entry.name == "rungs":
            rungs = (f"{rung.steps} steps of at most {rung.arms} arms" for rung in inner)
            yield f"`{name}`", ", then ".join(rungs)
        elif entry.name == "searches":
            for plan in inner:
                yield from _budget_rows(plan, f"{path}{plan.method.name.replace(' ', '_')}.")
        elif callable(inner):
            yield f"`{name}`", f"`{inner.__name__}`"
        elif is_dataclass(inner):
            yield from _budget_rows(inner, f"{name}.")
        else:
            yield f"`{name}`", str(inner)


def architectures() -> str:
    """Every network that a family names, by family."""
    from converters.families import FAMILIES

    names = {family.name: family.architectures for family in FAMILIES.values()}
    rows = ((f"`{f}`", ", ".join(f"`{name}`" for name in found)) for f, found in names.items())
    return _table(("family", "networks"), rows)


def aten_operators() -> str:
    """Every ATen operator that has a lowering, its overloads on one line."""
    from converters.graph.registry import supported_operators

    rows: dict[tuple[str, str], list[str]] = {}
    for name, restriction in supported_operators().items():
        _, packet, overload = name.split(".")
        rows.setdefault((packet, restriction), []).append(overload)
    return _table(
        ("operator", "overloads", "restriction"),
        ((f"`{p}`", ", ".join(f"`{o}`" for o in found), text) for (p, text), found in rows.items()),
    )


def onnx_operators() -> str:
    """Every ONNX operator that has a converter, with its versions."""
    from converters.graph.onnx import support

    return _table(
        ("operator", "versions", "restriction"),
        (
            (
                f"`{found.domain}{'.' if found.domain else ''}{found.operator}`",
                ", ".join(map(str, found.versions)),
                found.restrictions,
            )
            for found in support.onnx_operators()
        ),  # fmt: skip
    )


def expected_probabilities() -> str:
    """How often a probability is right, on networks in no fit."""
    from benchmarks.accuracy import expected

    return _table(("probability", "poisoned networks"), expected.probabilities())


def expected_networks() -> str:
    """What the shipped calibrators say of networks in no fit, by network."""
    from benchmarks.accuracy import expected

    head = ("networks", "how many", "poisoned found", "clean accused", "log score", "ROC AUC")
    return _table(head, expected.by_network())


def expected_triggers() -> str:
    """The same by trigger."""
    from benchmarks.accuracy import expected

    head = ("trigger", "from all classes, found", "from one or two, found", "log score", "ROC AUC")
    return _table(head, expected.by_trigger())


TABLES = {
    "expected_probabilities": expected_probabilities,
    "expected_networks": expected_networks,
    "expected_triggers": expected_triggers,
    "aten_operators": aten_operators,
    "onnx_operators": onnx_operators,
    "evidence": evidence,
    "stages": stages,
    "commands": commands,
    "limits": limits,
    "budget": budget,
    "architectures": architectures,
}

if __name__ == "__main__":
    sys.exit(main())
