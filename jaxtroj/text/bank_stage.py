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
from jaxtroj.text.bank import Bank
from jaxtroj.text.bank_views import Expected, expect, rises, top_count, view_fields
from jaxtroj.text.heads import Heads
from jaxtroj.text.references import References
from jaxtroj.trigger import all_margins

# Candidates of each target that are tried again on the head's own examples.
TRIED = 48


@dataclass(frozen=True)
class Banked:
    """What the candidates did to each head.

    Attributes:
      views: fields of `bank_views`, one mapping per head.
      tried: int `[m, targets, TRIED]`, all of a smaller bank, candidates with the largest rises, largest first.
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


def run_bank(heads: Heads, bank: Bank, references: References, expected: Expected) -> Banked:
    """Try every candidate on every head."""
    inserted = jnp.asarray(bank.vectors.reshape(-1, bank.plan.width), jnp.float32)
    answers = np.asarray(_answers(heads.config, heads.params, inserted))
    found = np.stack([rises(one, expected)["matched"] for one in answers])
    tried = np.argsort(-found, axis=2, kind="stable")[:, :, :TRIED]
    scores, others = _moved(heads, references, bank.shifts[tried])
    views = tuple(view_fields(one, expected) for one in answers)
    return Banked(views, tried, scores, scores - others, top_count(len(bank.shifts)))


def bank_fields(banked: Banked) -> dict[str, np.ndarray]:
    """Fields by name, `[m]` each; see `jaxtroj.text.schema`."""
    top = np.sort(banked.departures, axis=2)[:, :, -banked.top :].mean(axis=2)
    names = banked.views[0]
    return {name: np.array([one[name] for one in banked.views]) for name in names} | {
        "bank_departure": top.max(axis=1),
        "bank_departure_gap": np.ptp(top, axis=1),
    }


@partial(jax.jit, static_argnums=0)
def _answers(config, params: Params, x):
    """Margins `[m, n, classes]` for embeddings `[n, d]`, one head after another."""
    return jax.lax.map(lambda one: all_margins(apply(config, one, x)), params)


def _moved(heads: Heads, references: References, shifts: np.ndarray):
    """Scores `[m, targets, TRIED]` of the heads and of the references."""
    x = heads.held_out[:, :, None] + jnp.asarray(shifts, jnp.float32)[:, :, :, None]
    own = np.asarray(_own(heads.config, heads.params, x.reshape(len(x), -1, x.shape[-1])))
    known = references.margins(np.asarray(x).reshape(-1, x.shape[-1]))
    shape, pick = x.shape[:-1], np.arange(x.shape[1])[None, :, None, None, None]

    def scored(margins: np.ndarray) -> np.ndarray:
        by_class = np.take_along_axis(margins.reshape(*shape, -1), pick, axis=-1)[..., 0]
        return by_class.mean(axis=-1)

    return scored(own), scored(np.asarray(jax.nn.sigmoid(known)).mean(axis=0))


@partial(jax.jit, static_argnums=0)
def _own(config, params: Params, x):
    def one(values):
        params, x = values
        return jax.nn.sigmoid(all_margins(apply(config, params, x)))

    return jax.lax.map(one, (params, x))
