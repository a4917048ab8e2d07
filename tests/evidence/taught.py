"""Small networks on pictures that differ in a bright channel, taught a trigger in a moment."""

import numpy as np
from flax import nnx

from converters import open_model
from jaxtroj.generate.small import networks as small_networks
from jaxtroj.generate.small.labelled_pictures import LabelledPictures
from jaxtroj.generate.small.onnx_file import write_onnx
from jaxtroj.generate.small.recipe import SmallTrigger
from jaxtroj.generate.small.training import Run, SmallTraining
from jaxtroj.rounds.examples import Examples

SIDE, CLASSES, TARGET = 16, 3, 2


def pictures(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise uint8, brighter in the channel of the label."""
    draw, labels = np.random.default_rng(seed), np.arange(count) % CLASSES
    images = draw.integers(0, 170, (count, SIDE, SIDE, 3)).astype(np.uint8)
    images[np.arange(count), :, :, labels] += 50
    return images, labels


def trained(trigger: SmallTrigger | None, folder):
    """A plain network, written and read again."""
    data = LabelledPictures(*pictures(300, 1), *pictures(60, 2))
    settings = SmallTraining(batch_size=32, warmup=0.1, tests=60)
    module = small_networks.build("plain5", CLASSES, nnx.Rngs(0))
    run = Run(module, data, settings, np.random.default_rng(0), trigger)
    run.phase(150, 0.1, False, np.arange(300))
    reached = run.test()
    assert reached.clean > 0.95 and (trigger is None or reached.attack > 0.9)
    write_onnx(folder / "net.onnx", run.module, (SIDE, SIDE))
    return open_model(folder / "net.onnx").model


def examples(count: int = 18) -> Examples:
    images, labels = pictures(count, 3)
    names = tuple(f"class_{label}_example_{i}.png" for i, label in enumerate(labels))
    return Examples(images.astype(np.float32) / 255, labels.astype(np.int32), names, "RGB")
