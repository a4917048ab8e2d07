"""The model file of an attempt, read and converted: what every scan of a file begins with."""

from typing import TYPE_CHECKING

from converters.errors import LoadError
from converters.hub.fetch import address_of
from converters.mlflow_folder import is_mlflow_address
from jaxtroj.scan.attempt import Attempt, taken
from jaxtroj.scan.public_code import settled

if TYPE_CHECKING:
    from converters.model import Model


def open_model(attempt: Attempt) -> "Model":
    """Read and convert the model file of an attempt.

    Raises:
        LoadError, ConversionError: it is no model, or what it is stays open.
        ExamplesError: examples had to tell what it is, and are not what they should be.
    """
    from converters.opening import convert_file, read_model

    entry = attempt.entry
    place = str(entry.model_path)
    if entry.problem and (address_of(place) or is_mlflow_address(place)):
        raise LoadError(entry.problem)  # it was not fetched, and there is nothing to read
    with attempt.step("read"):
        file = read_model(entry.model_path)
        attempt.sha256 = file.sha256
    opened = settled(attempt, lambda form, size: convert_file(file, form, size, entry.code))
    attempt.folder_form, attempt.class_names = opened.folder_form, opened.class_names
    return taken(attempt, opened.model)
