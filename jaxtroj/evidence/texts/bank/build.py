"""Compute a bank: every candidate in every carrier through the encoder, once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxtroj.errors import UsageError
from jaxtroj.evidence.texts.bank.candidates import BankText
from jaxtroj.evidence.texts.bank.store import BankPlan, BankWriter
from jaxtroj.evidence.texts.insertion import HALVES, insert, places, sentences
from jaxtroj.poolings import Pooling

Embed = Callable[[Sequence[str]], np.ndarray]
"""Texts to vectors float32 `[n, d]`."""

_BLOCK = 64


@dataclass(frozen=True)
class Built:
    """Progress of a build.

    Attributes:
      done: candidates whose vectors are there.
      candidates: how many there will be.
      knows_tokenizer: False for a whole bank of an earlier version, which did not note it.
    """

    done: int
    candidates: int
    knows_tokenizer: bool


def make_plan(
    encoder_sha256: str,
    width: int,
    pooling: Pooling,
    known_list: bool,
    carriers: Sequence[str],
    candidates: Sequence[BankText],
    tokenizer: str = "",
) -> BankPlan:
    """The plan of a bank; a candidate's places are keyed by its text, never by its number.

    Raises:
      UsageError: a carrier has no sentence, or there is no carrier or candidate.
    """
    parts = [sentences(text) for text in carriers]
    if not all(parts) or not parts or not candidates:
        raise UsageError(
            f"a bank needs candidates and carriers of at least one sentence, got {len(candidates)} "
            f"candidates and {len(parts)} carriers, {sum(not p for p in parts)} of them empty"
        )
    chosen = tuple(_places(candidate.text, parts) for candidate in candidates)
    return BankPlan(
        encoder_sha256,
        width,
        pooling,
        known_list,
        tuple(carriers),
        chosen,
        tuple(candidates),
        tokenizer,
    )


def build(folder: Path, plan: BankPlan, embed: Embed) -> Iterator[Built]:
    """Compute what the folder lacks, yielding after each block of candidates.

    Raises:
      StoreError: the folder holds another bank, or a part of one that nobody noted the tokenizer
        of, or cannot be written.
    """
    parts = [sentences(text) for text in plan.carriers]
    with BankWriter(folder, plan) as writer:
        if not writer.has_carriers:
            writer.write_carriers(embed([" ".join(part) for part in parts]))
        yield Built(writer.done, len(plan.candidates), writer.knows_tokenizer)
        while writer.done < len(plan.candidates):
            block = range(writer.done, min(writer.done + _BLOCK, len(plan.candidates)))
            texts = [
                insert(part, plan.candidates[number].text, place)
                for number in block
                for part, place in zip(parts, plan.places[number], strict=True)
            ]
            writer.append(embed(texts).reshape(len(block), len(parts), plan.width))
            yield Built(writer.done, len(plan.candidates), writer.knows_tokenizer)


def _places(text: str, carriers: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """Before a random sentence of each carrier, in turn of its first and its second half."""
    draw = np.random.default_rng(list(text.encode("utf-8", "surrogatepass")))
    allowed = [places(len(parts), number % HALVES) for number, parts in enumerate(carriers)]
    return tuple(int(draw.choice(np.asarray(some))) for some in allowed)
