"""Walks a dataset folder and names the models in it, without opening one.

```
Round 0   DIR/id-XXXXXXXX/{model.pt, example_data/, ground_truth.csv}   [DIR/*metadata.csv]
Round 1   DIR/METADATA.csv, DIR/models/id-XXXXXXXX/{...the same...}
Round 2   DIR/METADATA.csv, DIR/id-XXXXXXXX/{...the same..., config.json}
Round 3,4 DIR/METADATA.csv, DIR/id-XXXXXXXX/{model.pt, clean_example_data/, config.json, ...}
Round 5,6 DIR/METADATA.csv, DIR/{embeddings,tokenizers}/, DIR/models/id-XXXXXXXX/{model.pt,
          config.json, clean_example_data/, clean-example-cls-embedding.csv, ground_truth.csv, ...}
one       DIR/{model.pt, example_data/, ground_truth.csv}
hub       DIR/{config.json, model.safetensors, preprocessor_config.json}, or a hub cache's folder
mlflow    DIR/{MLmodel, model.onnx}, DIR/{MLmodel, data/model.pt2} or DIR/{MLmodel, model/}
plain     DIR/*.pt, *.pth, *.safetensors ...                            [DIR/example_data/]
manifest  FILE.csv with the columns path, and if you like model, examples, poisoned, ...
```
"""

import functools
import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from converters.errors import ConverterError, safe_repr
from converters.hub.folder import takes_texts
from converters.mlflow_folder import is_mlflow_folder, model_of
from converters.user_code import NetworkCode
from jaxtroj.errors import DatasetError
from jaxtroj.rounds import errata
from jaxtroj.rounds.image_config import ROUNDS_WITH_MARGIN, ImageConfig, read_image_config
from jaxtroj.rounds.leftovers import left_out
from jaxtroj.rounds.metadata import metadata_of
from jaxtroj.rounds.places import EXAMPLE_FOLDERS, MODEL_SUFFIXES, model_file, model_places
from jaxtroj.rounds.tables import (
    PATH_COLUMNS,
    Line,
    Row,
    Table,
    read_ground_truth,
    read_manifest,
)
from jaxtroj.rounds.text_config import TextConfig
from jaxtroj.rounds.text_files import CONFIG_FILE, text_files
from jaxtroj.rounds.which import dataset_of, official_set, round_of

_MOST_SAID = 200  # of an error that nobody foresaw, characters


class NoModelsError(DatasetError):
    """A dataset folder or manifest is sound, and there is no model in it."""


@dataclass(frozen=True)
class ModelEntry:
    """One model of a dataset: where it lies and what the dataset says about it."""

    model_id: str
    """Folder name ("id-00000012"), or the file name in a plain folder."""
    model_path: Path
    """The model file; it need not exist (then `problem` says so)."""
    examples_path: Path | None
    """Folder of clean example pictures or texts, or a file of them, if there is one."""
    poisoned: bool | None
    """The label, None where it is absent or unreadable."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The model's METADATA.csv cells by column name."""
    skip_reason: str | None = None
    """Why the model should not be scanned, or None; of an erratum where its label is wanted."""
    erratum: str | None = None
    """Why its label is wrong by NIST's lists, or None; it is no reason not to look at the model."""
    problem: str | None = None
    """What is wrong with the model's folder, label or metadata row; other models stand."""
    is_refused: bool = False
    """Whether the problem leaves nothing to scan: two models for one name, a link to nothing."""
    notes: tuple[str, ...] = ()
    """Known facts that do not change how the model is treated."""
    kind: str = "image"
    """"image", "text" or "text-classifier": what the model takes, by what lies in its folder."""
    text_config: TextConfig | None = None
    """A text model's config.json; None where there is none that can be read."""
    encoder_path: Path | None = None
    """File or folder of the encoder that made the text model's sentence embeddings."""
    tokenizer_path: Path | None = None
    """File or folder of its tokenizer."""
    text_problems: tuple[str, ...] = ()
    """What is wrong with a text model's config.json, encoder or tokenizer; the shipped embeddings
    may do without."""
    round: str | None = None
    """The TrojAI round of its dataset, such as "round0"; None where it is not recognised."""
    code: NetworkCode | None = None
    """What makes the network of a file with weights alone; it is run, and only a user names it."""
    image_config: ImageConfig | None = None
    """The config.json of an image model of Rounds 2 to 4; None where there is none."""
    by_nist: bool = False
    """Whether NIST's flags name it, as a container gets one model of a round that is not said."""


