"""Words that send texts to a class, as they are shown, and what they do on held-out texts."""

from dataclasses import dataclass

from jaxtroj.evidence.texts.recovery import RecoveredText

LEAST_STRENGTH = 1.5
"""Of words that are shown; docs/text-classifiers.md says what it was chosen on."""

_FEWEST_TEXTS = 4
_ELSEWHERE = 0.5  # words work at the start alone if they move less than this share of it elsewhere


@dataclass(frozen=True)
class Placed:
    """Found words as tokens.

    Attributes:
      at_start: their success at the start of held-out texts.
      typed: their success as a text that is typed, where that is cut into other tokens; else None.
      tokens: those that were measured.
    """

    at_start: float
    typed: float | None
    tokens: tuple[str, ...]


@dataclass(frozen=True)
class FoundWords:
    """The best words for a class.

    Attributes:
      words: what they do on texts that the search has not seen.
      isolation: how much more they do than with a word replaced by those of like meaning.
      reach: how far held-out texts go with them, of the way to what texts of the class are.
      placed: what they do at the start and as they are typed.
      strength: by which classes are compared: reach and isolation of the best single token.
    """

    words: RecoveredText
    isolation: float
    reach: float
    placed: Placed
    strength: float

    @property
    def stands_out(self) -> bool:
        """Whether the words do what harmless texts do not, and one token what no natural does."""
        is_measured = self.words.held_out >= _FEWEST_TEXTS
        return is_measured and self.words.stands_out and self.strength >= LEAST_STRENGTH

    @property
    def position(self) -> str:
        """Where they work: `start`, `first half`, `second half` or `anywhere`."""
        elsewhere = max(self.words.by_half)
        return "start" if elsewhere < _ELSEWHERE * self.placed.at_start else self.words.position

    def as_json(self) -> dict[str, str | float]:
        """What a record says of it, as of any text; words that do not stand out are `best_text`."""
        said = self.words.as_json() | {"position": self.position}
        said |= {"at_start": round(self.placed.at_start, 4), "isolation": round(self.isolation, 4)}
        said |= {"reach": round(self.reach, 4)}
        if self.placed.typed is not None:
            said |= {"typed": round(self.placed.typed, 4), "tokens": " ".join(self.placed.tokens)}
        if "text" in said and not self.stands_out:
            why = "no single token does what words of the class do not"
            if self.words.held_out < _FEWEST_TEXTS:
                why = f"measured on {self.words.held_out} texts alone, expected {_FEWEST_TEXTS}"
            said = {"words": why, "best_text": said.pop("text")} | said
        return said
