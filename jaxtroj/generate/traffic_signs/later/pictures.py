"""The pictures of one model of Rounds 1 to 4: its signs, its triggers, one key per picture."""

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxtroj.generate.traffic_signs.assets import Assets, assets_from_folders
from jaxtroj.generate.traffic_signs.later.looks import NO_LOOK, Looks
from jaxtroj.generate.traffic_signs.later.recipe import SignRecipe
from jaxtroj.generate.traffic_signs.later.scene import SceneNumbers, render
from jaxtroj.generate.traffic_signs.later.signs import draw_signs, paint_sign
from jaxtroj.generate.traffic_signs.pictures import keys_of, legible, roads_of

_SIGN_SCALE = 0.65  # side of a sign's texture relative to the picture: the mean sign
_PER_CALL = 64  # one compiled renderer for every number of pictures
_CANDIDATES = 40


@dataclass(frozen=True)
class Folders:
    """Where real signs and backgrounds are read from; None draws them. `seed` is the round's."""

    seed: int
    foregrounds: Path | None = None
    backgrounds: Path | None = None


class SignPictures:
    """Pictures of one model; number `n` of a stream depends on recipe, stream, `n` and its look."""

    def __init__(self, recipe: SignRecipe, looks: Looks, size: int, folders: Folders):
        """Read or draw the model's signs.

        Args:
            recipe: the model.
            looks: of its triggers.
            size: side of the pictures, pixels.
            folders: of real pictures.

        Raises:
            GenerationError: a folder holds too few usable pictures.
        """
        self.size, self.looks = size, looks
        self.key = jax.random.key(recipe.master_seed)
        low, high = (np.sqrt(area) for area in recipe.sign_areas)
        chances = (recipe.fog_probability, recipe.rain_probability)
        self.numbers = SceneNumbers(*(np.float32(x) for x in (low, high, *chances)))
        signs, self.class_names = _signs(recipe, size, folders)
        self.assets = Assets(
            signs=jnp.asarray(signs[:, None]),
            variants_per_class=jnp.ones(len(signs), jnp.int32),
            roads=roads_of(folders.backgrounds, folders.seed, size),
        )
        self.stamps = jax.tree.map(jnp.asarray, looks.stamps())

    def draw(
        self, stream: int, labels: np.ndarray, looks: np.ndarray, first: int = 0
    ) -> np.ndarray:
        """Pictures uint8 RGB `[n, h, w, 3]`, numbers `first` and on of a stream.

        Args:
            stream: which; streams share no picture.
            labels: class of the sign, int `[n]`.
            looks: number of the look in `Looks.every`, int `[n]`; -1 for none.
            first: number of the first picture.
        """
        keys = keys_of(jax.random.fold_in(self.key, stream), jnp.arange(first, first + len(labels)))
        none = np.array([NO_LOOK], np.int32)
        stamps = np.concatenate([self.looks.stamp_numbers, none])[looks]
        filters = np.concatenate([self.looks.filter_numbers, none])[looks]
        images = np.empty((len(labels), self.size, self.size, 3), np.uint8)
        # Pictures without a stamp are drawn apart: the program skips what a whole batch needs not.
        for places in (np.flatnonzero(stamps < 0), np.flatnonzero(stamps >= 0)):
            for part in np.split(places, range(_PER_CALL, len(places), _PER_CALL)):
                if len(part):
                    images[part] = self._render(keys, labels, stamps, part)
        for number in np.unique(filters[filters >= 0]):
            places = np.flatnonzero(filters == number)
            images[places] = _filtered(images[places], int(number))
        return images

    def _render(self, keys, labels, stamps, part) -> np.ndarray:
        # A last part is filled up with repeated pictures and cut: one shape, one program.
        chosen = part[np.minimum(np.arange(_PER_CALL), len(part) - 1)]
        some = render(
            self.size, self.numbers, self.assets, self.stamps, keys[chosen],
            jnp.asarray(labels[chosen], jnp.int32), jnp.asarray(stamps[chosen], jnp.int32),
        )  # fmt: skip
        return np.asarray(some)[: len(part)]


def _filtered(images: np.ndarray, number: int) -> np.ndarray:
    """Finished pictures uint8 through a filter, in parts of one size."""
    parts = []
    for first in range(0, len(images), _PER_CALL):
        chosen = np.minimum(np.arange(first, first + _PER_CALL), len(images) - 1)
        parts.append(np.asarray(_apply_filter(images[chosen], jnp.int32(number))))
    return np.concatenate(parts)[: len(images)]


@jax.jit
def _apply_filter(images, number):
    from jaxtroj.triggers.filter import ColourFilter

    pixels = images.astype(jnp.float32) / 255
    offsets = jnp.zeros((images.shape[0], 2), jnp.int32)
    shown = ColourFilter(number).apply(pixels, offsets)
    return jnp.rint(jnp.clip(shown, 0.0, 1.0) * 255).astype(jnp.uint8)


def _signs(recipe: SignRecipe, size: int, folders: Folders) -> tuple[np.ndarray, tuple[str, ...]]:
    """One sign per class float32 `[classes, s, s, 4]`, and their names."""
    pixels, rng = max(8, round(size * _SIGN_SCALE)), np.random.default_rng([recipe.master_seed, 1])
    if folders.foregrounds is None:
        signs = draw_signs(rng, recipe.number_classes)
        return np.stack([paint_sign(one, pixels) for one in signs]), tuple(s.name for s in signs)
    read = assets_from_folders(
        folders.foregrounds, None, recipe.master_seed, recipe.number_classes,
        image_size=size, sign_pixels=pixels, max_variants=_CANDIDATES, procedural_road_count=1,
    )  # fmt: skip
    found = zip(np.asarray(read.assets.signs), read.assets.variants_per_class, strict=True)
    return np.stack([legible(rng, own[:count]) for own, count in found]), read.class_names
