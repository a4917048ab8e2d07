"""Imports run one way: no package or file imports one that imports it back.

Imports inside functions and for types count too. At every level the children of a package are
compared: a child imports another if any file below it does.
"""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("jaxtroj", "converters", "benchmarks")

Edges = set[tuple[str, str]]


def read_modules(root: Path, packages: tuple[str, ...]) -> dict[str, Path]:
    """Path of every module, by its dotted name."""
    found = {}
    for package in packages:
        for path in (root / package).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(modules: dict[str, Path]) -> Edges:
    """(importer, imported) among the modules."""
    edges = set()
    for name, path in modules.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                wanted = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                inner = [f"{node.module}.{alias.name}" for alias in node.names]
                wanted = [one if one in modules else node.module for one in inner]
            else:
                continue
            edges |= {(name, one) for one in wanted if one in modules}
    return edges


def cycles_of(edges: Edges) -> set[tuple[str, frozenset[str]]]:
    """(package, children that import each other in a circle) at every level."""
    packages = {name.rsplit(".", up)[0] for edge in edges for name in edge
                for up in range(1, name.count(".") + 1)}  # fmt: skip
    found = set()
    for package in packages:
        between = defaultdict(set)
        for importer, imported in edges:
            first, second = child(package, importer), child(package, imported)
            if first and second and first != second:
                between[first].add(second)
        reached = {name: reachable(between, name) for name in between}
        for name in between:
            circle = {other for other in reached[name] if name in reached.get(other, ())}
            if circle:
                found.add((package, frozenset(circle)))
    return found


def child(package: str, name: str) -> str | None:
    """The child of a package that a module is, or lies below."""
    return name[len(package) + 1 :].split(".")[0] if name.startswith(package + ".") else None


def reachable(between: dict[str, set[str]], start: str) -> set[str]:
    waiting, seen = list(between[start]), set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += between.get(name, ())
    return seen


@pytest.fixture(scope="module")
def edges() -> Edges:
    return imports_of(read_modules(ROOT, PACKAGES))


def test_no_package_imports_one_that_imports_it_back(edges):
    assert not cycles_of(edges)


def test_converters_know_nothing_of_jaxtroj(edges):
    upwards = {edge for edge in edges if edge[0].startswith("converters")}
    assert not {edge for edge in upwards if edge[1].startswith("jaxtroj")}


def test_a_cycle_inside_functions_is_seen(tmp_path):
    for name, text in (
        ("top/a/one.py", "from top.b.two import two"),
        ("top/b/two.py", "def two():\n    import top.a.one"),
        ("top/b/three.py", "import top.b.two"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = cycles_of(imports_of(read_modules(tmp_path, ("top",))))
    assert found == {("top", frozenset({"a", "b"}))}
