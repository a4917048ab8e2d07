"""Text models to records: heads on sentence embeddings, judged many at a time."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxtroj.calibration import Verdict
from jaxtroj.errors import EvidenceError, ExamplesError
from jaxtroj.evidence.texts.bank import open_bank
from jaxtroj.evidence.texts.bank.store import MANIFEST
from jaxtroj.record import Record, finite
from jaxtroj.rounds import ModelEntry, TextExamples, load_text_examples
from jaxtroj.scan.work import OnStep, Work, describe_error
from jaxtroj.settings import Settings

if TYPE_CHECKING:
    from converters.encoders import Encoder
    from converters.encoders.tokenizer import Tokenizer
    from converters.model import Model
    from jaxtroj.evidence.texts.gather import EncoderProbes, FoundText, TextEvidence
    from jaxtroj.evidence.texts.recovery import RecoveredText
    from jaxtroj.evidence.texts.text_search import Embed

# Example texts by which an encoder is compared with the shipped vectors, and how alike they must
# be: the official ones are of half precision (.9999), another encoder's are near 0.
_COMPARED, _LEAST_COSINE = 2, 0.98


@dataclass(frozen=True)
class _Ready:
    """A head with everything that its evidence needs; `place` is its place in the batch."""

    place: int
    work: Work
    model: "Model"
    examples: TextExamples
    embeddings: np.ndarray
    bank: Path | None


def scan_heads(entries: Sequence[ModelEntry], settings: Settings, on_step: OnStep) -> list[Record]:
    """The records of text models, in order; faults of a model are in its record."""
    records: dict[int, Record] = {}
    opened: list[tuple[int, Work, Model]] = []
    for place, entry in enumerate(entries):
        work = Work(entry, settings, on_step)
        try:
            opened.append((place, work, work.open()))
        except Exception as error:  # A record is owed for every model: the fault goes into it.
            records[place] = work.failed(error)
    heads = [item for item in opened if item[1].kind == "text"]
    found = judge([(work, model) for _, work, model in heads])
    records |= {item[0]: record for item, record in zip(heads, found, strict=True)}
    for place, entry in enumerate(entries):
        if place not in records:  # a folder of texts around a network that takes pictures
            from jaxtroj.scan.models import scan_model

            records[place] = scan_model(entry, settings, None, on_step)
    return [records[place] for place in range(len(entries))]


def judge(opened: "Sequence[tuple[Work, Model]]") -> list[Record]:
    """Records of opened heads, in order; those of one shape and bank are judged together."""
    records: dict[int, Record] = {}
    groups: dict[object, list[_Ready]] = defaultdict(list)
    for place, (work, model) in enumerate(opened):
        try:
            ready = _prepare(place, work, model)
            groups[ready.model.config, ready.bank].append(ready)
        except Exception as error:  # A record is owed for every model: the fault goes into it.
            records[place] = work.failed(error)
    for group in groups.values():
        records |= _judge_group(group)
    return [records[place] for place in range(len(opened))]


def _prepare(place: int, work: Work, model: "Model") -> _Ready:
    from jaxtroj.evidence.texts.heads import reduced

    with work.step("examples"):
        examples = load_text_examples(work.entry, work.settings.examples_per_class)
        embeddings = examples.embeddings
    if embeddings is None:
        with work.step("embed"):
            embeddings = _embed(work, examples)
    width = model.config.input_size  # pyright: ignore[reportAttributeAccessIssue]
    if embeddings.shape[1] != width:
        raise ExamplesError(
            f"the examples' embeddings have width {embeddings.shape[1]}, the head takes {width};"
            " are they from another encoder?"
        )
    return _Ready(place, work, reduced(model), examples, embeddings, _bank_of(work))


def _judge_group(group: list[_Ready]) -> dict[int, Record]:
    """Records by place; if the group fails, each head is tried alone, so one fault costs one."""
    try:
        evidence = _gather(group)
    except Exception as error:
        if len(group) == 1:
            return {group[0].place: group[0].work.failed(error)}
        return {k: v for ready in group for k, v in _judge_group([ready]).items()}
    return {ready.place: _answer(ready, one) for ready, one in zip(group, evidence, strict=True)}


def _gather(group: list[_Ready]) -> "list[TextEvidence]":
    from jaxtroj.evidence.texts.gather import gather_heads

    for ready in group:
        ready.work.on_step(ready.work.name, "evidence")
    bank, width = group[0].bank, group[0].embeddings.shape[1]
    probes = None if bank is None else _probes(bank)
    if probes is not None and probes.bank.plan.width != width:
        raise EvidenceError(
            f"the bank's vectors have width {probes.bank.plan.width}, the head takes {width};"
            " use the bank of the encoder that the head stands on"
        )
    seed = group[0].work.settings.seed
    return gather_heads([r.model for r in group], [r.embeddings for r in group], probes, seed=seed)


def _answer(ready: _Ready, evidence: "TextEvidence") -> Record:
    work = ready.work
    work.evidence = finite(evidence.fields)
    work.seconds.update({stage: round(s, 4) for stage, s in evidence.seconds.items()})
    try:
        if len(work.evidence) < len(evidence.fields):
            odd = sorted(set(evidence.fields) - set(work.evidence))
            raise EvidenceError(f"evidence is not finite: {', '.join(odd)}; is the head sound?")
        found = evidence.found
        target = None if found is None else found.target_class
        verdict = work.verdict(target, () if found is None else found.source_classes)
    except Exception as error:
        return work.failed(error)
    recovered = _recovered(found)
    if verdict.poisoned and found is not None:
        verdict, recovered = _with_words(ready, found, verdict, recovered)
    reasons = (*verdict.reasons, *_remarks(ready))
    return work.record(verdict, "; ".join(filter(None, reasons)), recovered=recovered)


def _remarks(ready: _Ready) -> tuple[str, ...]:
    known = () if ready.bank is not None else ("no probe bank was given, see jaxtroj bank",)
    entry = ready.work.entry
    # Where vectors are shipped, nobody needs the encoder; a config that cannot be read is news.
    needed = ready.examples.embeddings is None or entry.text_config is None
    return (*known, *ready.examples.problems, *(entry.text_problems if needed else ()))


def _recovered(found: "FoundText | None") -> dict[str, str | float]:
    if found is None:
        return {}
    method = "bank" if found.text else "shift"
    return {"method": method, "score": found.score} | ({"text": found.text} if found.text else {})


def _with_words(
    ready: _Ready, found: "FoundText", verdict: Verdict, recovered: dict[str, Any]
) -> tuple[Verdict, dict[str, Any]]:
    """The verdict with the trigger's source classes, and its words; else why there are none."""
    try:
        with ready.work.step("words"):
            words = _words(ready, found)
    except Exception as error:  # The verdict stands without the words; the record says why.
        return verdict, recovered | {"words": f"not searched: {describe_error(error)}"}
    sources = words.source_classes
    return replace(verdict, source_classes=sources), recovered | words.as_json()


