"""Two small networks for the backgrounds benchmark, trained on pictures that are not held out.

"original" sees the original pictures, as networks are usually trained. "mixed" sees foregrounds
on backgrounds of all classes, which tell it nothing.
"""

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from converters.files import write_atomic
from jaxtroj.backgrounds.layout import CLASSES, ChallengeData, load_challenge
from jaxtroj.backgrounds.normalization import PUBLISHED
from jaxtroj.generate import networks, torch_file

KINDS = ("original", "mixed")
ARCHITECTURE = networks.SMALL
HELD_OUT, SEED = 0.3, 0
BATCH, RATE, WEIGHT_DECAY = 64, 2e-3, 1e-3


def is_held_out(name: str) -> bool:
    """Whether a photo of this file name is kept from training."""
    digest = hashlib.sha256(name.encode()).digest()
    return int.from_bytes(digest[:4], "big") < HELD_OUT * 2**32


def make_network(folder: Path, path: Path, kind: str, steps: int) -> dict[str, Any]:
    """Train and write `path`, unless it is there; returns how it went."""
    note = path.with_suffix(".json")
    if note.exists():
        return json.loads(note.read_text())
    data = load_challenge(folder)
    held = [is_held_out(f"{Path(name).stem}.jpg") for name in data.foregrounds.names]
    started = time.perf_counter()
    module = networks.build(ARCHITECTURE, len(CLASSES), nnx.Rngs(SEED))
    loss = _train(module, data, np.flatnonzero(~np.array(held)), kind, steps)
    tensors = torch_file.state_dict(module, ARCHITECTURE, len(CLASSES), steps)
    torch_file.write_model(path, tensors, ARCHITECTURE, len(CLASSES))
    values = {
        "pictures": held.count(False),
        "steps": steps,
        "batch": BATCH,
        "last_loss": round(loss, 3),
        "seconds": round(time.perf_counter() - started, 1),
    }
    write_atomic(note, json.dumps(values).encode())
    return values


def _train(
    module: nnx.Module, data: ChallengeData, usable: np.ndarray, kind: str, steps: int
) -> float:
    """AdamW under a cosine, random shifts and flips; returns the mean loss of the last 20 steps."""
    table = jnp.asarray(PUBLISHED["in9"].table())
    schedule = optax.cosine_decay_schedule(RATE, steps)
    adam = optax.adamw(schedule, weight_decay=WEIGHT_DECAY)
    optimizer = nnx.Optimizer(module, adam, wrt=nnx.Param)

    @nnx.jit
    def step(module, optimizer, images, labels):
        def loss_of(module):
            logits = module(table[images, jnp.arange(3)])
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, gradients = nnx.value_and_grad(loss_of)(module)
        optimizer.update(module, gradients)
        return loss

    module.train()
    random = np.random.default_rng(SEED)
    labels = data.foregrounds.labels
    weights = 1 / np.bincount(labels[usable])[labels[usable]]
    losses = []
    for _ in range(steps):
        chosen = random.choice(usable, BATCH, p=weights / weights.sum())
        images = data.foregrounds.images[chosen]
        if kind == "mixed":
            behind = data.backgrounds.images[random.choice(usable, BATCH)]
            images = np.where(data.masks[chosen][..., None], images, behind)
        losses.append(step(module, optimizer, _shifted(images, random), labels[chosen]))
    module.eval()
    return float(np.mean(np.asarray(jnp.stack(losses[-20:]))))


def _shifted(images: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Each picture cut anew from an enlarged mirror of itself, half of them flipped."""
    size, pad = images.shape[1], images.shape[1] // 8
    padded = np.pad(images, ((0, 0), (pad, pad), (pad, pad), (0, 0)), mode="reflect")
    starts = random.integers(0, 2 * pad + 1, (len(images), 2))
    flips = random.random(len(images)) < 0.5
    cut = [p[t : t + size, s : s + size] for p, (t, s) in zip(padded, starts, strict=True)]
    return np.stack([c[:, ::-1] if flip else c for c, flip in zip(cut, flips, strict=True)])
