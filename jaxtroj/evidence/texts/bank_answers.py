"""What real insertions of text do to a head that they do not do to clean ones.

A bank holds carrier sentences and their embeddings with each candidate text inserted, computed once
per encoder. A head and the clean references answer all of them. Inserted sentiment moves every
head; a poisoned one departs from the clean ones where insertions come near its trigger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Params, apply
from jaxtroj.evidence.texts.bank_views import rises, top_count, view_fields
from jaxtroj.evidence.texts.encoder_probes import EncoderProbes
from jaxtroj.evidence.texts.heads import Head, in_basis, sums
from jaxtroj.evidence.texts.insertion import HALVES
from jaxtroj.evidence.texts.references import References
from jaxtroj.margins import all_margins

# Candidates of each target that are tried again on the head's own examples.
TRIED = 48
# An insertion of one of them moves a text less than a trigger that a head was trained on: the same
# shift, so many times as long, reaches further.
LONGER = 3
LENGTHENED = 14


@dataclass(frozen=True)
class Banked:
    """What the candidates did to a head.

    Attributes:
      views: fields of `bank_views`.
      tried: int `[targets, TRIED]`, candidates with the largest rises, largest first; all of a
        smaller bank.
      scores: `[targets, TRIED]`, mean sigmoid margin of the target on the head's own held-out
        examples moved by the candidate's mean shift.
      departures: the same less the references' mean.
      longer: fields of longer shifts.
      top: how many candidates count as the best (`bank_views.top_count`).
    """

    views: dict[str, float]
    tried: np.ndarray
    scores: np.ndarray
    departures: np.ndarray
    longer: Mapping[str, float]
    top: int


def run_bank(head: Head, probes: EncoderProbes) -> Banked:
    """Try every candidate on a head."""
    flat = probes.inserted.reshape(-1, probes.inserted.shape[-1])
    answers = np.asarray(_answers(head.config, head.params, flat))
    found = rises(answers, probes.expected)
    tried = np.argsort(-found["matched"], axis=1, kind="stable")[:, :TRIED]
    shifts = probes.bank.shifts[tried]
    scores, others = _moved(head, probes.references, shifts)
    ways = [("bank_longer", shifts[:, :LENGTHENED])]
    for half in range(HALVES):
        best = np.argsort(-found[f"half {half}"], axis=1, kind="stable")[:, :LENGTHENED]
        ways.append(("half_longer", probes.bank.half_shifts[half][best]))
    longer = _longer(head, probes.references, ways)
    return Banked(
        view_fields(answers, probes.expected, found),
        tried,
        scores,
        scores - others,
        longer,
        top_count(len(probes.bank.shifts)),
    )


def bank_fields(banked: Banked) -> dict[str, float]:
    """Fields by name; see `jaxtroj.evidence.texts.stages.bank`."""
    top = top_departures(banked)
    own = {"bank_departure": float(top.max()), "bank_departure_gap": float(np.ptp(top))}
    return banked.views | own | dict(banked.longer)


def top_departures(banked: Banked) -> np.ndarray:
    """Mean departure of the best candidates of each target, `[targets]`."""
    return np.sort(banked.departures, axis=1)[:, -banked.top :].mean(axis=1)


def _longer(
    head: Head, references: References, ways: Sequence[tuple[str, np.ndarray]]
) -> dict[str, float]:
    """Mean departure, best class and way, with shifts `LONGER` times as long as given."""
    found: dict[str, float] = {}
    for name, shifts in ways:
        own, clean = _moved(head, references, LONGER * shifts)
        best = float((own - clean).mean(axis=1).max())
        found[name] = max(best, found.get(name, -1.0))
    return found


@partial(jax.jit, static_argnums=0)
def _answers(config, params: Params, x):
    """Margins `[n, classes]` for embeddings `[n, d]`."""
    return all_margins(apply(config, params, x.astype(jnp.float32)))


def _moved(head: Head, references: References, shifts: np.ndarray):
    """Scores `[targets, TRIED]` of the head and of the references' mean."""
    own = np.asarray(_scores(head.config, head.stacked, head.held_out, shifts))[0]
    known = zip(references.configs, references.params, strict=True)
    found = [np.asarray(_scores(config, group, head.held_out, shifts)) for config, group in known]
    return own, np.concatenate(found).mean(axis=0)


@partial(jax.jit, static_argnums=0)
def _scores(config, params: Params, x, shifts):
    """Mean sigmoid margins `[m, targets, k]`: examples `[targets, n, d]` by `[targets, k, d]`."""
    (targets, rows, width), moves = x.shape, shifts.shape[1]
    basis = jnp.concatenate([x, shifts], axis=1).reshape(-1, width)
    # Each target's examples by its own shifts only: blocks on the diagonal.
    blocks = np.zeros((targets, moves, rows, targets, rows + moves), np.float32)
    blocks[np.arange(targets), ..., np.arange(targets), :] = sums(rows, moves)
    points = jnp.asarray(blocks.reshape(-1, len(basis)))

    def one(params):
        found = jax.nn.sigmoid(all_margins(apply(*in_basis(config, params, basis), points)))
        by_class = found.reshape(targets, moves, rows, -1)[
            np.arange(targets), ..., np.arange(targets)
        ]
        return by_class.mean(axis=-1)

    return jax.lax.map(one, params)
