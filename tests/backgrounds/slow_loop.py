"""The published algorithm as a slow, obvious loop: files read anew, floats composed, PyTorch.

Nothing here is shared with jaxtroj but the names of the folders.
"""

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torchvision.transforms.functional import to_tensor

BATCH = 32
torch.set_num_threads(1)  # tensors are too small to share among threads
CLASS_NAMES = (
    "00_dog 01_bird 02_wheeled_vehicle 03_reptile 04_carnivore 05_insect 06_musical_instrument "
    "07_primate 08_fish"
)
CLASSES = [name.replace("_", " ").replace(" ", "_", 1) for name in CLASS_NAMES.split()]


def vulnerable_set(folder, network, mean, std, mapping=None) -> dict[str, bool]:
    """Foreground file -> whether any background makes the network answer another class."""
    answers = {}
    for label, name in enumerate(CLASSES):
        for mask_path in sorted((folder / "fg_mask" / "val" / name).iterdir()):
            mask = np.tile(np.load(mask_path)[:, :, None], (1, 1, 3)).astype(np.uint8) * 255
            mask = to_tensor(mask)
            picture = folder / "original" / "val" / name / f"{mask_path.stem}.JPEG"
            foreground = to_tensor(Image.open(picture).convert("RGB"))
            answers[f"{name}/{picture.name}"] = is_vulnerable(
                folder, network, label, mask, foreground, mean, std, mapping
            )
    return answers


def is_vulnerable(folder, network, label, mask, foreground, mean, std, mapping) -> bool:
    mean, std = (torch.tensor(values)[:, None, None] for values in (mean, std))
    for first in range(0, len(backgrounds(folder)), BATCH):
        background = torch.stack(backgrounds(folder)[first : first + BATCH])
        combined = background * (1 - mask) + mask * foreground
        with torch.no_grad():
            winners = network((torch.clamp(combined, 0, 1) - mean) / std).argmax(1).tolist()
        if any((winner if mapping is None else mapping[winner]) != label for winner in winners):
            return True
    return False


_decoded: dict = {}


def backgrounds(folder) -> list:
    """Decoded once: the published code decodes them for every foreground, with the same result."""
    if folder not in _decoded:
        paths = [p for c in CLASSES for p in sorted((folder / "only_bg_t" / "val" / c).iterdir())]
        _decoded[folder] = [to_tensor(Image.open(path).convert("RGB")) for path in paths]
    return _decoded[folder]


def torch_network(kind: str, params):
    """The network in plain torch functions, from Flax names and shapes."""
    tensors = {name: torch.tensor(np.asarray(value)) for name, value in params.items()}
    return {"resnet": _Resnet, "densenet": _Densenet}[kind](tensors)


class _Functions:
    def __init__(self, tensors):
        self.tensors = tensors

    def convolution(self, name, x, stride=1, padding=0):
        kernel = self.tensors[f"{name}.kernel"].permute(3, 2, 0, 1)
        return F.conv2d(x, kernel, None, stride, padding)

    def norm(self, name, x):
        mean, var, scale, bias = (
            self.tensors[f"{name}.{part}"] for part in ("mean", "var", "scale", "bias")
        )
        return F.batch_norm(x, mean, var, scale, bias, False, 0.0, 1e-5)

    def head(self, name, x):
        return x.mean((2, 3)) @ self.tensors[f"{name}.kernel"] + self.tensors[f"{name}.bias"]


class _Resnet(_Functions):
    """Four stages of one basic block."""

    def __call__(self, x):
        x = F.relu(self.norm("bn1", self.convolution("conv1", x, 2, 3)))
        x = F.max_pool2d(x, 3, 2, 1)
        for stage in range(1, 5):
            block, stride = f"layer{stage}.0", 1 if stage == 1 else 2
            y = self.convolution(f"{block}.conv1", x, stride, 1)
            y = F.relu(self.norm(f"{block}.bn1", y))
            y = self.norm(f"{block}.bn2", self.convolution(f"{block}.conv2", y, 1, 1))
            if stage > 1:
                x = self.convolution(f"{block}.downsample.0", x, 2)
                x = self.norm(f"{block}.downsample.1", x)
            x = F.relu(x + y)
        return self.head("fc", x)


class _Densenet(_Functions):
    """Two blocks of one layer, one transition."""

    def __call__(self, x):
        x = self.convolution("features.conv0", x, 2, 3)
        x = F.max_pool2d(F.relu(self.norm("features.norm0", x)), 3, 2, 1)
        x = self.layer("features.denseblock1.denselayer1", x)
        x = F.relu(self.norm("features.transition1.norm", x))
        x = F.avg_pool2d(self.convolution("features.transition1.conv", x), 2, 2)
        x = self.layer("features.denseblock2.denselayer1", x)
        return self.head("classifier", F.relu(self.norm("features.norm5", x)))

    def layer(self, name, x):
        y = self.convolution(f"{name}.conv1", F.relu(self.norm(f"{name}.norm1", x)))
        y = self.convolution(f"{name}.conv2", F.relu(self.norm(f"{name}.norm2", y)), 1, 1)
        return torch.cat([x, y], 1)
