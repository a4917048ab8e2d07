"""Labelled runs and tables of answers, for the tests of `evaluate` and `compare`."""

import numpy as np

from jaxtroj.cli.main import main
from jaxtroj.evidence.stages import IMAGES
from jaxtroj.evidence.versions import as_settings
from jaxtroj.record import Record
from jaxtroj.store import RunStore


def run(*arguments) -> int:
    return main([str(word) for word in arguments])


def table_of(path, probabilities):
    path.write_text("".join(f"{name},{value}\n" for name, value in probabilities.items()))
    return path


def labelled_run(folder, name: str, count: int = 48, shift: float = 2.0, reason: str = ""):
    """A run with made-up evidence of the weights stage and two architectures, and its truth.

    With a reason of `evidence only` no model is called poisoned.
    """
    random = np.random.default_rng(len(name))
    lines = ["model_name,poisoned,part"]
    with RunStore(folder / name, as_settings()) as store:
        for number in range(count):
            poisoned = bool(number % 2)
            fields = IMAGES.stage_fields["weights"]
            evidence = {field: random.normal() + shift * poisoned for field in fields}
            model, architecture = f"id-{number:08d}", ("resnet50", "densenet121")[number // 2 % 2]
            said = 0.7 if poisoned else 0.3
            lines.append(f"{model},{poisoned},{('train', 'test')[number >= count // 2]}")
            store.append(
                Record(
                    model,
                    "",
                    said,
                    poisoned and not reason,
                    None,
                    (),
                    "ok",
                    reason,
                    {},
                    evidence,
                    architecture,
                )
            )
    truth = folder / f"{name}.csv"
    truth.write_text("\n".join(lines))
    return folder / name, truth
