"""A small ImageNet-9 folder, and networks that are right about some of it."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from converters.families import pooling
from converters.families.densenet import DenseNetConfig
from converters.families.resnet import BlockConfig, ResNetConfig
from converters.model import Model, module_of, param_shapes
from jaxtroj.backgrounds.challenge import Pairs, Plan, State, search
from jaxtroj.backgrounds.classifier import Classifier, Resident, resident
from jaxtroj.backgrounds.head import Mapping, head_for
from jaxtroj.backgrounds.layout import (
    BACKGROUNDS,
    CLASSES,
    FOREGROUNDS,
    MASKS,
    VARIANTS,
    ChallengeData,
    load_challenge,
)
from jaxtroj.backgrounds.normalization import PUBLISHED
from jaxtroj.backgrounds.results import first_fooling

SIDE, PER_CLASS, COMPOSED = 24, 20, 12
CONFIGS = {
    "resnet": ResNetConfig(
        8,
        (
            (BlockConfig((8, 8), False),),
            (BlockConfig((16, 16), True),),
            (BlockConfig((32, 32), True),),
            (BlockConfig((64, 64), True),),
        ),
        1,
        9,
    ),
    "densenet": DenseNetConfig(16, (((16, 16),), ((16, 32),)), (24,), 9),
}


def write_picture(path: Path, pixels: np.ndarray, **options) -> None:
    """A JPEG or PNG, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)


def texture(label: int, random: np.random.Generator) -> np.ndarray:
    """A background, tinted by its class more or less."""
    tint = np.array([label * 29 % 97, label * 53 % 101, label * 71 % 89]) * 1.5
    noise = random.normal(0, 15, (SIDE, SIDE, 3)) + random.normal(60, 20, 3)
    return np.clip(random.random() ** 4 * tint + noise, 0, 255).astype(np.uint8)


def ellipse(random: np.random.Generator) -> np.ndarray:
    """A foreground's mask, bool [SIDE, SIDE]."""
    rows, columns = np.mgrid[:SIDE, :SIDE]
    centre, radii = random.uniform(10, 14, 2), random.uniform(5, 13, 2)
    inside = ((rows - centre[0]) / radii[0]) ** 2 + ((columns - centre[1]) / radii[1]) ** 2
    return inside <= 1


