"""What is known of an encoder besides a head: a bank of insertions, and clean heads."""

from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.evidence.texts.bank import Bank, open_bank
from jaxtroj.evidence.texts.bank.reference_heads import load_references
from jaxtroj.evidence.texts.bank_views import Expected, expect
from jaxtroj.evidence.texts.metric import insertion_metric
from jaxtroj.evidence.texts.references import References


@dataclass(frozen=True)
class EncoderProbes:
    """A bank and the clean heads kept with it; what follows from them is computed once.

    Attributes:
      bank: texts inserted into carriers.
      references: clean heads on the encoder's vectors.
    """

    bank: Bank
    references: References
    _metrics: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def expected(self) -> Expected:
        """The references' answers to the bank, the same for all heads."""
        inserted = self.bank.vectors.reshape(-1, self.bank.plan.width)
        carriers = self.references.margins(self.bank.carriers)
        return expect(self.references.margins(inserted), carriers)

    @cached_property
    def inserted(self) -> jax.Array:
        """The bank's vectors on the device, in the type that they are kept in."""
        return jnp.asarray(self.bank.vectors)

    def metric(self, axes: int) -> np.ndarray:
        """Metric `[axes, d]` of what insertions do."""
        if axes not in self._metrics:
            self._metrics[axes] = insertion_metric(self.bank.every_shift, axes)
        return self._metrics[axes]


@lru_cache(maxsize=4)
def open_probes(bank: Path) -> EncoderProbes:
    """The probes of a bank's folder, kept for the process.

    Raises:
      StoreError: the folder holds no bank, or no clean heads.
    """
    return EncoderProbes(open_bank(bank), load_references(bank))
