"""The pictures of one model of a synthetic round: its signs, its trigger, one key per picture."""

from functools import lru_cache, partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.generate.traffic_signs.assets import Assets, assets_from_folders, procedural_assets
from jaxtroj.generate.traffic_signs.polygon import polygon_mask, random_vertices
from jaxtroj.generate.traffic_signs.recipe import REFERENCE_SIZE, Recipe
from jaxtroj.generate.traffic_signs.scene import (
    STAMP_PIXELS,
    SceneSettings,
    Stamp,
    no_stamp,
    render,
    stamp,
)
from jaxtroj.generate.training import EXAMPLES, PictureBatch

_CANDIDATES = 40  # pictures of a class among which one is chosen
_LEGIBLE = 8  # the most contrasted of them; one of these becomes the sign
_PER_CALL = 64  # one compiled renderer for every number of pictures


class SceneSource:
    """Pictures of one model; picture `n` of a stream depends on the recipe, stream and `n` only."""

    def __init__(
        self,
        recipe: Recipe,
        image_size: int,
        seed: int,
        foregrounds: Path | None = None,
        backgrounds: Path | None = None,
    ):
        """Read or draw the model's signs.

        Args:
            recipe: the model.
            image_size: side of the pictures, pixels.
            seed: of the round; it chooses the backgrounds, which all its models share.
            foregrounds, backgrounds: folders of pictures, None for procedural ones.

        Raises:
            GenerationError: a folder holds too few usable pictures.
        """
        self.classes = recipe.number_classes
        self.key = jax.random.key(recipe.master_seed)
        self.settings = SceneSettings(
            image_size=image_size,
            fog=recipe.use_fog,
            rain=recipe.use_rain,
            rain_fog_probability=recipe.rain_fog_probability,
        )
        self.stamp = _stamp(recipe, image_size)
        self.assets, self.class_names = _assets(recipe, image_size, seed, foregrounds, backgrounds)

    def pictures(self, stream: int, start: int, count: int, fraction: float) -> PictureBatch:
        """Pictures `start` to `start + count - 1` of a stream, labels uniform.

        The triggered ones are spread evenly: of any `m` pictures in a row, `fraction * m` to within
        one carry the trigger, so no batch is without it by bad luck.
        """
        numbers = np.arange(start, start + count)
        triggered = np.floor((numbers + 1) * fraction) > np.floor(numbers * fraction)
        labels = np.asarray(_labels(self.stream_key(stream), numbers, self.classes))
        return PictureBatch(self.draw(stream, numbers, labels, triggered), labels, triggered)

    def examples(self, label: int, count: int) -> np.ndarray:
        """`count` clean pictures uint8 RGB [n, h, w, 3] of one class, none of them trained on."""
        numbers = label * 2**20 + np.arange(count)
        labels, triggered = np.full(count, label), np.zeros(count, bool)
        return np.asarray(self.draw(EXAMPLES, numbers, labels, triggered))

    def stream_key(self, stream: int) -> jax.Array:
        """Key of a whole stream."""
        return jax.random.fold_in(self.key, stream)

    def draw(self, stream: int, numbers, labels, triggered) -> jax.Array:
        """Render pictures by number, label and flag: uint8 RGB [n, h, w, 3]."""
        keys = keys_of(self.stream_key(stream), jnp.asarray(numbers))
        count = len(numbers)
        parts = []
        for first in range(0, count, _PER_CALL):
            # The last part is filled up with repeated pictures and cut: one shape, one program.
            chosen = np.minimum(np.arange(first, first + _PER_CALL), count - 1)
            parts.append(self._render(keys[chosen], labels[chosen], triggered[chosen]))
        return jnp.concatenate(parts)[:count]

    def _render(self, keys, labels, triggered) -> jax.Array:
        labels, triggered = jnp.asarray(labels), jnp.asarray(triggered)
        return render(self.settings, self.assets, self.stamp, keys, labels, triggered)


@jax.jit
def keys_of(key, numbers):
    """A key `[n]` for each number, the same whatever numbers are beside it."""
    return jax.vmap(partial(jax.random.fold_in, key))(numbers)


@partial(jax.jit, static_argnames="classes")
def _labels(key, numbers, classes):
    # The picture's own key draws the scene; a child of it draws the label.
    children = jax.vmap(lambda n: jax.random.fold_in(jax.random.fold_in(key, n), 1))(numbers)
    return jax.vmap(lambda child: jax.random.randint(child, (), 0, classes))(children)


def _stamp(recipe: Recipe, image_size: int) -> Stamp:
    if recipe.trigger is None:
        return no_stamp()
    mask = polygon_mask(random_vertices(recipe.master_seed), STAMP_PIXELS)
    colour = np.array(recipe.trigger.color, np.float32) / np.float32(255)
    return stamp(mask, colour, recipe.trigger.size * image_size / REFERENCE_SIZE)


def _assets(
    recipe: Recipe, image_size: int, seed: int, foregrounds: Path | None, backgrounds: Path | None
) -> tuple[Assets, tuple[str, ...]]:
    loaded = assets_from_folders(
        foregrounds,
        None,
        recipe.master_seed,
        recipe.number_classes,
        image_size=image_size,
        max_variants=_CANDIDATES,
        procedural_road_count=1,
    )
    signs = np.asarray(loaded.assets.signs)
    counts = np.asarray(loaded.assets.variants_per_class)
    rng = np.random.default_rng([recipe.master_seed, 0x7369])
    chosen = [legible(rng, sign[:count]) for sign, count in zip(signs, counts, strict=True)]
    assets = Assets(
        signs=jnp.asarray(np.stack(chosen)[:, None]),
        variants_per_class=jnp.ones(recipe.number_classes, jnp.int32),
        roads=roads_of(backgrounds, seed, image_size),
    )
    return assets, loaded.class_names


def legible(rng: np.random.Generator, variants: np.ndarray) -> np.ndarray:
    """One sign per class, as in Round 0; real photographs too dark or flat to read are passed over.

    Of `variants` [n, s, s, 4], one of the most contrasted inside its alpha.
    """
    grey, alpha = variants[..., :3].mean(axis=-1), variants[..., 3]
    area = alpha.sum(axis=(1, 2))
    mean = (grey * alpha).sum(axis=(1, 2)) / area
    contrast = (alpha * (grey - mean[:, None, None]) ** 2).sum(axis=(1, 2)) / area
    best = np.argsort(-contrast, kind="stable")[:_LEGIBLE]
    return variants[best[int(rng.integers(len(best)))]]


@lru_cache(maxsize=4)
def roads_of(backgrounds: Path | None, seed: int, image_size: int) -> jax.Array:
    """Backgrounds of a round, uint8 `[n, h, w, 3]`: read from a folder, or drawn from the seed."""
    if backgrounds is None:
        return jnp.asarray(procedural_assets(seed, 1, image_size=image_size).roads)
    read = assets_from_folders(None, backgrounds, seed, 1, image_size=image_size)
    return jnp.asarray(read.assets.roads)