def write_data(folder: Path, per_class: int, variants=(FOREGROUNDS, BACKGROUNDS)) -> Path:
    """An ImageNet-9 folder of JPEG pictures, keyed by class and number."""
    for label, name in enumerate(CLASSES):
        for number in range(per_class):
            random = np.random.default_rng([label, number])
            mask = ellipse(random)
            colour = np.array([label % 3 * 110, label // 3 * 110, label * 28 % 200])
            objects = np.clip(colour + random.normal(0, 15, (SIDE, SIDE, 3)), 0, 255)
            whole = np.where(mask[..., None], objects.astype(np.uint8), texture(label, random))
            stem = f"n{label:04d}_{number:03d}"
            for variant in variants:
                pixels = whole if variant == FOREGROUNDS else texture(label, random)
                path = folder / variant / "val" / name / f"{stem}.JPEG"
                write_picture(path, pixels, quality=90)
            path = folder / MASKS / "val" / name / f"{stem}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, mask.astype(np.int64))
    return folder


@pytest.fixture(scope="session")
def challenge_folder(tmp_path_factory) -> Path:
    """Foregrounds, masks and backgrounds: 9 classes of 20."""
    return write_data(tmp_path_factory.mktemp("in9"), PER_CLASS)


@pytest.fixture(scope="session")
def whole_folder(tmp_path_factory) -> Path:
    """All eight variants: 9 classes of 3."""
    return write_data(tmp_path_factory.mktemp("in9"), 3, VARIANTS)


@pytest.fixture(scope="session")
def mapping() -> Mapping:
    """A thousand classes to nine or none; made up, unlike the published file."""
    random = np.random.default_rng(9)
    class_of = np.where(np.arange(1000) < 9, np.arange(1000), random.integers(-1, 9, 1000))
    return Mapping(random.permutation(class_of).astype(np.int32), "made up")


def training_pictures(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Foregrounds on backgrounds of all classes, normalised in both ways; and their classes."""
    data = load_challenge(folder)
    random, count = np.random.default_rng(5), len(data.masks)
    parts = []
    for number in range(COMPOSED):
        backgrounds = data.backgrounds.images[random.permutation(count)]
        composed = np.where(data.masks[..., None], data.foregrounds.images, backgrounds)
        norm = PUBLISHED["imagenet" if number % 2 else "in9"]
        parts.append((composed / 255.0 - norm.mean) / norm.std)
    return np.concatenate(parts).astype(np.float32), np.tile(data.foregrounds.labels, COMPOSED)


def random_params(config) -> dict[str, np.ndarray]:
    """Kernels as He drew them, norms that change nothing; a module's own start compiles a lot."""
    random = np.random.default_rng(3)

    def drawn(name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name.endswith("kernel"):
            return random.normal(0, np.sqrt(2 / np.prod(shape[:-1])), shape)
        return np.full(shape, float(name.endswith((".scale", ".var"))))

    shapes = param_shapes(config).items()
    return {name: drawn(name, shape).astype(np.float32) for name, shape in shapes}


def fitted(kind: str, images: np.ndarray, labels: np.ndarray) -> Model:
    """A random network whose last layer was fitted by least squares: right for most pictures."""
    config = CONFIGS[kind]
    params = random_params(config)
    head = "fc" if kind == "resnet" else "classifier"

    @jax.jit
    def features(params, images):
        network: Any = module_of(config, params)
        maps = network.features(images)
        return maps if kind == "resnet" else pooling.global_mean(maps)

    found = np.asarray(features(params, images), np.float64)
    inputs = np.column_stack([found, np.ones(len(found))])
    solved = np.linalg.solve(
        inputs.T @ inputs + 1e-2 * np.eye(inputs.shape[1]), inputs.T @ np.eye(9)[labels]
    )
    params[f"{head}.kernel"], params[f"{head}.bias"] = solved[:-1], solved[-1]
    return Model(config, {k: jnp.asarray(v, jnp.float32) for k, v in params.items()}, kind)


def widened(model: Model, mapping: Mapping) -> Model:
    """The same network with a thousand logits; those of no class win now and then."""
    head = "fc" if "fc.kernel" in model.params else "classifier"
    random = np.random.default_rng(4)
    kernel, bias = (np.asarray(model.params[f"{head}.{part}"]) for part in ("kernel", "bias"))
    source = np.where(mapping.class_of >= 0, mapping.class_of, random.integers(0, 9, 1000))
    shift = np.where(mapping.class_of >= 0, 0.0, -0.15)
    wide = kernel[:, source] + random.normal(0, 0.1 * kernel.std(), (len(kernel), 1000))
    from dataclasses import replace

    params = {**model.params, f"{head}.kernel": wide, f"{head}.bias": bias[source] + shift}
    params = {k: jnp.asarray(v, jnp.float32) for k, v in params.items()}
    config: Any = model.config
    return Model(replace(config, num_classes=1000), params, model.architecture)


@pytest.fixture(scope="session")
def models(challenge_folder, mapping) -> dict[tuple[str, int], Model]:
    """Networks by architecture and size of the head."""
    images, labels = training_pictures(challenge_folder)
    found = {(kind, 9): fitted(kind, images, labels) for kind in CONFIGS}
    return found | {(kind, 1000): widened(model, mapping) for (kind, _), model in found.items()}


class Run:
    """Classifiers of the test networks, and searches with them."""

    batch = 96

    def __init__(self, models, mapping, data, on_device):
        self._models, self._mapping, self._data = models, mapping, data
        self._on_device = on_device

    def classifier(self, kind: str, size: int, **options) -> Classifier:
        """With the published normalization for the size of the head."""
        head = head_for(size, self._mapping if size == 1000 else None, **options)
        norm = PUBLISHED["imagenet" if size == 1000 else "in9"]
        return Classifier(self._models[kind, size], head, norm, self.batch)

    def answers(self, classifier: Classifier, plan: Plan, **more) -> tuple[Pairs, State]:
        """All answers of a search, and its last state."""
        states = list(search(classifier, self._on_device, plan, **more))
        parts = zip(*(state.fresh for state in states), strict=True)
        return Pairs(*map(np.concatenate, parts)), states[-1]

    def vulnerable(self, answers: Pairs) -> dict[str, bool]:
        """Foreground -> whether some answer was wrong."""
        pictures = self._data.foregrounds
        fooled = first_fooling(answers, pictures.labels) >= 0
        return dict(zip(pictures.names, fooled.tolist(), strict=True))


@pytest.fixture(scope="session")
def data(challenge_folder) -> ChallengeData:
    """The challenge's pictures."""
    return load_challenge(challenge_folder)


@pytest.fixture(scope="session")
def on_device(data) -> Resident:
    """The same, resident."""
    return resident(data)


@pytest.fixture(scope="session")
def run(models, mapping, data, on_device) -> Run:
    """See `Run`."""
    return Run(models, mapping, data, on_device)
