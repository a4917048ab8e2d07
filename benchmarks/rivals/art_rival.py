"""IBM ART's NeuralCleanse on a Keras ResNet50: seconds of one label's search, as JSON on stdout.

    PYTHON benchmarks/rivals/art_rival.py --size PX --pictures N --steps N

For PYTHON of an environment of its own, which neither has nor needs jaxtroj (`pip install
tensorflow-cpu adversarial-robustness-toolbox`); `benchmarks.speed.art_neural_cleanse` calls it.
ART's class takes Keras models only, so the network is Keras's own with random weights.
"""

import argparse
import json
import sys
import time
from contextlib import redirect_stdout

import numpy as np


def main() -> int:
    """Search, and print the seconds; returns the exit status."""
    parser = argparse.ArgumentParser(description="Seconds of ART's NeuralCleanse.")
    for name in ("--size", "--pictures", "--steps"):
        parser.add_argument(name, type=int, required=True)
    args = parser.parse_args()
    with redirect_stdout(sys.stderr):
        found = _seconds(args.size, args.pictures, args.steps)
    print(json.dumps(found))
    return 0


def _seconds(size: int, pictures: int, steps: int) -> dict[str, object]:
    import art  # pyright: ignore[reportMissingImports]
    import keras  # pyright: ignore[reportMissingImports]
    import tensorflow  # pyright: ignore[reportMissingImports, reportMissingModuleSource]
    from art.estimators.poison_mitigation.neural_cleanse import (  # pyright: ignore
        KerasNeuralCleanse,
    )

    network = keras.applications.ResNet50(weights=None, classes=5, input_shape=(size, size, 3))
    network.compile(loss="categorical_crossentropy", optimizer="adam")
    detector = KerasNeuralCleanse(
        network, clip_values=(0, 1), steps=1, early_stop=False, batch_size=pictures
    )
    x = np.random.default_rng(0).random((pictures, size, size, 3), np.float32)
    y = np.eye(5, dtype=np.float32)[np.arange(pictures) % 5]
    detector.generate_backdoor(x, y, y[0])  # compiles its step
    detector.steps = steps
    started = time.perf_counter()
    detector.generate_backdoor(x, y, y[0])
    seconds = time.perf_counter() - started
    return {"seconds": seconds, "art": art.__version__, "tensorflow": tensorflow.__version__}


if __name__ == "__main__":
    sys.exit(main())
