"""Whether a model's file computes the logits that were stored beside it.

NIST's Rounds 3 and 4 ship `clean-example-logits.csv`. Its numbers were computed in half precision,
so small differences say nothing; another network, or pictures cut otherwise, differ by far.
"""

from pathlib import Path

import numpy as np

from jaxtroj.diagnostics import Raised
from jaxtroj.errors import DatasetError
from jaxtroj.flags import OTHER_LOGITS
from jaxtroj.network import Network
from jaxtroj.rounds.examples import Examples
from jaxtroj.rounds.text_tables import LOGITS_TABLE as FILE
from jaxtroj.rounds.text_tables import read_logits

_MOST = 64  # examples that are compared
_TOLERANCE, _SHARE = 0.05, 0.1


def compare_stored(folder: Path, network: Network, examples: Examples) -> tuple[str, ...]:
    """What the logits stored beside a model say against its file: nothing, or one sentence.

    Args:
        folder: of the model.
        network: of its file.
        examples: its clean pictures, in the network's form.
    """
    path = folder / FILE
    if not path.is_file():
        return ()
    try:
        stored = read_logits(path)
    except DatasetError as error:
        return (str(error),)
    known = frozenset(stored.names)
    places = [place for place, name in enumerate(examples.names) if name in known][:_MOST]
    if not places:
        return (f"{FILE} names none of the examples",)
    wanted = stored.of(tuple(examples.names[place] for place in places))
    found = np.asarray(network.logits(examples.images[np.array(places)]), np.float64)
    return tuple(map(str, filter(None, [_difference(found, wanted)])))


def _difference(found: np.ndarray, wanted: np.ndarray) -> Raised | None:
    if found.shape != wanted.shape:
        text = f"{FILE} holds {wanted.shape[1]} logits, the network computes {found.shape[1]}"
        return Raised(OTHER_LOGITS, text)
    apart = np.abs(found - wanted).max(axis=1)
    differ = ~(apart <= _TOLERANCE * np.maximum(1.0, np.abs(wanted).max(axis=1)))
    if differ.mean() <= _SHARE:
        return None
    return Raised(
        OTHER_LOGITS,
        f"{FILE} holds other logits for {int(differ.sum())} of {len(differ)} examples, by up to"
        f" {apart[differ].max():.3g}: the file is not the network that made these logits",
    )
