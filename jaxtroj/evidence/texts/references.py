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
      digest: identity of the heads and their order.
    """

    configs: tuple[object, ...]
    params: tuple[Params, ...]
    digest: str

    def margins(self, embeddings: np.ndarray) -> np.ndarray:
        """Margins `[heads, n, classes]` for embeddings `[n, d]`."""
        x = jnp.asarray(embeddings, jnp.float32)
        parts = [_answers(c, p, x) for c, p in zip(self.configs, self.params, strict=True)]
        return np.concatenate([np.asarray(part) for part in parts])

    def first(self, count: int) -> "References":
        """At most `count` heads of them, for searches that take gradients through each."""
        left, configs, params = count, [], []
        for config, group in zip(self.configs, self.params, strict=True):
            size = len(next(iter(group.values())))
            share = min(size, max(1, count * size // self.count), left)
            if share:
                configs.append(config)
                params.append({name: value[:share] for name, value in group.items()})
                left -= share
        return References(tuple(configs), tuple(params), self.digest)

    @property
    def count(self) -> int:
        """How many heads."""
        return sum(len(next(iter(group.values()))) for group in self.params)


def make_references(models: Iterable[Model]) -> References:
    """Group reduced heads (see `converters.families.folding.single_step`)."""
    groups: dict[object, list[Model]] = {}
    digest = hashlib.sha256()
    for model in models:
        groups.setdefault(model.config, []).append(model)
        digest.update(repr(model.config).encode())
        for name, value in sorted(model.params.items()):
            digest.update(name.encode() + np.asarray(value).tobytes())
    return References(tuple(groups), tuple(map(_stacked, groups.values())), digest.hexdigest())


def reference_margins(
    configs: tuple[object, ...], params: tuple[Params, ...], x: jax.Array, target: jax.Array
) -> jax.Array:
    """Margins `[heads, n]` of a class on embeddings `[n, d]`; pure, `configs` static."""
    parts = [
        jax.vmap(partial(margin, config), in_axes=(0, None, None))(group, x, target)
        for config, group in zip(configs, params, strict=True)
    ]
    return jnp.concatenate(parts)


def _stacked(models: Sequence[Model]) -> Params:
    return {name: jnp.stack([m.params[name] for m in models]) for name in models[0].params}


@partial(jax.jit, static_argnums=0)
def _answers(config, params: Params, x):
    return jax.lax.map(lambda one: all_margins(apply(config, one, x)), params)
