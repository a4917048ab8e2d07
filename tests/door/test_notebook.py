"""The notebook of docs/ runs from top to bottom, and finds what it planted."""

import json

import pytest

from benchmarks.notebook import executed, main
from jaxtroj.verdict import Verdict
from tests.documented import DOCS

NOTEBOOK = DOCS / "a-trojan-found.ipynb"


CLASS = """
class Shown:
    def _repr_html_(self):
        return "<b>2</b>"

    def _repr_png_(self):
        return b"png"

a = Shown()
print("made")
"""


def test_a_runner_shows_what_a_notebook_would():
    cells = [{"cell_type": "code", "source": [source]} for source in (CLASS, "# nothing", "a")]
    done, names = executed({"cells": [*cells, {"cell_type": "markdown", "source": ["a"]}]})
    first, second, third = (cell["outputs"] for cell in done["cells"][:3])
    assert first == [{"name": "stdout", "output_type": "stream", "text": ["made\n"]}]
    assert second == [] and type(names["a"]).__name__ == "Shown"
    assert third[0]["data"]["text/html"] == ["<b>2</b>"]
    assert third[0]["data"]["image/png"] == "cG5n" and third[0]["execution_count"] == 3
    assert "outputs" not in done["cells"][3]


def test_the_stored_outputs_show_a_verdict_and_a_trigger():
    outputs = [out for cell in json.loads(NOTEBOOK.read_text())["cells"] if "outputs" in cell
               for out in cell["outputs"]]  # fmt: skip
    shown = [out["data"] for out in outputs if "data" in out]
    assert sum("image/png" in data for data in shown) == 1
    assert any("poisoned" in "".join(data["text/plain"]) for data in shown)


@pytest.mark.parametrize("arguments", [["--help"], []])
def test_the_command_says_how_it_is_called(arguments, capsys):
    with pytest.raises(SystemExit):
        main(arguments)
    assert "python -m benchmarks.notebook" in "".join(capsys.readouterr())


@pytest.mark.slow
def test_the_notebook_finds_the_trojan_that_it_plants():
    done, names = executed(json.loads(NOTEBOOK.read_text()))
    verdict = names["verdict"]
    assert isinstance(verdict, Verdict) and verdict.poisoned
    assert verdict.target_class == names["TARGET"] and verdict.trigger is not None
    assert (names["found"][names["others"]] == names["TARGET"]).mean() > 0.8
    assert [cell["cell_type"] for cell in done["cells"]].count("code") >= 8
