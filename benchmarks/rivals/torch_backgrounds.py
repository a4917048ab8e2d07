"""The Backgrounds Challenge the way the original runs it, as a rival for speed.

Written from the published behaviour: one foreground at a time; a new loader for each, which decodes
every background anew; pairs composed on the CPU in floating point, in the order of the files; a
foreground is done with its first batch of 32 that holds a wrong answer. Runs on the CPU in PyTorch.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.functional import to_tensor

BATCH = 32


class _Folder(Dataset):
    """Pictures of a variant in sorted order, decoded when asked for."""

    def __init__(self, folder: Path):
        self.paths = [p for c in sorted(folder.iterdir()) for p in sorted(c.iterdir())]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.paths[index]) as picture:
            return to_tensor(picture.convert("RGB"))


@dataclass(frozen=True)
class RivalResult:
    """Foreground -> vulnerable; pairs that went through the network; wall and processor seconds.

    Processor seconds are this process's: without workers, all of them.
    """

    vulnerable: dict[str, bool]
    passes: int
    seconds: float
    processor_seconds: float


def challenge(
    data: Path, network: torch.nn.Module, mean, std, workers: int = 0, every: int = 1
) -> RivalResult:
    """Runs the challenge on every `every`-th foreground.

    Args:
        data: ImageNet-9 folder.
        network: torchvision module in evaluation mode.
        mean, std: three floats each.
        workers: of each loader; the original has 8.
        every: 1 for all foregrounds.
    """
    mean, std = (torch.tensor(values)[:, None, None] for values in (mean, std))
    answers, passes = {}, 0
    started, processor = time.perf_counter(), time.process_time()
    masks = sorted((data / "fg_mask" / "val").glob("*/*.npy"))
    classes = sorted({path.parent.name for path in masks})
    for path in masks[::every]:
        label = classes.index(path.parent.name)
        (picture,) = (data / "original" / "val" / path.parent.name).glob(f"{path.stem}.*")
        mask = to_tensor(np.tile(np.load(path)[..., None], (1, 1, 3)).astype(np.uint8) * 255)
        with Image.open(picture) as opened:
            foreground = to_tensor(opened.convert("RGB"))
        name = f"{path.parent.name}/{picture.name}"
        answers[name] = False
        backgrounds = _Folder(data / "only_bg_t" / "val")
        for batch in DataLoader(backgrounds, BATCH, shuffle=False, num_workers=workers):
            combined = batch * (1 - mask) + mask * foreground
            with torch.no_grad():
                logits = network((torch.clamp(combined, 0, 1) - mean) / std)
            passes += len(batch)
            if (logits.argmax(1) != label).any():
                answers[name] = True
                break
    seconds = time.perf_counter() - started
    return RivalResult(answers, passes, seconds, time.process_time() - processor)
