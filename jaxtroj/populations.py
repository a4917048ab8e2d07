"""The calibrators that ship with the package, and which of them answers for which model."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "calibrators"
LARGE_ABOVE = 64
"""Pixels of the longest side; larger pictures do not get stage `recall`."""


@dataclass(frozen=True)
class Population:
    """Models of one making, and the calibrator that was fitted on them.

    Attributes:
        name: for `--population`.
        kind: "image", "text" or "text-classifier".
        rounds: TrojAI rounds whose datasets it answers for (`rounds.which`), where their pictures
            have the sides that its file notes, if it notes any.
        by_size: whether it answers for all pictures of the sides that its file notes.
        apart: name of the file of the calibrator that answers in its place for heads whose clean
            heads come from another dataset; "" for none.
        beside: of the one for networks that are compared with a clean one; "" for none.
        without_norms: of the one for networks without batch norms; "" for none.
        large: of the one for pictures above `LARGE_ABOVE`; "" for none.
    """

    name: str
    kind: str
    rounds: tuple[str, ...] = ()
    by_size: bool = False
    apart: str = ""
    beside: str = ""
    without_norms: str = ""
    large: str = ""

    @property
    def path(self) -> Path:
        """Its calibrator's file."""
        return FOLDER / f"{self.name}.json"

    @property
    def apart_path(self) -> Path:
        """The file of the one for heads that stand apart from their clean heads."""
        return FOLDER / f"{self.apart or self.name}.json"

    @property
    def beside_path(self) -> Path:
        """The file of the one for networks that are compared with a clean one."""
        return FOLDER / f"{self.beside or self.name}.json"

    @property
    def without_norms_path(self) -> Path:
        """The file of the one for networks without batch norms."""
        return FOLDER / f"{self.without_norms or self.name}.json"

    @property
    def large_path(self) -> Path:
        """The file of the one for pictures above `LARGE_ABOVE`."""
        return FOLDER / f"{self.large or self.name}.json"


POPULATIONS = (
    Population("round0", "image", ("round0",)),
    Population("round1", "image", ("round1",)),
    Population(
        "rounds",
        "image",
        ("round2", "round3", "round4"),
        beside="general_reference",
        without_norms="general_without_norms",
    ),
    Population("small", "image", by_size=True),
    Population(
        "general",
        "image",
        beside="general_reference",
        without_norms="general_without_norms",
        large="general_large",
    ),
    Population("round5", "text", ("round5", "round6"), apart="round5_apart"),
    Population("text_classifiers", "text-classifier"),
)
BY_NAME: Mapping[str, Population] = {
    name: one for one in POPULATIONS for name in dict.fromkeys((one.name, *one.rounds))
}
"""A population by its own name, and by that of each round that it answers for."""


def shipped() -> tuple[Population, ...]:
    """Populations whose calibrator is there."""
    return tuple(one for one in POPULATIONS if one.path.is_file())


def _general_is_shipped() -> bool:
    return BY_NAME["general"].path.is_file()


def apart_from(calibrator: Path) -> Path:
    """The calibrator for heads whose clean heads come from another dataset, instead of one."""
    return _instead_of(calibrator, lambda one: one.apart_path)


def beside_from(calibrator: Path) -> Path:
    """The calibrator for networks that are compared with a clean one, instead of one."""
    return _instead_of(calibrator, lambda one: one.beside_path)


def without_norms_from(calibrator: Path) -> Path:
    """The calibrator for networks without batch norms, instead of one."""
    return _instead_of(calibrator, lambda one: one.without_norms_path)


def large_from(calibrator: Path) -> Path:
    """The calibrator for pictures above `LARGE_ABOVE`, instead of one."""
    return _instead_of(calibrator, lambda one: one.large_path)


def _instead_of(calibrator: Path, other: Callable[[Population], Path]) -> Path:
    """Another calibrator of the same population; the one itself if it does not ship or has none."""
    own = next((other(one) for one in shipped() if one.path == calibrator), None)
    return own if own is not None and own.is_file() else calibrator


def default_calibrator() -> Path:
    """Of pictures of no known round: the general one, and until there is one that of round 0."""
    return BY_NAME["general" if _general_is_shipped() else "round0"].path


