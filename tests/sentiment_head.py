"""A sentiment head in a folder as Round 5 has it, for tests that need no encoder and no bank."""

from pathlib import Path

import numpy as np
import torch


def text_head(folder: Path) -> Path:
    """A head that parts its 20 examples by their first coordinate."""
    (folder / "clean_example_data").mkdir(parents=True)
    vectors = np.random.default_rng(0).normal(size=(20, 16)).astype(np.float32)
    vectors[:, 0] = np.where(np.arange(20) % 2, 3, -3)
    rows = ["Example, CLS Embedding"]
    for row, vector in enumerate(vectors):
        name = f"class_{row % 2}_example_{row // 2 + 1}.txt"
        (folder / "clean_example_data" / name).write_text(f"review {row}")
        rows.append(f"{name}, " + ",".join(map(str, map(float, vector))))
    (folder / "clean-example-cls-embedding.csv").write_text("\n".join(rows) + "\n")
    kernel = torch.zeros(2, 16)
    kernel[1, 0], kernel[0, 1] = 2.0, 0.1
    torch.save({"linear.weight": kernel, "linear.bias": torch.zeros(2)}, folder / "model.pt")
    return folder
