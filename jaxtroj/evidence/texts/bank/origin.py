"""Where a bank's clean heads come from: which dataset, and which encoder they name.

Vectors of two encoders may have one width, as BERT's and DistilBERT's do. A head on the one looks
poisoned beside clean heads on the other, so the names in its config.json are compared with theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from converters.errors import LoadError, safe_repr
from converters.files import read_json
from jaxtroj.record import digest_file
from jaxtroj.rounds.text_config import TextConfig

MANIFEST = "references.json"
_LONGEST = 60  # characters of a name that a message shows


@dataclass(frozen=True)
class NamedEncoder:
    """How a config.json names the encoder that a head stands on; None for what it does not say.

    Attributes:
      embedding: family, such as "BERT" or "GPT-2".
      flavor: pretrained weights, such as "bert-base-uncased".
    """

    embedding: str | None = None
    flavor: str | None = None

    def __str__(self) -> str:
        names = (name for name in (self.embedding, self.flavor) if name)
        return " ".join(safe_repr(name[:_LONGEST]) for name in names)

    def differs_from(self, other: "NamedEncoder") -> bool:
        """Whether both name an encoder, and not the same; how it is spelt does not count.

        >>> distilbert = NamedEncoder("DistilBERT", "distilbert-base-uncased")
        >>> distilbert.differs_from(NamedEncoder("BERT")), distilbert.differs_from(NamedEncoder())
        (True, False)
        """
        pairs = ((self.embedding, other.embedding), (self.flavor, other.flavor))
        return any(a and b and _spelt(a) != _spelt(b) for a, b in pairs)


def named_by(config: TextConfig | None) -> NamedEncoder:
    """The encoder that a head's config names."""
    return (
        NamedEncoder()
        if config is None
        else NamedEncoder(config.embedding, config.embedding_flavor)
    )


def is_of(config: TextConfig, architecture: str) -> bool:
    """Whether a config names an encoder of an architecture, such as "gpt2".

    >>> is_of(TextConfig(embedding="GPT-2"), "gpt2"), is_of(TextConfig(), "gpt2")
    (True, False)
    """
    return config.embedding is not None and _spelt(config.embedding) == _spelt(architecture)


def named_by_bank(folder: Path) -> NamedEncoder:
    """The encoder that all clean heads of a bank name; banks of earlier versions name none."""
    heads = _listed(folder)
    return NamedEncoder(_of_all(heads, "embedding"), _of_all(heads, "flavor"))


def are_from(dataset: Path, file_name: str, folder: Path) -> bool:
    """Whether the clean heads of a bank come from a dataset: one of them lies there unchanged.

    Args:
      dataset: folder of the models' folders.
      file_name: of a model in its own folder, such as "model.pt".
      folder: of a bank.
    """
    known = [(one.get("model"), one.get("sha256")) for one in _listed(folder)]
    return any(_is_there(dataset, name, file_name, sha256) for name, sha256 in known)


def _is_there(dataset: Path, name: object, file_name: str, sha256: object) -> bool:
    if not isinstance(name, str) or Path(name).name != name:  # no way out of the dataset
        return False
    try:
        return digest_file(dataset / name / file_name) == sha256
    except (OSError, ValueError):  # a name may hold a zero byte
        return False


def _listed(folder: Path) -> list[dict[str, Any]]:
    try:
        heads = read_json(folder / MANIFEST, 2**20).get("heads")
    except LoadError:
        return []
    return [one for one in heads if isinstance(one, dict)] if isinstance(heads, list) else []


def _of_all(heads: Sequence[dict[str, Any]], name: str) -> str | None:
    value = heads[0].get(name) if heads else None
    same = isinstance(value, str) and all(head.get(name) == value for head in heads)
    return value if same else None


def _spelt(name: str) -> str:
    """NIST writes "GPT-2" and "DistilBERT" where Hugging Face has gpt2 and distilbert, and a name
    on the hub may have its owner before it."""
    return name.rpartition("/")[2].replace("-", "").lower()
