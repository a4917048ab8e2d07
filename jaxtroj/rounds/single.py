"""The one model that a path names."""

import os
from dataclasses import replace
from pathlib import Path

from converters.errors import LoadError
from converters.fetching import HUB, MLFLOW, fetch_in_time
from converters.hub.fetch import HubAddress, address_of
from converters.mlflow_folder import is_mlflow_address
from jaxtroj.errors import DatasetError, UsageError
from jaxtroj.rounds.layout import ModelEntry, iter_models, with_own_files
from jaxtroj.rounds.places import EXAMPLE_FOLDERS
from jaxtroj.rounds.which import dataset_of, round_of

_AMBIGUOUS = (
    "it is an address, and a folder of that name lies here; for the folder give its whole path, for"
    " the address start in another folder"
)


def entry_of(path: Path) -> ModelEntry:
    """The entry of a model file, or of a folder with one model; called as the path.

    A network on a hub, `hf://ORG/NAME[@REVISION]`, is fetched, and so is one of an MLflow registry,
    `models:/NAME/VERSION`, each under a limit of time. What is wrong with the path ends up in the
    entry's `problem`, and so in the model's record.

    Raises:
        UsageError: the folder holds several models.
    """
    address = address_of(str(path))
    is_address = address is not None or is_mlflow_address(str(path))
    if is_address and os.path.lexists(path):
        return ModelEntry(str(path), path, None, None, problem=_AMBIGUOUS)
    if address is not None:
        return _fetched(address)
    if is_address:
        try:
            path, name = fetch_in_time(MLFLOW, str(path)), str(path)
        except LoadError as error:
            return ModelEntry(str(path), path, None, None, problem=str(error))
        return replace(entry_of(path), model_id=name)
    if not path.is_dir():
        beside = (path.parent / name for name in EXAMPLE_FOLDERS)
        examples = next((folder for folder in beside if folder.is_dir()), None)
        dataset = dataset_of(path)
        told = None if dataset is None else round_of(dataset, None)
        return with_own_files(ModelEntry(str(path), path, examples, None, round=told))
    try:
        found = list(iter_models(path, include_errata=True))
    except DatasetError as error:
        return ModelEntry(str(path), path / "model.pt", None, None, problem=str(error))
    if len(found) > 1:
        raise UsageError(f"{path} holds {len(found)} models; use: jaxtroj scan {path} --out RUN")
    return replace(found[0], model_id=str(path))


def _fetched(address: HubAddress) -> ModelEntry:
    try:
        return ModelEntry(str(address), fetch_in_time(HUB, str(address)), None, None)
    except LoadError as error:
        return ModelEntry(str(address), Path(str(address)), None, None, problem=str(error))
