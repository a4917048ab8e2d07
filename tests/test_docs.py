"""The documents say what the code does: tables, files, commands, links and quoted messages."""

import re
import shlex
from pathlib import Path

import pytest

from benchmarks.tables import ROOT, TABLES, documents, rewritten
from jaxtroj.cli.main import COMMANDS, main

DOCUMENTS = {str(path.relative_to(ROOT)): path for path in documents()}
every_document = pytest.mark.parametrize("name", DOCUMENTS)
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_COMMAND = re.compile(r"(?:^|[`|\s/])jaxtroj ([a-z][a-z0-9_]*)(?=[\s`]|$)(.*)")


@every_document
def test_tables_are_what_the_code_says(name):
    text = DOCUMENTS[name].read_text()
    assert text == rewritten(text), "run: python -m benchmarks.tables"


def test_every_table_stands_in_a_document():
    text = "".join(path.read_text() for path in DOCUMENTS.values())
    assert set(re.findall(r"<!-- table (\w+) -->\n", text)) == set(TABLES)


@every_document
def test_relative_links_resolve(name):
    path = DOCUMENTS[name]
    for link in _LINK.findall(path.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        assert target.exists() and target.is_relative_to(ROOT), link
        assert not anchor or anchor in _anchors(target), link


def _anchors(path: Path) -> set[str]:
    """What GitHub makes of the headings of a document."""
    text = _FENCE.sub("", path.read_text())
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@every_document
def test_commands_exist_and_take_the_options_shown(name, capfd):
    for command, rest in _shown_commands(DOCUMENTS[name].read_text()):
        assert command in COMMANDS, f"jaxtroj {command}{rest}"
        words = shlex.split(rest.partition("`")[0], comments=True)
        known = _options([command, *words[:1]] if command == "generate" else [command], capfd)
        used = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert used <= known, f"jaxtroj {command}: {sorted(used - known)}"


def _shown_commands(text: str) -> list[tuple[str, str]]:
    """(command, rest of the line) of every command line in fences and of every `jaxtroj ...`."""
    fenced = "\n".join(_FENCE.findall(text)).replace("\\\n", " ")
    lines = [line.strip() for line in fenced.splitlines() if "jaxtroj " in line]
    lines += [f"`{code}`" for code in re.findall(r"`([^`\n]*jaxtroj [a-z][^`\n]*)`", text)]
    found = (_COMMAND.search(line) for line in lines if not line.startswith(("import ", "from ")))
    return [(match[1], match[2]) for match in found if match]


def _options(arguments: list[str], capfd) -> set[str]:
    assert main([*arguments, "--help"]) == 0
    return set(re.findall(r"--[a-z][a-z_-]*", capfd.readouterr().out))


def test_every_source_file_has_a_line_in_the_architecture():
    text = DOCUMENTS["docs/architecture.md"].read_text()
    _, converters, jaxtroj = re.split(r"^## (?:converters|jaxtroj): .*$", text, flags=re.MULTILINE)
    for package, section in {"converters": converters, "jaxtroj": jaxtroj}.items():
        files = {
            str(path.relative_to(ROOT / package))
            for path in (ROOT / package).rglob("*.py")
            if path.name not in ("__init__.py", "__main__.py")
        }
        # Other folders' files are named from the root, so only this package's are without it.
        named = {cell for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
                 for cell in re.findall(r"`([\w/]+\.py)`", row)}  # fmt: skip
        own = {name for name in named if not name.startswith(("bin/", "benchmarks/"))}
        assert own == files, f"{package}: {sorted(own ^ files)}"
        assert all((ROOT / name).is_file() for name in named - own)


def test_converters_know_nothing_of_jaxtroj():
    files = (ROOT / "converters").rglob("*.py")
    pattern = re.compile(r"^\s*(?:import|from) jaxtroj\b", re.MULTILINE)
    assert [path.name for path in files if pattern.search(path.read_text())] == []


def test_quoted_messages_stand_in_the_code():
    rows = DOCUMENTS["docs/guide.md"].read_text().partition("## Messages")[2]
    quoted = re.findall(r"^\| `([^`]+)` \|", rows.partition("\n## ")[0], re.MULTILINE)
    assert len(quoted) >= 20
    code = "\n".join(_joined_literals(path) for path in _sources())
    for message in quoted:
        for part in filter(None, (piece.strip() for piece in message.split("…"))):
            assert part in code, f"{part!r} of {message!r}"


def _sources() -> list[Path]:
    packages = [path for name in ("converters", "jaxtroj") for path in (ROOT / name).rglob("*.py")]
    return [*packages, ROOT / "bin" / "environment.py"]


def _joined_literals(path: Path) -> str:
    """Source with neighbouring string literals made one, as Python reads them."""
    return re.sub(r'"\s*\n\s*f?"', "", path.read_text())


@every_document
def test_nothing_of_one_machine_is_in_the_documents(name):
    text = DOCUMENTS[name].read_text()
    assert not re.search(r"(?:^|[\s`(\"'])/(?:home|work|root|tmp|Users)/", text)
