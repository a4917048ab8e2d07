"""TrojAI dataset folders: where the models, examples, labels and metadata of a round lie."""

from jaxtroj.rounds.examples import Examples, examples_digest, load_examples
from jaxtroj.rounds.layout import ModelEntry, iter_models, with_own_files
from jaxtroj.rounds.text_config import TextConfig
from jaxtroj.rounds.text_examples import TextExamples, load_text_examples, text_examples_digest
from jaxtroj.rounds.truth import load_truth

__all__ = [
    "Examples",
    "ModelEntry",
    "TextConfig",
    "TextExamples",
    "examples_digest",
    "iter_models",
    "load_examples",
    "load_text_examples",
    "load_truth",
    "text_examples_digest",
    "with_own_files",
]
