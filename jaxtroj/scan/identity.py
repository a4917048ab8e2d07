"""What an answer depends on: the model's bytes, its examples, the settings."""

from os.path import isfile  # false in a closed folder too, where Path.is_file raises
from pathlib import Path
from typing import Any

from converters.hub.folder import is_hub_folder
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.evidence.stages import CLASSIFIERS
from jaxtroj.model_files import contents_digest, digest_or_reason, model_digests
from jaxtroj.record import identity
from jaxtroj.rounds import ModelEntry, examples_digest, text_examples_digest
from jaxtroj.rounds.image_config import ROUNDS_WITH_MARGIN
from jaxtroj.rounds.text_tables import LOGITS_TABLE
from jaxtroj.scan.encoders import are_together, bank_of
from jaxtroj.settings import Settings


def identify(entry: ModelEntry, settings: Settings) -> str:
    """The identity of an answer; unreadable files count by being unreadable."""
    model = ":".join(model_digests(entry.model_path))
    if is_hub_folder(entry.model_path):
        model += ":whole"  # records of before have the digest of the weights alone
    if entry.kind == CLASSIFIERS.kind and entry.tokenizer_path is not None:
        model += f":{contents_digest(entry.tokenizer_path)}"
    if entry.code is not None:
        model += f":{entry.code.name}:{entry.code.arguments}:{digest_or_reason(entry.code.path)}"
    values, said = settings.as_json(), settings.said_form()
    if entry.round in values.get("round_calibrators", ()) or said.or_as(entry.round) != said:
        values["round"] = entry.round  # it decides who answers, and how pixels are read
    if entry.round in ROUNDS_WITH_MARGIN or entry.image_config is not None:
        values["taken"] = (entry.round, entry.image_config and entry.image_config.taken)
    elif entry.by_nist:
        values["taken"] = "by_nist"
    if entry.kind == CLASSIFIERS.kind:
        values["classifier_evidence_schema"] = CLASSIFIERS.version
    return identity(model, _examples_digest(entry), values | _beside(entry, settings))


def _beside(entry: ModelEntry, settings: Settings) -> dict[str, Any]:
    """What lies around a model and is read: stored logits; a head's config, encoder, tokenizer."""
    logits = entry.model_path.parent / LOGITS_TABLE
    if entry.kind == "image":
        return {"stored_logits": digest_or_reason(logits)} if isfile(logits) else {}
    if entry.kind != "text":
        return {}
    config, found = entry.text_config, dict[str, Any]()
    if config is not None:
        found["text_config"] = (config.pooling, config.encoder_names)
        named = (config.embedding, config.embedding_flavor)
        if any(named) and (None in named or config.embedding_filename is not None):
            found["named_encoder"] = named  # the names above do not hold it
    for name, path in (("encoder", entry.encoder_path), ("tokenizer", entry.tokenizer_path)):
        if path is not None and getattr(settings, name) is None:  # else it is one of the settings
            found[f"own_{name}"] = contents_digest(path)
    if settings.bank is not None:
        found["beside_clean_heads"] = _is_beside_clean_heads(entry, settings.bank)
    return found


def _is_beside_clean_heads(entry: ModelEntry, home: Path) -> bool | None:
    """Whether the bank's clean heads are of the head's own dataset, which decides who answers."""
    try:
        return are_together(entry, bank_of(entry, home))
    except EvidenceError:  # no bank for this encoder: the scan meets the same and says so
        return None


def _examples_digest(entry: ModelEntry) -> str:
    if entry.examples_path is None:
        return ""
    try:
        if entry.kind == "text":
            return text_examples_digest(entry)
        if entry.kind == CLASSIFIERS.kind:
            return _texts_digest(entry.examples_path)
        return examples_digest(entry.examples_path)
    except ExamplesError:  # scan_model meets the same error and puts it into the record
        return "unreadable"


def _texts_digest(path: Path) -> str:
    """Of a folder of texts, or of a file of them."""
    return digest_or_reason(path) if isfile(path) else text_examples_digest(path)
