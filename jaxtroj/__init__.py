"""Scanner for poisoned (backdoored, trojaned) neural networks.

`detect(network, images, labels)` answers for one network: a model file, a torch module, a JAX
function, a converted model; all but a function in a guarded process. `scan_folder(folder)` yields
the records of a folder of files, `answer(entries, Settings())` the records of models that a guarded
process opens, under limits of time and memory; `scan_model(entry, Settings())` answers for one in
the caller's own process, without limits, and `open_model(path)` is `converters.open_model`, for
every format that is scanned. Importing this package loads neither jax nor torch: each name is
imported when it is first used.
"""

import importlib

from jaxtroj.errors import JaxtrojError

__version__ = "0.1.0"

_HOMES = {
    "CalibrationError": "jaxtroj.errors",
    "Calibrator": "jaxtroj.calibration",
    "EngineError": "jaxtroj.errors",
    "ExamplesError": "jaxtroj.errors",
    "Guard": "jaxtroj.engine.guard",
    "ModelEntry": "jaxtroj.rounds",
    "Record": "jaxtroj.record",
    "RunStore": "jaxtroj.store",
    "ScanError": "jaxtroj.verdict",
    "Settings": "jaxtroj.settings",
    "UsageError": "jaxtroj.errors",
    "Verdict": "jaxtroj.verdict",
    "answer": "jaxtroj.engine.run",
    "detect": "jaxtroj.detection",
    "iter_models": "jaxtroj.rounds",
    "InputForm": "converters",
    "load_examples": "jaxtroj.rounds",
    "open_model": "converters",
    "read_records": "jaxtroj.store",
    "scan_folder": "jaxtroj.detection",
    "scan_model": "jaxtroj.scan",
}
__all__ = ["JaxtrojError", "__version__", *_HOMES]


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'jaxtroj' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