def _words(ready: _Ready, found: "FoundText") -> "RecoveredText":
    """Search the trigger's words through the encoder.

    Raises:
        EvidenceError: the settings, the bank or the encoder do not allow it.
    """
    from jaxtroj.evidence.texts.recovery import CleanExamples, pieces_of_bank, recover_text

    if not ready.work.settings.recover_words:
        raise EvidenceError("the settings leave it out (--words has it done)")
    if ready.bank is None or not found.candidates:
        raise EvidenceError("that needs a probe bank, see jaxtroj bank")
    probes, embed = _probes(ready.bank), _embedding(ready.work)
    _check_encoder(ready, embed)
    return recover_text(
        ready.model,
        CleanExamples(ready.examples.texts, ready.embeddings),
        found.target_class,
        pieces_of_bank(probes.bank, found.candidates),
        embed,
        probes.references,
    )


def _check_encoder(ready: _Ready, embed: "Embed") -> None:
    """Raise EvidenceError if the encoder does not give the vectors that the head was judged by."""
    texts = [text for text in ready.examples.texts if text.strip()][:_COMPARED]
    places = [ready.examples.texts.index(text) for text in texts]
    if ready.examples.embeddings is None or not texts:
        return
    ours, theirs = embed(texts), ready.embeddings[places]
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    alike = float(((ours * theirs).sum(axis=1) / np.maximum(norms, 1e-12)).min())
    if alike < _LEAST_COSINE:
        raise EvidenceError(
            f"the encoder's vectors of the examples differ from the shipped ones (cosine"
            f" {alike:.2f}, expected {_LEAST_COSINE}); name the round's own with --encoder"
        )


def _bank_of(work: Work) -> Path | None:
    """The bank for a head: the one named, or in a folder of banks the one of its encoder's name.

    Raises:
        EvidenceError: a folder of banks has none for this encoder.
    """
    home = work.settings.bank
    if home is None or (home / MANIFEST).exists():
        return home
    config = work.entry.text_config
    names = [Path(name).stem for name in config.encoder_names] if config else []
    for name in names:
        if (home / name / MANIFEST).exists():
            return home / name
    raise EvidenceError(
        f"{home} is no bank and holds none called {' or '.join(names) or 'as the encoder'}; build"
        " it with: jaxtroj bank"
    )


@lru_cache(maxsize=4)
def _probes(bank: Path) -> "EncoderProbes":
    from jaxtroj.evidence.texts.bank.reference_heads import load_references
    from jaxtroj.evidence.texts.gather import EncoderProbes

    return EncoderProbes(open_bank(bank), load_references(bank))


def _embed(work: Work, examples: TextExamples) -> np.ndarray:
    """Embeddings of the example texts by the dataset's encoder, or the one of the settings."""
    try:
        return _embedding(work)(examples.texts)
    except EvidenceError as error:
        raise ExamplesError(f"the example texts come without embeddings and {error}") from error


def _embedding(work: Work) -> "Embed":
    """What makes sentence vectors for a head: its dataset's encoder, or that of the settings.

    Raises:
        EvidenceError: there is none, or nobody says which token's state is the vector.
        ConverterError: encoder or tokenizer cannot be read.
    """
    from jaxtroj.evidence.texts.embedding import embed

    entry, settings = work.entry, work.settings
    path = settings.encoder or entry.encoder_path
    if path is None:
        raise EvidenceError(
            f"there is no encoder ({'; '.join(entry.text_problems) or 'none in the dataset'});"
            " name one with --encoder"
        )
    config = entry.text_config
    first = None if config is None else config.takes_first_token
    if first is None:
        raise EvidenceError(
            "the model's config.json does not say which token's state is the sentence embedding;"
            " expected cls_token_is_first or an encoder's name in it"
        )
    encoder = _encoder(path)
    tokenizer = _tokenizer(settings.tokenizer or entry.tokenizer_path or path)
    return lambda texts: embed(encoder, tokenizer, texts, first)


@lru_cache(maxsize=2)
def _encoder(path: Path) -> "Encoder":
    from converters.encoders import load_encoder

    return load_encoder(path)


@lru_cache(maxsize=2)
def _tokenizer(path: Path) -> "Tokenizer":
    from converters.encoders.tokenizer import load_tokenizer

    return load_tokenizer(path)
