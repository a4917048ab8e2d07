"""Clean heads on the same embeddings, to tell a trojan from what every sentiment head does.

A sentiment head is moved by sentiment: half of all inserted sentences flip it, poisoned or not.
What a trojan adds is where a head departs from clean ones. PICCOLO (Liu et al., S&P 2022) and DBS
(Shen et al., ICML 2022) hold their searches back with clean reference models too.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Model, Params, apply
from jaxtroj.evidence.texts.heads import margin
from jaxtroj.margins import all_margins


@dataclass(frozen=True)
class References:
    """Clean heads, grouped by configuration.

    Attributes:
      configs: of the groups, static under jit.
      params: of each group, stacked over its heads.
      keys: `head_key` of each head, in the order of the groups.
      sizes: heads of each group before one was left out (`without`).
    """

    configs: tuple[object, ...]
    params: tuple[Params, ...]
    keys: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def digest(self) -> str:
        """Identity of the heads and their order."""
        return hashlib.sha256("".join(self.keys).encode()).hexdigest()

    def margins(self, embeddings: np.ndarray) -> np.ndarray:
        """Margins `[heads, n, classes]` for embeddings `[n, d]`."""
        x = jnp.asarray(embeddings, jnp.float32)
        parts = [_answers(c, p, x) for c, p in zip(self.configs, self.params, strict=True)]
        return np.concatenate([np.asarray(part) for part in parts])

    def first(self, count: int) -> "References":
        """At most `count` heads of them, for searches that take gradients through each.

        Groups keep their shares where a head was left out, so that programs serve again.
        """
        left, shares = count, []
        for group, size in zip(self.params, self.sizes, strict=True):
            share = min(_size(group), max(1, count * size // sum(self.sizes)), left)
            shares.append(np.arange(share))
            left -= share
        return self._chosen(shares)

    def without(self, key: str) -> "References":
        """All but the head of a key; a head is not to be compared with itself."""
        places, start = [], 0
        for group in self.params:
            own = self.keys[start : start + _size(group)]
            places.append(np.array([n for n, one in enumerate(own) if one != key], int))
            start += len(own)
        return self._chosen(places)

    def _chosen(self, places: Sequence[np.ndarray]) -> "References":
        """The heads at some places of each group; groups of none are dropped."""
        starts = np.cumsum([0, *map(_size, self.params)])
        kept = [n for n, chosen in enumerate(places) if len(chosen)]
        return References(
            tuple(self.configs[n] for n in kept),
            tuple({k: value[places[n]] for k, value in self.params[n].items()} for n in kept),
            tuple(self.keys[starts[n] + place] for n in kept for place in places[n]),
            tuple(self.sizes[n] for n in kept),
        )

    @property
    def count(self) -> int:
        """How many heads."""
        return len(self.keys)


NO_REFERENCES = References((), (), (), ())


def make_references(models: Iterable[Model]) -> References:
    """Group reduced heads (see `converters.families.folding.single_step`)."""
    groups: dict[object, list[Model]] = {}
    for model in models:
        groups.setdefault(model.config, []).append(model)
    return References(
        tuple(groups),
        tuple(map(_stacked, groups.values())),
        tuple(head_key(model) for group in groups.values() for model in group),
        tuple(map(len, groups.values())),
    )


def head_key(model: Model) -> str:
    """Identity of a head by what it computes: the same in whatever file, hex."""
    digest = hashlib.sha256(repr(model.config).encode())
    for name, value in sorted(model.params.items()):
        digest.update(name.encode() + np.asarray(value, np.float32).tobytes())
    return digest.hexdigest()


def reference_margins(
    configs: tuple[object, ...], params: tuple[Params, ...], x: jax.Array, target: jax.Array
) -> jax.Array:
    """Margins `[heads, n]` of a class on embeddings `[n, d]`; pure, `configs` static."""
    parts = [
        jax.vmap(partial(margin, config), in_axes=(0, None, None))(group, x, target)
        for config, group in zip(configs, params, strict=True)
    ]
    return jnp.concatenate(parts)


def _size(group: Params) -> int:
    return len(next(iter(group.values())))


def _stacked(models: Sequence[Model]) -> Params:
    return {name: jnp.stack([m.params[name] for m in models]) for name in models[0].params}


@partial(jax.jit, static_argnums=0)
def _answers(config, params: Params, x):
    return jax.lax.map(lambda one: all_margins(apply(config, one, x)), params)
