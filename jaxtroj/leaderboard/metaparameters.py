"""NIST's container parameters: metaparameters checked by a JSON schema, and learned parameters.

From Round 9 on a container holds `/metaparameters.json`, `/metaparameters_schema.json` and
`/learned_parameters/` (usnistgov/trojai-example, entrypoint.py); ours are in `containers/`.
"""

import os
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from converters.errors import safe_repr
from converters.files import strict_json
from jaxtroj.errors import UsageError
from jaxtroj.evidence.stage import Subject, stages_for
from jaxtroj.evidence.stages import IMAGE_STAGES
from jaxtroj.rounds.tables import read_text

CALIBRATOR_FILE, METAPARAMETERS_FILE = "calibrator.json", "metaparameters.json"
TEXT_CALIBRATOR_FILE = "text_calibrator.json"
CALIBRATOR_FILES = (CALIBRATOR_FILE, TEXT_CALIBRATOR_FILE)
MAX_BYTES = 2**20
AUTO = "auto"
"""Of the input form: nothing is said, so the model's round decides, else its examples."""
_LONGEST_COMPLAINT = 300
_OF_ROUNDS = Subject(side=224, has_batch_norm=True)  # a model without them leaves `memory` out
LARGE_STAGES = tuple(stage.name for stage in stages_for(IMAGE_STAGES, _OF_ROUNDS))
"""Stages of image models; the pictures of NIST's rounds are large."""


@dataclass(frozen=True)
class Metaparameters:
    """What NIST's harness may vary; the words are those of `Settings`."""

    last_stage: str = LARGE_STAGES[-1]
    """Evidence of image models is gathered up to this stage."""
    early_stop: bool = True
    seed: int = 0
    base_rate: float = 0.5
    channel_order: str = AUTO
    normalization: str = AUTO
    examples_per_class: int = 100

    def said(self, name: str) -> Any:
        """A value as an option has it; None where it leaves the model's round to decide.

        >>> Metaparameters().said("channel_order") is None, Metaparameters().said("seed")
        (True, 0)
        """
        value = getattr(self, name)
        return None if value == AUTO else value

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages to run, in order."""
        return LARGE_STAGES[: LARGE_STAGES.index(self.last_stage) + 1]


def read_metaparameters(path: Path, schema_path: Path | None) -> Metaparameters:
    """Reads and checks metaparameters: by the schema, if one is given, then by what this detector
    knows.

    A name that the file lacks has its default. Nothing is fetched: a schema that refers to another
    place is refused.

    Raises:
        DatasetError: a file is missing, too large or no text.
        UsageError: no JSON, no schema, or values that one of the two does not allow.
    """
    values = _json(path)
    if schema_path is not None:
        _validate(values, _json(schema_path), path, schema_path)
    if not isinstance(values, dict):
        raise UsageError(f"{path} holds {safe_repr(values)}, expected an object of metaparameters")
    known = {field.name: field.type for field in fields(Metaparameters)}
    odd = sorted(values.keys() - known.keys())
    if odd:
        raise UsageError(
            f"{path} has unknown metaparameters {safe_repr(', '.join(odd))}; expected some of"
            f" {', '.join(known)}"
        )
    for name, value in values.items():
        if type(value) is not known[name]:
            kind = getattr(known[name], "__name__", known[name])
            raise UsageError(f"{path}: {name} is {safe_repr(value)}, expected {kind}")
    if values.get("last_stage", LARGE_STAGES[0]) not in LARGE_STAGES:
        stage = safe_repr(values["last_stage"])
        raise UsageError(
            f"{path}: last_stage is {stage}, expected one of {', '.join(LARGE_STAGES)}"
        )
    return Metaparameters(**values)


def calibrator_file(kind: str) -> str:
    """Name of the learned calibrator for one kind of model, see `Record.kind`."""
    return TEXT_CALIBRATOR_FILE if kind == "text" else CALIBRATOR_FILE


def learned_calibrators(folder: Path) -> tuple[Path | None, Path | None]:
    """The calibrator files of a learned parameters folder.

    `jaxtroj configure` writes the one for the kind of models it was given. Earlier versions wrote
    that for heads as calibrator.json, so a folder with this one alone has it answer for all kinds.
    In an empty folder nothing is learned, as in a container that is new: the shipped ones answer.

    Returns:
        The one for all others, or None where there is none; the one for heads. Both None of an
        empty folder.

    Raises:
        UsageError: there is neither, and the folder is not empty or cannot be listed.
    """
    path, text = folder / CALIBRATOR_FILE, folder / TEXT_CALIBRATOR_FILE
    if _is_empty(folder):
        return None, None
    if not path.is_file() and not text.is_file():
        raise UsageError(
            f"no {' or '.join(CALIBRATOR_FILES)} in the learned parameters folder {folder};"
            " `jaxtroj configure` writes one, and an empty folder stands for the shipped ones"
        )
    return path if path.is_file() else None, text if text.is_file() else path


def _is_empty(folder: Path) -> bool:
    """Whether a folder is there and holds nothing but hidden files, such as .gitkeep."""
    try:
        return all(name.startswith(".") for name in os.listdir(folder))
    except OSError:
        return False


def _json(path: Path) -> Any:
    try:
        return strict_json(read_text(path, MAX_BYTES))
    except ValueError as error:
        raise UsageError(f"{path} is not JSON: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply") from error


def _validate(values: Any, schema: Any, path: Path, schema_path: Path) -> None:
    import jsonschema
    import referencing
    import referencing.exceptions
    from jsonschema.validators import validator_for

    try:
        if not isinstance(schema, dict):
            raise UsageError(f"{schema_path} holds {safe_repr(schema)}, expected a JSON schema")
        kind = validator_for(schema, jsonschema.Draft202012Validator)
        kind.check_schema(schema)
        # An empty registry: without one jsonschema would fetch what the schema refers to.
        problem = next(kind(schema, registry=referencing.Registry()).iter_errors(values), None)
    except jsonschema.SchemaError as error:
        raise UsageError(f"{schema_path} is no JSON schema: {_short(error.message)}") from error
    except (referencing.exceptions.Unresolvable, RecursionError, re.error) as error:
        reason = _short(f"{type(error).__name__}: {error}")
        raise UsageError(f"the schema {schema_path} cannot be used: {reason}") from error
    if problem is not None:
        place = ".".join(map(str, problem.absolute_path)) or "the whole"
        raise UsageError(
            f"{path} does not fit its schema at {safe_repr(place)}: {_short(problem.message)}"
        )


def _short(text: str) -> str:
    """One ASCII line of at most 300 characters."""
    line = " ".join(text.split()).encode("ascii", "backslashreplace").decode()
    return line if len(line) <= _LONGEST_COMPLAINT else line[:_LONGEST_COMPLAINT] + "..."
