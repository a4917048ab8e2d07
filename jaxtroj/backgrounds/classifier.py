"""A network as the challenge calls it: bytes in, one of the nine classes out.

Pictures stay on the device as bytes. Two programs of one fixed batch size do everything: one
classifies pictures, the other composes pairs of foreground and background and judges them.
Selecting bytes by mask is, bit for bit, the published blend of floats with a mask of 0 and 1.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from converters.model import Model, apply
from jaxtroj.backgrounds.head import Head
from jaxtroj.backgrounds.layout import ChallengeData
from jaxtroj.backgrounds.normalization import Normalization
from jaxtroj.errors import EvidenceError, UsageError
from jaxtroj.network import Network

_GPU_PIXELS = 512 * 224 * 224  # in one batch


class _HeadReader(NamedTuple):
    """Traced: the normalization `[256, 3]`, and class and offset of each logit `[logits]`."""

    table: jax.Array
    class_of: jax.Array
    offsets: jax.Array


class Resident(NamedTuple):
    """`ChallengeData` on the device: bytes `[f, h, w, 3]`, masks `[f, h, w]`, classes `[f]`."""

    foregrounds: jax.Array
    masks: jax.Array
    labels: jax.Array
    backgrounds: jax.Array


def resident(data: ChallengeData) -> Resident:
    """Copies the data to the device, once for any number of networks."""
    foregrounds = data.foregrounds
    parts = (foregrounds.images, data.masks, foregrounds.labels, data.backgrounds.images)
    return Resident(*map(jnp.asarray, parts))


def compose(data: Resident, foregrounds: jax.Array, backgrounds: jax.Array) -> jax.Array:
    """Bytes `[n, h, w, 3]`: foreground where the mask is set, background elsewhere.

    Args:
        data: what the indices count in.
        foregrounds, backgrounds: int `[n]`.
    """
    inside = data.masks[foregrounds][..., None]
    return jnp.where(inside, data.foregrounds[foregrounds], data.backgrounds[backgrounds])


def _logits(config, params, reader: _HeadReader, images: jax.Array) -> jax.Array:
    bytes_as_floats = reader.table.at[images, jnp.arange(3)].get(mode="promise_in_bounds")
    return apply(config, params, bytes_as_floats).astype(jnp.float32) + reader.offsets


@partial(jax.jit, static_argnums=0)
def _classify(config, params, reader: _HeadReader, images):
    logits = _logits(config, params, reader, images)
    return reader.class_of[logits.argmax(-1)], jnp.isnan(logits).any(-1)


@partial(jax.jit, static_argnums=0)
def _judge(config, params, reader: _HeadReader, data: Resident, foregrounds, backgrounds):
    logits = _logits(config, params, reader, compose(data, foregrounds, backgrounds))
    own = reader.class_of[None] == data.labels[foregrounds][:, None]
    best_own = jnp.where(own, logits, -jnp.inf).max(-1)
    best_other = jnp.where(own, -jnp.inf, logits).max(-1)
    return reader.class_of[logits.argmax(-1)], best_own - best_other


class Judged(NamedTuple):
    """Answers to pairs: class `[n]` int8 (-1 for none), and margin `[n]` float32.

    The margin is the largest logit of the foreground's class less the largest of all others: its
    sign says whether the pair was classified right, its size how clearly.
    """

    predicted: np.ndarray
    margin: np.ndarray


@dataclass(frozen=True)
class Classifier:
    """One network with the way its input is made and its output is read.

    Attributes:
        model: of RGB pictures `[n, h, w, 3]`.
        head, normalization: see there.
        batch_size: pictures in one call of a program; None chooses by picture size and device.
    """

    model: Model
    head: Head
    normalization: Normalization
    batch_size: int | None = None

    def astype(self, dtype) -> "Classifier":
        """The same, computing in another floating type."""
        return replace(self, model=self.model.astype(dtype))

    @cached_property
    def _reader(self) -> _HeadReader:
        kinds = [jnp.result_type(value) for value in self.model.params.values()]
        floating = [kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)]
        dtype = jnp.result_type(*floating) if floating else jnp.float32
        table = jnp.asarray(self.normalization.table().astype(dtype))
        return _HeadReader(table, jnp.asarray(self.head.class_of), jnp.asarray(self.head.offsets()))

    def batch(self, images) -> int:
        """Pictures in one call of a program, for pictures `[n, h, w, 3]`."""
        if self.batch_size is not None:
            return self.batch_size
        if jax.default_backend() == "cpu":
            return Network(self.model).batch(images)
        return max(8, _GPU_PIXELS // (images.shape[1] * images.shape[2]))

    def classify(self, images: np.ndarray) -> np.ndarray:
        """Class `[n]`, int8, -1 for none of the nine, of byte pictures `[n, h, w, 3]`.

        Raises:
            EvidenceError: the network computes NaN.
            UsageError: it does not take pictures of this size.
        """
        size, parts = self.batch(images), []
        for first in range(0, len(images), size):
            part = images[first : first + size]
            padding = [(0, size - len(part)), (0, 0), (0, 0), (0, 0)]
            parts.append(self._call(_classify, np.pad(part, padding), shape=images.shape))
        predicted, faulty = (
            np.concatenate(column)[: len(images)] for column in zip(*parts, strict=True)
        )
        if faulty.any():
            raise EvidenceError("the network computes NaN for some pictures; nothing to report")
        return predicted.astype(np.int8)

    def judge(
        self, data: Resident, foregrounds: np.ndarray, backgrounds: np.ndarray
    ) -> Callable[[], Judged]:
        """Starts one batch of pairs; calling what is returned waits for the answers.

        Args:
            data: on the device.
            foregrounds, backgrounds: indices `[n]`, n at most the batch size; filled up with
                pair 0.
        """
        size, count = self.batch(data.backgrounds), len(foregrounds)
        indices = np.zeros((2, size), np.int32)
        indices[:, :count] = foregrounds, backgrounds
        started = self._call(_judge, data, *indices, shape=data.backgrounds.shape)

        def answers() -> Judged:
            predicted, margin = (np.asarray(part)[:count] for part in started)
            if np.isnan(margin).any():
                raise EvidenceError("the network computes NaN for some pairs; nothing to report")
            return Judged(predicted.astype(np.int8), margin)

        return answers

    def _call(self, program, *arguments, shape):
        model = self.model
        try:
            return program(model.config, model.params, self._reader, *arguments)
        except (TypeError, ValueError, ZeroDivisionError) as error:
            raise UsageError(
                f"the network ({model.architecture}) does not take RGB pictures of {shape[2]} x "
                f"{shape[1]} pixels: {error}"
            ) from error
