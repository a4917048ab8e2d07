"""From a path to an `Encoder`: a folder or a pickled file."""

from os import PathLike
from pathlib import Path

from converters.encoders.assembly import Encoder
from converters.encoders.folder import load_folder
from converters.encoders.pickled import load_pickled


def load_encoder(path: str | PathLike[str]) -> Encoder:
    """Read a Hugging Face folder or a whole pickled encoder; nothing in it is executed.

    Raises:
      LoadError: the path cannot be read safely.
      ConversionError: it holds no supported encoder.
    """
    path = Path(path)
    return load_folder(path) if path.is_dir() else load_pickled(path)
