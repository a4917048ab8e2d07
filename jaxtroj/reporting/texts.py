"""Trigger texts in place: an example of the model with the recovered words in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jaxtroj.errors import ExamplesError
from jaxtroj.evidence.texts.insertion import sentences
from jaxtroj.record import Record
from jaxtroj.rounds import ModelEntry
from jaxtroj.rounds.text_examples import load_text_examples

MOST_EXAMPLES = 200  # models whose example texts are read
SHOWN_CHARACTERS = 240  # of the example, before and after the words


@dataclass(frozen=True)
class PlacedText:
    """The words of a recovered trigger and what is around them.

    Attributes:
        words: what is inserted.
        before, after: the example around it; both empty where no example is at hand.
        source_class: of the example, None without one.
    """

    words: str
    before: str = ""
    after: str = ""
    source_class: int | None = None


def place(
    records: Sequence[Record], entries: Mapping[str, ModelEntry], most: int = MOST_EXAMPLES
) -> dict[str, PlacedText]:
    """Recovered words by model name, in an example text where the dataset has one.

    Examples are read for the `most` likeliest models. The words stand before the middle sentence:
    the official generators put them before any sentence.
    """
    wanted = [r for r in records if isinstance(r.recovered.get("text"), str)]
    wanted = sorted((r for r in wanted if r.recovered["text"]), key=lambda r: -r.probability)
    placed = {record.model: PlacedText(record.recovered["text"]) for record in wanted}
    for record in wanted[:most]:
        entry = entries.get(record.model)
        if entry is not None:
            placed[record.model] = _in_example(record, entry)
    return placed


def _in_example(record: Record, entry: ModelEntry) -> PlacedText:
    words = record.recovered["text"]
    try:
        examples = load_text_examples(entry)
    except ExamplesError:  # the words are shown alone; whether examples can be read is the scan's
        return PlacedText(words)
    for text, label in zip(examples.texts, examples.labels.tolist(), strict=True):
        parts = sentences(text)
        if parts and label != record.target_class:
            middle = len(parts) // 2
            before, after = " ".join(parts[:middle]), " ".join(parts[middle:])
            return PlacedText(words, _end(before), _start(after), int(label))
    return PlacedText(words)


def _end(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else "…" + text[-SHOWN_CHARACTERS:]


def _start(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"
