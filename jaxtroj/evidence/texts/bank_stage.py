"""Stage bank: what real insertions of text do to a head that they do not do to clean ones.

A bank holds carrier sentences and their embeddings with each candidate text inserted, computed once
per encoder. A head and the clean references answer all of them. Inserted sentiment moves every
head; a poisoned one departs from the clean ones where insertions come near its trigger.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Params, apply
from jaxtroj.evidence.texts.bank import Bank
from jaxtroj.evidence.texts.bank_views import Expected, expect, rises, top_count, view_fields
from jaxtroj.evidence.texts.heads import Heads, in_basis, sums
from jaxtroj.evidence.texts.references import References
from jaxtroj.triggers.mask import all_margins

# Candidates of each target that are tried again on the head's own examples.
TRIED = 48


@dataclass(frozen=True)
class Banked:
    """What the candidates did to each head.

    Attributes:
      views: fields of `bank_views`, one mapping per head.
      tried: int `[m, targets, TRIED]`, candidates with the largest rises, largest first; all of a
        smaller bank.
      scores: `[m, targets, TRIED]`, mean sigmoid margin of the target on the head's own held-out
        examples moved by the candidate's mean shift.
      departures: the same less the references' mean.
      top: how many candidates count as the best (`bank_views.top_count`).
    """

    views: tuple[dict[str, float], ...]
    tried: np.ndarray
    scores: np.ndarray
    departures: np.ndarray
    top: int


def expect_bank(bank: Bank, references: References) -> Expected:
    """The references' answers to a bank; the same for all heads that are scanned with it."""
    inserted = bank.vectors.reshape(-1, bank.plan.width)
    return expect(references.margins(inserted), references.margins(bank.carriers))


def run_bank(
    heads: Heads, bank: Bank, inserted: jax.Array, references: References, expected: Expected
) -> Banked:
    """Try every candidate on every head.

    Args:
      heads: stacked.
      bank: of candidates.
      inserted: `bank.vectors` on the device, any floating type.
      references: clean heads.
      expected: from `expect_bank` on the same bank and references.
    """
    flat = inserted.reshape(-1, inserted.shape[-1])
    answers = np.asarray(_answers(heads.config, heads.params, flat))
    found = [rises(one, expected) for one in answers]
    tried = np.argsort(-np.stack([one["matched"] for one in found]), axis=2, kind="stable")
    tried = tried[:, :, :TRIED]
    scores, others = _moved(heads, references, bank.shifts[tried])
    views = tuple(map(view_fields, answers, [expected] * len(answers), found))
    return Banked(views, tried, scores, scores - others, top_count(len(bank.shifts)))


def bank_fields(banked: Banked) -> dict[str, np.ndarray]:
    """Fields by name, `[m]` each; see `jaxtroj.evidence.texts.schema`."""
    top = top_departures(banked)
    names = banked.views[0]
    return {name: np.array([one[name] for one in banked.views]) for name in names} | {
        "bank_departure": top.max(axis=1),
        "bank_departure_gap": np.ptp(top, axis=1),
    }


def top_departures(banked: Banked) -> np.ndarray:
    """Mean departure of the best candidates of each target, `[m, targets]`."""
    return np.sort(banked.departures, axis=2)[:, :, -banked.top :].mean(axis=2)


@partial(jax.jit, static_argnums=0)
def _answers(config, params: Params, x):
    """Margins `[m, n, classes]` for embeddings `[n, d]`, one head after another."""
    single = x.astype(jnp.float32)
    return jax.lax.map(lambda one: all_margins(apply(config, one, single)), params)


def _moved(heads: Heads, references: References, shifts: np.ndarray):
    """Scores `[m, targets, TRIED]` of the heads and of the references' mean."""
    own, others = [], []
    for place, (x, by) in enumerate(zip(heads.held_out, shifts, strict=True)):
        params = {name: value[place : place + 1] for name, value in heads.params.items()}
        own.append(_scores(heads.config, params, x, by)[0])
        known = zip(references.configs, references.params, strict=True)
        found = [np.asarray(_scores(config, group, x, by)) for config, group in known]
        others.append(np.concatenate(found).mean(axis=0))
    return np.stack(own), np.stack(others)


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