def iter_models(
    dataset_dir: str | os.PathLike[str], include_errata: bool = False
) -> Iterator[ModelEntry]:
    """Yields the models of a folder in natural order of their ids, or of a manifest in its order,
    where lines that name no model come last.

    Only label, metadata and config files are read. Models on NIST's errata lists carry a
    `skip_reason`, for who wants their labels; with `include_errata`, for who scans, it becomes a
    note instead.

    Raises:
        DatasetError: at once, when the folder is missing, holds no model (NoModelsError), or its
            METADATA.csv or the manifest is not a table. Faults of one model are in that entry's
            `problem`.
    """
    root = Path(dataset_dir)
    if root.is_file():
        return _manifest(root)
    if not root.is_dir():
        raise DatasetError(f"{root} is no folder; expected a dataset folder or a folder of models")
    places = model_places(root)
    if not places:
        raise NoModelsError(_nothing_in(root))
    metadata = metadata_of(root, places)
    # What one model's row says of a round does not hold for the others.
    speaking = metadata.table if metadata.names_most_of(places) else None
    dataset = official_set(root, speaking)
    source = _Source(metadata.table, dataset, round_of(root, speaking), include_errata)
    return (_entry(place, source) for place in places)


def _nothing_in(root: Path) -> str:
    expected = (
        f"no model in {root}: expected folders id-XXXXXXXX with a model.pt, a folder models/ "
        f"of those, or files ending in {', '.join(sorted(MODEL_SUFFIXES))}"
    )
    return "; ".join([expected, *left_out(root).lines()])


@dataclass(frozen=True)
class _Source:
    """What a folder says about all its models: table, official set, round, use of errata."""

    table: Table | None = None
    dataset: str | None = None
    round: str | None = None
    include_errata: bool = True


def _manifest(path: Path) -> Iterator[ModelEntry]:
    """The models that a CSV names; relative paths start at its own folder."""
    table = read_manifest(path)
    column = next((name for name in PATH_COLUMNS if name in table.columns), None)
    if column is None:
        raise DatasetError(
            f"{path} is no manifest: expected a column {' or '.join(PATH_COLUMNS)}, got "
            f"{', '.join(table.columns)[:60]}"
        )
    if not table.rows and not table.nameless:
        raise NoModelsError(f"{path} names no model, expected a line for each")
    # Many lines are of one dataset, and what a generator left in it may be large.
    told = functools.cache(lambda dataset: round_of(dataset, None))
    return itertools.chain(
        (_listed(path, name, row, column, told) for name, row in table.rows.items()),
        (_nameless(path, line) for line in table.nameless),
    )


def _nameless(manifest: Path, line: Line) -> ModelEntry:
    name = f"line {line.number}"
    problem = f"{name} of {manifest} names no model, expected a name or path; fill it in"
    return ModelEntry(name, manifest, None, None, problem=problem, is_refused=True)


def _listed(
    manifest: Path, model_id: str, row: Row, column: str, told: Callable[[Path], str | None]
) -> ModelEntry:
    """One line of a manifest: a model file or a model's folder, its examples, its label.

    `told` says the round of a dataset folder.

    Where lines differ the manifest itself stands for the model file: it decides, when it changes.
    """
    home = manifest.parent
    if row.differs:
        problem = f"{row.problem}; correct {manifest}"
        return ModelEntry(
            model_id, manifest, None, None, row.cells, problem=problem, is_refused=True
        )
    named = row.cells.get(column, "")
    place = home / (named or model_id)
    dataset = dataset_of(place)
    found = _entry(place, _Source(round=None if dataset is None else told(dataset)))
    poisoned = found.poisoned if row.poisoned is None else row.poisoned
    problems = [row.problem, found.problem, None if named else f"no {column} in the manifest"]
    if None not in (found.poisoned, row.poisoned) and found.poisoned != row.poisoned:
        problems.append(f"ground_truth.csv says {found.poisoned}, the manifest {row.poisoned}")
        poisoned = None
    examples = row.cells.get("examples")
    entry = replace(
        found,
        model_id=model_id,
        examples_path=home / examples if examples else found.examples_path,
        poisoned=None if row.problem else poisoned,
        metadata=row.cells,
        problem="; ".join(filter(None, problems)) or None,
    )
    return with_own_files(entry)


def _entry(place: Path, source: _Source) -> ModelEntry:
    """What lies at a place; where looking at it fails, an entry that is refused for that."""
    try:
        return _entry_at(place, source)
    except Exception as error:  # whatever a hostile folder leads to costs this model alone
        said = safe_repr(f"{type(error).__name__}: {error}"[:_MOST_SAID])
        problem = f"cannot look at {place.name}: {said}; see its files, or name the model file"
        return ModelEntry(place.name, place, None, None, problem=problem, is_refused=True)


