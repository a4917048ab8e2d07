"""What the columns of a table say of a model: its name and its label, which may stand twice.

Nobody can tell which of two contradicting columns is meant, and either gives plausible scores.
"""

from collections.abc import Mapping

ID_COLUMNS = ("model_name", "model_id", "model", "id")
LABEL_COLUMNS = ("poisoned", "ground_truth")
LABELS = {"true": True, "1": True, "false": False, "0": False}


def parse_label(text: str) -> bool:
    """ "1", "TRUE" (any case) is poisoned, "0", "FALSE" is clean; anything else ValueError.

    >>> parse_label(" TRUE "), parse_label("0")
    (True, False)
    """
    label = LABELS.get(text.strip().lower())
    if label is None:
        raise ValueError(f"label {short(text)}, expected TRUE, FALSE, 1 or 0")
    return label


def label_of(
    cells: Mapping[str, str], needs_label: bool = True, place: str | None = None
) -> bool | None:
    """The label in a line's cells, whose label columns must all say the same.

    An empty cell beside a label says nothing.

    Args:
        cells: by column name; label columns are spelled in any case.
        needs_label: whether it is an error that all label columns are empty.
        place: where the label stands, for messages; None names the column.

    Returns None where there is no label column, or no label and none is needed.
    Raises ValueError for a cell that is no label, and for labels that differ.

    >>> label_of({"poisoned": "1", "Ground_Truth": "TRUE"}), label_of({"seed": "1"})
    (True, None)
    """
    names = [name for known in LABEL_COLUMNS for name in cells if name.lower() == known]
    filled = [name for name in names if cells[name]]
    if not names or not (filled or needs_label):
        return None
    labels = {name: _label_in(cells[name], name, place) for name in filled or names[:1]}
    if len(set(labels.values())) > 1:
        said = ", ".join(f"{short(name)} {short(cells[name])}" for name in labels)
        raise ValueError(f"label columns that differ ({said}), expected one label")
    return next(iter(labels.values()))


def _label_in(text: str, column: str, place: str | None) -> bool:
    try:
        return parse_label(text)
    except ValueError as error:
        raise ValueError(f"{error} ({place or f'column {column}'})") from error


def two_names(rows: Mapping[str, Mapping[str, str]], id_column: str) -> str:
    """Why nobody knows which of two columns names the models, in words; "" where that is clear.

    A column `model` of few architectures and a column `id` of line numbers name no models: what
    counts is a name that another model has, and a column whose every cell is another name.

    Args:
        rows: cells by column name, by the model id that `id_column` gives.
        id_column: the one that is read.
    """
    columns = next(iter(rows.values()), {})
    for column in (c for c in columns if c.lower() in ID_COLUMNS and c != id_column):
        others = {name: cells[column] for name, cells in rows.items() if cells.get(column)}
        odd = [name for name, other in others.items() if other != name]
        are_names = column.lower() != "id" and len(set(others.values())) == len(rows)
        taken = [name for name in odd if others[name] in rows]
        if odd and (taken or are_names):
            name = (taken or odd)[0]
            return (
                f"names a model {short(name)} in column {id_column} and {short(others[name])} in"
                f" column {column}: expected one name; remove the column that is none, or rename it"
            )
    return ""


def short(text: str) -> str:
    """A stranger's text for a message: ASCII, at most 60 characters."""
    return ascii(text if len(text) <= 60 else f"{text[:57]}...")
