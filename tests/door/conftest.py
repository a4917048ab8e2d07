"""A network of three colours, as people hold it, and pictures that it classifies."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from jaxtroj import Settings
from tests.door.hub_folders import write_folder

SIDE, CLASSES = 16, 3


class Colours(torch.nn.Module):
    """Class k where channel k is the brightest."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 3, 1, bias=False)
        self.fc = torch.nn.Linear(3, CLASSES, bias=False)
        self.drop = torch.nn.Dropout(0.5)
        self.conv.weight.data = torch.eye(3).reshape(3, 3, 1, 1)
        self.fc.weight.data = 20 * torch.eye(3)

    def forward(self, x):
        return self.drop(self.fc(torch.relu(self.conv(x)).mean((2, 3))))


@pytest.fixture(scope="session")
def labels() -> np.ndarray:
    return np.arange(4 * CLASSES) % CLASSES


@pytest.fixture(scope="session")
def pixels(labels) -> np.ndarray:
    """uint8 `[12, 16, 16, 3]`, a square in the colour of the class."""
    draw = np.random.default_rng(0)
    images = draw.integers(0, 60, (len(labels), SIDE, SIDE, 3)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[3:9, 3:9, label] += 150
    return images


@pytest.fixture
def colours() -> Colours:
    return Colours()


def cheap(*stages: str, **changes) -> Settings:
    """Settings that gather the evidence of these stages and ask no calibrator."""
    return Settings(calibrator=None, early_stop=False, stages=stages, **changes)


@pytest.fixture(scope="module")
def vit(tmp_path_factory) -> Path:
    return write_folder(tmp_path_factory.mktemp("hub") / "vit", "vit")


@pytest.fixture
def folder(vit, tmp_path) -> Path:
    """A copy to be spoilt."""
    return Path(shutil.copytree(vit, tmp_path / "vit"))