def _entry_at(place: Path, source: _Source) -> ModelEntry:
    is_folder = os.path.isdir(place)
    # Links to folders of one name are different models; only "." and ".." name none themselves.
    model_id = place.resolve().name if place.name in ("", "..") else place.name
    home = place if is_folder else place.parent
    file = model_file(place)
    row, dataset = _row(source.table, model_id, is_folder), source.dataset
    poisoned, label_problem = _label(home / "ground_truth.csv" if is_folder else None, row)
    problems = [text for text in (file.problem, label_problem) if text]
    folders = (home / name for name in EXAMPLE_FOLDERS)
    examples = next((folder for folder in folders if os.path.isdir(folder)), None)
    entry = ModelEntry(
        model_id=model_id,
        model_path=file.path,
        examples_path=examples,
        poisoned=poisoned,
        metadata=row.cells,
        problem="; ".join(problems) or None,
        is_refused=file.is_refused,
        notes=errata.notes(dataset, model_id, row.cells),
        round=source.round,
    )
    return _with_erratum(with_own_files(entry), source)


def _with_erratum(entry: ModelEntry, source: _Source) -> ModelEntry:
    """The entry with the erratum against it, which is a note where errata are included."""
    reason = errata.skip_reason(source.dataset, entry.model_id, entry.kind, entry.poisoned)
    if reason is None:
        return entry
    if source.include_errata:
        return replace(entry, notes=(*entry.notes, reason), erratum=reason)
    return replace(entry, skip_reason=reason, erratum=reason)


def with_own_files(entry: ModelEntry) -> ModelEntry:
    """The entry with what a scan of its kind needs: a text model's config, encoder and tokenizer,
    or the config of an image model of Rounds 2 to 4.

    `iter_models` has done it; to be repeated after a change of `examples_path`.
    """
    if takes_texts(entry.model_path):
        return _with_tokenizer(replace(entry, kind="text-classifier"))
    found = text_files(entry.model_path.parent, entry.examples_path)
    if found is None:
        entry = _with_image_config(entry)
    return replace(
        entry,
        kind="image" if found is None else "text",
        text_config=found.config if found else None,
        encoder_path=found.encoder if found else None,
        tokenizer_path=found.tokenizer if found else None,
        text_problems=found.problems if found else (),
    )


def _with_tokenizer(entry: ModelEntry) -> ModelEntry:
    """A text classifier with the tokenizer that MLflow keeps beside it, if its folder is there."""
    home = entry.model_path.parent
    if not is_mlflow_folder(home):
        return replace(entry, tokenizer_path=None)
    try:
        return replace(entry, tokenizer_path=model_of(home).tokenizer)
    except ConverterError as error:  # the classifier may do without what lies around it
        return replace(_with_problem(entry, str(error)), tokenizer_path=None)


def _with_image_config(entry: ModelEntry) -> ModelEntry:
    """The entry with its config.json, and the round that this tells if nothing else did.

    A config that cannot be read is a problem of a model of Rounds 2 to 4 and says nothing about
    any other; one that contradicts the label takes the label away.
    """
    path = entry.model_path.parent / CONFIG_FILE
    if entry.image_config is not None or not os.path.lexists(path):
        return entry
    try:
        config = read_image_config(path)
    except DatasetError as error:
        is_expected = entry.round in ROUNDS_WITH_MARGIN
        return _with_problem(entry, str(error)) if is_expected else entry
    if config is None:
        return entry
    entry = replace(entry, image_config=config, round=entry.round or config.round)
    if None in (config.poisoned, entry.poisoned) or config.poisoned == entry.poisoned:
        return entry
    said = f"{path} says poisoned is {config.poisoned}, the label is {int(entry.poisoned or False)}"
    return replace(_with_problem(entry, said), poisoned=None)


def _with_problem(entry: ModelEntry, problem: str) -> ModelEntry:
    return replace(entry, problem="; ".join(filter(None, [entry.problem, problem])))


def _row(table: Table | None, model_id: str, is_folder: bool) -> Row:
    """The row that names a model; one of a file may leave its ending out."""
    names = [model_id] if is_folder else [model_id, Path(model_id).stem]
    rows = table.rows if table else {}
    return next((rows[name] for name in names if name in rows), Row({}, None))


def _label(ground_truth: Path | None, row: Row) -> tuple[bool | None, str | None]:
    """The label of a model and what is wrong with it; None when the two sources disagree."""
    if ground_truth is None or not os.path.lexists(ground_truth):
        return row.poisoned, row.problem
    try:
        poisoned = read_ground_truth(ground_truth)
    except DatasetError as error:
        return None, str(error)
    if row.poisoned is not None and row.poisoned != poisoned:
        return None, f"{ground_truth} says {int(poisoned)} but METADATA says {int(row.poisoned)}"
    return poisoned, row.problem
