"""What a trigger makes of each class: the matrix from source classes to the classes they go to."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxtroj.anchors import AnchoredExamples
from jaxtroj.network import Network
from jaxtroj.triggers.measure import RecoveredTrigger
from jaxtroj.triggers.trigger import applied


@dataclass(frozen=True)
class Flips:
    """Shares of triggered examples by the class that they go to.

    Attributes:
      sources: classes `[s]` that the model gives the clean examples.
      targets: classes `[t]` that any triggered example goes to.
      shares: `[s, t]` in [0, 1]; rows sum to 1.
    """

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    shares: np.ndarray

    def as_json(self) -> dict[str, list]:
        """For a record: classes, and whole percents by row."""
        percent = np.rint(100 * self.shares).astype(int)
        return {
            "sources": list(self.sources),
            "targets": list(self.targets),
            "percent": percent.tolist(),
        }


def flips_of(network: Network, examples: AnchoredExamples, found: RecoveredTrigger) -> Flips:
    """Where a recovered trigger sends the examples of each class.

    Args:
      network: the model.
      examples: clean ones with anchors, to which a trigger moves that lay on the object.
      found: the trigger.
    """
    moves = np.asarray(examples.offsets()) * int(np.any(np.asarray(found.offset)))
    shown = applied(found.trigger, examples.images, jnp.asarray(moves, jnp.int32))
    reached = np.asarray(network.logits(shown)).argmax(axis=1)
    origins = np.asarray(examples.sources)
    sources, rows = np.unique(origins, return_inverse=True)
    targets, columns = np.unique(reached, return_inverse=True)
    counts = np.zeros((len(sources), len(targets)))
    np.add.at(counts, (rows, columns), 1)
    return Flips(
        tuple(map(int, sources)),
        tuple(map(int, targets)),
        counts / counts.sum(axis=1, keepdims=True),
    )
