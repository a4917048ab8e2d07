"""Runs a notebook from top to bottom and writes its outputs: `python -m benchmarks.notebook FILE`.

It takes no Jupyter: cells of code are executed in one namespace, and the value of a last expression
is shown as a notebook would show it.
"""

import argparse
import ast
import io
import json
import sys
from base64 import b64encode
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any


def main(arguments: list[str]) -> int:
    """Execute the notebooks named and write them with their outputs; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.notebook", description=__doc__)
    parser.add_argument("notebooks", nargs="+", type=Path, metavar="FILE", help="is overwritten")
    for path in parser.parse_args(arguments).notebooks:
        notebook, _ = executed(json.loads(path.read_text()))
        path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    return 0


def executed(notebook: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A notebook (format 4) with the outputs of its cells, and the names that they have defined."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _run("".join(cell["source"]), names, count)
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}, names


def _run(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Execute one cell; what it printed, and what its last expression shows."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(tree, f"<cell {count}>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"<cell {count}>", "eval"), names)
    outputs = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        shown = {"data": _shown(value), "execution_count": count, "metadata": {}}
        outputs.append({**shown, "output_type": "execute_result"})
    return outputs


def _shown(value: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"text/plain": str(value).splitlines(keepends=True)}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = value._repr_html_().splitlines(keepends=True)
    if hasattr(value, "_repr_png_"):
        data["image/png"] = b64encode(value._repr_png_()).decode()
    return data


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
