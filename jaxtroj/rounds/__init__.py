"""TrojAI dataset folders: where the models, examples, labels and metadata of a round lie."""

from jaxtroj.rounds.examples import Examples, examples_digest, load_examples
from jaxtroj.rounds.layout import ModelEntry, NoModelsError, iter_models, with_own_files
from jaxtroj.rounds.leftovers import LeftOut, left_out
from jaxtroj.rounds.metadata import tables_aside
from jaxtroj.rounds.text_config import TextConfig
from jaxtroj.rounds.text_examples import TextExamples, load_text_examples, text_examples_digest
from jaxtroj.rounds.truth import load_truth

__all__ = [
    "Examples",
    "LeftOut",
    "ModelEntry",
    "NoModelsError",
    "TextConfig",
    "TextExamples",
    "examples_digest",
    "iter_models",
    "left_out",
    "load_examples",
    "load_text_examples",
    "load_truth",
    "tables_aside",
    "text_examples_digest",
    "with_own_files",
]
