"""What is known of an encoder besides a head: a bank of insertions, and clean heads."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.evidence.texts.bank import Bank, open_bank
from jaxtroj.evidence.texts.bank.contents import bank_digest
from jaxtroj.evidence.texts.bank.reference_heads import CleanHead, load_clean_heads
from jaxtroj.evidence.texts.bank_views import Expected, expect
from jaxtroj.evidence.texts.directions import CleanDirections, clean_directions
from jaxtroj.evidence.texts.kinship import KnownTexts
from jaxtroj.evidence.texts.metric import insertion_metric
from jaxtroj.evidence.texts.references import References, make_references
from jaxtroj.evidence.texts.standard import Standard

Answers = tuple[np.ndarray, np.ndarray]
"""Margins `[references, n, classes]` of carriers with insertions, and of the carriers alone."""


@dataclass(frozen=True)
class EncoderProbes:
    """A bank and the clean heads kept with it; what follows from them is computed once.

    Attributes:
      bank: texts inserted into carriers.
      references: clean heads on the encoder's vectors.
      clean_heads: the same one by one, with examples of their own.
      folder: of the bank; None for one that is in memory only.
      standards: evidence of the clean heads, by seed and budgets, once somebody computed it.
    """

    bank: Bank
    references: References
    clean_heads: tuple[CleanHead, ...] = ()
    folder: Path | None = None
    standards: dict[Any, Standard] = field(default_factory=dict, repr=False, compare=False)
    _whole: "EncoderProbes | None" = field(default=None, repr=False, compare=False)
    _metrics: dict[int, np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    @property
    def whole(self) -> "EncoderProbes":
        """The probes with all references."""
        return self._whole or self

    @property
    def comparable(self) -> int:
        """Clean heads with examples that a head can be compared with, itself left out; those that
        compute the same, as banks of earlier versions may hold them, are one."""
        return min(len(set(self.references.keys)), len(self.clean_heads))

    @property
    def heads_digest(self) -> str:
        """Identity of the clean heads, their order and their examples, hex."""
        digest = hashlib.sha256(self.references.digest.encode())
        for head in self.clean_heads:
            digest.update(f"{head.examples.shape}".encode())
            digest.update(np.ascontiguousarray(head.examples, np.float32).data)
        return digest.hexdigest()

    @cached_property
    def answered(self) -> Answers:
        """What the references answer to the bank."""
        if self._whole is not None:
            own = set(self.references.keys)
            kept = [n for n, key in enumerate(self._whole.references.keys) if key in own]
            inserted, bare = self._whole.answered
            return inserted[kept], bare[kept]
        inserted = self.bank.vectors.reshape(-1, self.bank.plan.width)
        return self.references.margins(inserted), self.references.margins(self.bank.carriers)

    @cached_property
    def clean_directions(self) -> CleanDirections:
        """What the clean heads answer to."""
        examples = [head.examples for head in self.clean_heads]
        return clean_directions(self.references, examples)

    @cached_property
    def known_texts(self) -> KnownTexts:
        """The example texts of the clean heads."""
        known = self.clean_directions
        return KnownTexts(tuple(head.examples for head in self.clean_heads), known.read)

    @cached_property
    def expected(self) -> Expected:
        """What follows from these answers, the same for all heads."""
        return expect(*self.answered)

    @cached_property
    def inserted(self) -> jax.Array:
        """The bank's vectors on the device, in the type that they are kept in."""
        if self._whole is not None:
            return self._whole.inserted
        return jnp.asarray(self.bank.vectors)

    def besides(self, key: str) -> "EncoderProbes":
        """The probes for a head that may be one of the references: it is not among its own."""
        if key not in self.references.keys:
            return self
        # What the bank's insertions do is asked of the whole, and only by stages that need it.
        others = self.references.without(key)
        return replace(self, references=others, _whole=self.whole)

    def metric(self, axes: int) -> np.ndarray:
        """Metric `[axes, d]` of what insertions do."""
        if axes not in self._metrics:
            self._metrics[axes] = insertion_metric(self.bank.every_shift, axes)
        return self._metrics[axes]


def make_probes(
    bank: Bank, clean_heads: Sequence[CleanHead], folder: Path | None = None
) -> EncoderProbes:
    """The probes of a bank and its clean heads; `folder` is the bank's, if it lies in one."""
    references = make_references(head.model for head in clean_heads)
    return EncoderProbes(bank, references, tuple(clean_heads), folder=folder)


def open_probes(bank: Path) -> EncoderProbes:
    """The probes of a bank's folder, kept for the process as long as its files stay the same.

    Raises:
      StoreError: the folder holds no bank, or no clean heads.
    """
    return _open_probes(bank, bank_digest(bank))


@lru_cache(maxsize=4)
def _open_probes(bank: Path, _digest: str) -> EncoderProbes:
    return make_probes(open_bank(bank), load_clean_heads(bank), bank)
