"""Hugging Face folders of encoders: `config.json` as data, and weights."""

from pathlib import Path

from converters.encoders.assembly import Encoder, assemble
from converters.errors import ConversionError
from converters.files import read_json
from converters.hub.redirections import refuse_redirections, refuse_rounding
from converters.hub.weights import read_weights

CONFIG = "config.json"
_MAX_CONFIG_BYTES = 2**20


def load_folder(folder: Path) -> Encoder:
    """The encoder in a Hugging Face folder.

    Raises:
      LoadError: a file is missing, damaged or unsafe, or other weights are loaded where it is used.
      ConversionError: it holds no supported encoder.
    """
    values = read_json(folder / CONFIG, _MAX_CONFIG_BYTES)
    place = str(folder / CONFIG)
    refuse_redirections(folder, values, place)
    weights = read_weights(folder)
    try:
        refuse_rounding(values, weights, CONFIG)
        return assemble(values, weights.tensors, place, weights.sha256, list(weights.findings))
    except ConversionError as error:
        error.args = (f"{folder}: {error}",)
        raise
