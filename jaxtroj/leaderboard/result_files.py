"""Result files as the harness collects them: one `MODEL.txt` with one float for each model.

A name that is no plain file name gets another one; `model_names.json` beside the files says whose
each is, so that they can be read back, and so that a later evaluation knows which it may remove.
"""

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from converters.errors import LoadError, safe_repr
from converters.files import read_json, strict_json, write_atomic
from jaxtroj.errors import DatasetError, UsageError
from jaxtroj.file_names import file_stem

RESULT_SUFFIX, NAMES_FILE = ".txt", "model_names.json"
MAX_NAMES_BYTES = 64 * 2**20


def write_results(folder: Path, probabilities: Iterable[tuple[str, float]]) -> None:
    """Writes a file for each model, and which is whose.

    A model without a prediction (NaN) gets no file, as where a container failed. Files that an
    earlier call wrote and this one does not are removed.
    Raises UsageError as `check_results`, and if a file cannot be written.
    """
    said = {model: value for model, value in probabilities if not math.isnan(value)}
    old = check_results(folder, said)
    names = {_file(model): model for model in said}
    try:
        for name in old:
            (folder / name).unlink(missing_ok=True)
        for model, value in said.items():
            write_atomic(folder / _file(model), f"{value}\n".encode())
        text = json.dumps(names, indent=0)
        write_atomic(folder / NAMES_FILE, text.encode() + b"\n")
    except OSError as error:
        raise UsageError(f"cannot write in {folder}: {error.strerror or error}") from error


def check_results(folder: Path, models: Iterable[str]) -> list[str]:
    """Names of the files that an earlier call left there and these models do not replace.

    Raises UsageError where there are result files that no such call wrote: with those of these
    models they would be taken for one set of predictions.
    """
    wanted = set(map(_file, models))
    old = [name for name in _listed(folder) if name not in wanted]
    own = read_names(folder) if old else {}
    odd = [name for name in old if name not in own]
    if odd:
        raise UsageError(
            f"{folder} holds {len(odd)} result files that this evaluation would not replace and"
            f" that none is known to have written, the first: {safe_repr(odd[0])}; name another"
            " folder, or move them away"
        )
    return old


def read_names(folder: Path) -> dict[str, str]:
    """File -> model of the result files that `write_results` left; empty where it left none.

    Raises DatasetError where the table is no such table.
    """
    path = folder / NAMES_FILE
    if not os.path.lexists(path):
        return {}
    try:
        names = read_json(path, MAX_NAMES_BYTES, strict_json)
    except LoadError as error:
        raise DatasetError(str(error)) from error
    odd = _odd(names)
    if odd is not None:
        raise DatasetError(
            f"{path}: {safe_repr(odd)} is not the file of {safe_repr(names[odd])}; expected the"
            " names that `jaxtroj evaluate --out` wrote: remove the table"
        )
    return names


def _odd(names: Mapping[str, object]) -> str | None:
    """The first file that is not named as its model's would be."""
    for file, model in names.items():
        if not isinstance(model, str) or file != _file(model):
            return file
    return None


def _file(model: str) -> str:
    return file_stem(model) + RESULT_SUFFIX


def _listed(folder: Path) -> list[str]:
    """Names of the result files in a folder; none where there is no folder."""
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UsageError(f"cannot read {folder}: {error.strerror or error}") from error
    return sorted(name for name in names if name.lower().endswith(RESULT_SUFFIX))
