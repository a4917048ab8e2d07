"""What a command writes is none of what it reads: told before the work, not after the loss."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from converters.files import kind_of, read_plain
from jaxtroj.errors import UsageError

_REPLACED = ("a file", "a folder", "absent")
_OF_FOLDERS = frozenset(
    {
        "accepted.toml",
        "config.json",
        "environment.json",
        "generation.json",
        "ground_truth.csv",
        "lock",
        "log.txt",
        "manifest.json",
        "metadata.csv",
        "settings.json",
    }
)
"""Files of run folders and datasets, which no command writes by --out; in small letters."""
_SUFFIXES_OF_FOLDERS = frozenset({".jpeg", ".jpg", ".jsonl", ".npy", ".npz", ".png"})
_LONGEST_NUMBER = 64


def keep_inputs(
    outputs: Path | Iterable[Path], inputs: Iterable[Path | None], flag: str = "--out"
) -> None:
    """Check that no file to be written is an input, or lies in a folder that is one.

    A report or a calibrator that an earlier command left in an input folder may be replaced; its
    records, tables, models and pictures may not.

    Args:
        outputs: paths that are going to be written.
        inputs: paths that the command reads; None for an option that was not given.
        flag: what named the outputs, for the message.

    Raises:
        UsageError: such a file is an input.
    """
    given = [path for path in inputs if path is not None]
    for output in [outputs] if isinstance(outputs, Path) else outputs:
        for path in given:
            if _is_lost(output, path):
                raise UsageError(
                    f"{flag} would replace {output}, which the command reads; name another place"
                )


def check_folder(folder: Path) -> None:
    """Check that a folder can be made and written in, before the work that depends on it.

    Raises:
        UsageError: something else has the name of it or of a folder above it, or is closed.
    """
    there = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
    if not os.path.isdir(there):
        raise UsageError(f"cannot write in {folder}: {there} is no folder; name another place")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write in {folder}: {there} takes no files; name another place")


def is_same(a: str | Path, b: str | Path) -> bool:
    """Whether two paths lead to one file or folder, or would if it were there."""
    try:
        return os.path.samefile(a, b)
    except ValueError:  # a null byte: no path at all
        return False
    except OSError:  # one is absent
        return os.path.realpath(a) == os.path.realpath(b)


def keep_named(result: Path, arguments: Sequence[str], flag: str) -> None:
    """Check, before they are parsed, that no other word of the arguments names a result file.

    Inside a folder that a word names, only an earlier result may be replaced.

    Args:
        result: the file that is going to be written.
        arguments: words of the command line.
        flag: what named the file.

    Raises:
        UsageError: the file is an input; it is as it was.
    """
    if _kind(result) not in _REPLACED:  # such as /dev/null, which is never replaced
        return
    is_older = _is_number(result) and result.name.lower() not in _OF_FOLDERS
    for path in _named(arguments, flag):
        if is_same(result, path) or (not is_older and _is_inside(result, path)):
            raise UsageError(
                f"{flag} would replace {result}, which another argument names or holds; it is left"
                " as it was; name another file for the result"
            )


def _named(arguments: Sequence[str], flag: str) -> Iterator[str]:
    """What may be a path among the words: all but the values of `flag` and of output folders."""
    for before, word in zip(["", *arguments], arguments, strict=False):
        name, is_flag, value = word.partition("=")
        if flag in (before, name) or before == "--scratch_dirpath" or name == "--scratch_dirpath":
            continue
        yield from filter(None, (word, value if is_flag else "", word.rpartition(":")[0]))


def _is_lost(output: Path, path: Path) -> bool:
    if _kind(output) not in _REPLACED:
        return False
    if is_same(output, path):
        return True
    from jaxtroj.rounds.places import MODEL_SUFFIXES

    name = output.name.lower()
    is_content = Path(name).suffix in MODEL_SUFFIXES | _SUFFIXES_OF_FOLDERS or name in _OF_FOLDERS
    return is_content and os.path.lexists(output) and is_same(output.parent, path)


def _is_inside(output: Path, folder: str | Path) -> bool:
    """Whether something that is there lies in a folder, at any depth."""
    if not os.path.lexists(output) or not os.path.isdir(folder):
        return False
    return Path(os.path.realpath(output)).is_relative_to(os.path.realpath(folder))


def _kind(path: Path) -> str:
    try:
        return kind_of(os.stat(path).st_mode)
    except (OSError, ValueError):
        return "absent"


def _is_number(path: Path) -> bool:
    """Whether a file is absent, empty, or holds one number as results do."""
    try:
        text = read_plain(path, _LONGEST_NUMBER + 1)
        float(text or "0")
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return len(text) <= _LONGEST_NUMBER