def special_calibrators() -> tuple[Path, ...]:
    """Those that answer by the size of pictures; the general one needs no help."""
    sized = (one.path for one in shipped() if one.by_size)
    return () if _general_is_shipped() else tuple(sized)


def round_calibrators() -> tuple[tuple[str, Path], ...]:
    """Round of pictures -> its calibrator."""
    found = (one for one in shipped() if one.kind == "image")
    return tuple((name, one.path) for one in found for name in one.rounds)


@dataclass(frozen=True)
class Asked:
    """A model that a calibrator is needed for.

    Attributes:
        kind: "image", "text" or "text-classifier".
        size: height and width in pixels of its pictures, where they are known.
        round: of its dataset, where it was recognised.
        is_apart: whether the clean heads that a head is compared with come from another dataset.
        has_reference: whether it is compared with a clean network of the same classes.
        has_batch_norm: whether it has batch norms with running statistics that the examples can be
            compared with; None until both are read.
    """

    kind: str = "image"
    size: tuple[int, int] | None = None
    round: str | None = None
    is_apart: bool = False
    has_reference: bool = False
    has_batch_norm: bool | None = None


@dataclass(frozen=True)
class Choice:
    """A calibrator's file, and in words why it answers."""

    path: Path
    why: str


@dataclass(frozen=True)
class Candidates:
    """The calibrators of some settings; see `Settings` for the attributes."""

    calibrator: Path
    text_calibrator: Path | None
    special: tuple[Path, ...]
    rounds: tuple[tuple[str, Path], ...]


Covers = Callable[[Path, tuple[int, int]], bool | None]
Rule = Callable[[Candidates, Asked, Covers], Choice | None]


def _of_texts(known: Candidates, asked: Asked, covers: Covers) -> Choice | None:
    if asked.kind != "text" or known.text_calibrator is None:
        return None
    apart = apart_from(known.text_calibrator)
    if asked.is_apart and apart != known.text_calibrator:
        return Choice(apart, "for heads whose clean heads come from another dataset")
    return Choice(known.text_calibrator, "for text models")


def _of_round(known: Candidates, asked: Asked, covers: Covers) -> Choice | None:
    path = dict(known.rounds).get(asked.round or "")
    if path is None or (asked.size is not None and covers(path, asked.size) is False):
        return None
    return Choice(path, f"for datasets of {asked.round}")


def _of_size(known: Candidates, asked: Asked, covers: Covers) -> Choice | None:
    if asked.size is None:
        return None
    path = next((path for path in known.special if covers(path, asked.size)), None)
    height, width = asked.size
    return None if path is None else Choice(path, f"for pictures of {height} x {width} pixels")


def _of_all(known: Candidates, asked: Asked, covers: Covers) -> Choice | None:
    others = known.special or known.rounds
    return Choice(known.calibrator, "for all other models" if others else "as asked for all models")


RULES: tuple[Rule, ...] = (_of_texts, _of_round, _of_size, _of_all)
"""The first that answers decides."""


def choose(known: Candidates, asked: Asked, covers: Covers) -> Choice:
    """The calibrator that answers for a model.

    Args:
        known: to choose from.
        asked: the model.
        covers: whether a calibrator is for pictures of a size; None where its file notes no sizes.
    """
    found = next(found for rule in RULES if (found := rule(known, asked, covers)) is not None)
    instead = (one for one in _instead(found, asked) if one.path != found.path)
    return next(instead, found)


def _instead(found: Choice, asked: Asked) -> Iterator[Choice]:
    """Calibrators for what is known of the model itself, the first that there is answers."""
    if asked.has_reference:
        yield Choice(beside_from(found.path), f"{found.why}, beside a reference")
    if asked.has_batch_norm is False:
        yield Choice(
            without_norms_from(found.path),
            f"{found.why} without batch norms to compare examples with",
        )
    if asked.size is not None and max(asked.size) > LARGE_ABOVE:
        words = f"{found.why}, for pictures above {LARGE_ABOVE} pixels"
        yield Choice(large_from(found.path), words)
