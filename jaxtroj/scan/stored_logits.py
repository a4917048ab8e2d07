"""Whether a model's file computes the logits that were stored beside it.

NIST's Rounds 3 and 4 ship `clean-example-logits.csv`. Its numbers were computed in half precision,
so small differences say nothing; another network, or pictures cut otherwise, differ by far. So they
also tell how pictures of that size are cut where nothing else does.
"""

from pathlib import Path

import numpy as np

from jaxtroj.diagnostics import Raised
from jaxtroj.errors import DatasetError
from jaxtroj.flags import OTHER_LOGITS
from jaxtroj.input_forms import PixelForm
from jaxtroj.network import Network
from jaxtroj.rounds import ModelEntry
from jaxtroj.rounds.examples import Examples, Pictures
from jaxtroj.rounds.image_config import ROUNDS_WITH_MARGIN, middle_of
from jaxtroj.rounds.text_tables import LOGITS_TABLE as FILE
from jaxtroj.rounds.text_tables import read_logits

_AS_STORED = (
    f"nothing says which part of the pictures the network takes: the middle {{}} pixels were taken,"
    f" whose logits {FILE} holds"
)
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


def cut_as_stored(
    entry: ModelEntry, network: Network, pictures: Pictures, form: PixelForm
) -> Pictures:
    """The middle of pictures where the logits stored beside a model are those of the middle.

    Asked only where neither config.json nor a round says how pictures as large as those of Rounds 2
    to 4 are cut, and the network takes any size.

    Args:
        entry: the model's.
        network: of its file, in its input form.
        pictures: as they are.
        form: of the network.
    """
    height, width = pictures.pixels.shape[1:3]
    side = middle_of(None, ROUNDS_WITH_MARGIN[0], (height, width)).side
    is_said = entry.image_config is not None or entry.round in ROUNDS_WITH_MARGIN
    folder = entry.model_path.parent
    if is_said or side is None or not (folder / FILE).is_file():
        return pictures
    cut = pictures.cut(side, [_AS_STORED.format(side)])

    def differ(some: Pictures) -> bool:
        examples = some.examples(form.channel_order, form.normalization)
        return bool(compare_stored(folder, network, examples))

    return cut if differ(pictures) and not differ(cut) else pictures


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
        f" {apart[differ].max():.3g}: the file is not the network that made these logits,"
        " or not of these pictures as they were taken",
    )
