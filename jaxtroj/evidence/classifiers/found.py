"""Words that send texts to a class, as they are shown, and what they do on held-out texts."""

from dataclasses import dataclass

from jaxtroj.evidence.texts.recovery import RecoveredText

LEAST_ISOLATION = 0.35
"""Of the mean sigmoid margin, in [0, 1]; docs/text-classifiers.md says what it was chosen on."""


@dataclass(frozen=True)
class FoundWords:
    """The best words for a class.

    Attributes:
      words: what they do on texts that the search has not seen.
      isolation: how much more they do than with a word replaced by those of like meaning.
      margin: mean margin of held-out texts with the words, over that of texts of the class.
    """

    words: RecoveredText
    isolation: float
    margin: float

    @property
    def strength(self) -> float:
        """By which classes are compared."""
        return self.words.attack_success_rate + self.isolation

    @property
    def stands_out(self) -> bool:
        """Whether the words do what neither harmless texts nor words of like meaning do."""
        return self.words.stands_out and self.isolation >= LEAST_ISOLATION

    def as_json(self) -> dict[str, str | float]:
        """What a record says of it, as of any text; words that do not stand out are `best_text`."""
        said = self.words.as_json() | {"isolation": round(self.isolation, 4)}
        if "text" in said and not self.stands_out:
            why = "none found that does more than words of like meaning"
            said = {"words": why, "best_text": said.pop("text")} | said
        return said
