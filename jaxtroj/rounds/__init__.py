"""TrojAI dataset folders: where the models, examples, labels and metadata of a round lie."""

from jaxtroj.rounds.examples import Examples, examples_digest, load_examples
from jaxtroj.rounds.layout import ModelEntry, iter_models
from jaxtroj.rounds.truth import load_truth

__all__ = [
    "Examples",
    "ModelEntry",
    "examples_digest",
    "iter_models",
    "load_examples",
    "load_truth",
]
