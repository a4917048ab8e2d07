"""What is particular to each of Rounds 1 to 4: one frozen value per round.

Sources: usnistgov/trojai-round-generation, branches image-classification-aug2020 (Round 2) and
-feb2021 (Round 4); NIST's pages of Rounds 1 and 3. What they leave open is inferred from the next
round and said here: Round 1's sizes of signs and Round 3's file formats.

On purpose the triggers of single classes in Rounds 1 to 3 are taught with other classes' pictures
that carry them and keep their label; NIST did so in Round 4 only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from jaxtroj.generate.traffic_signs.later import architectures

Range = tuple[float, float]
ANY = "all"
ORGANISATIONS: Mapping[str, tuple[int, int]] = {
    ANY: (1, 0),
    "one-source": (1, 1),
    "two-sources": (1, 2),
    "one2one": (1, 1),
    "pair-one2one": (2, 1),
    "one2two": (2, 1),
}
"""Number of triggers, and of source classes of each; 0 for all classes."""


@dataclass(frozen=True)
class Layout:
    """How a round's folder is laid out.

    Attributes:
        models: folder of the models within the round's.
        is_legacy: whether model.pt is the stream that torch wrote before 1.6.
        channel_order, normalization: of the networks' input.
        has_margin: whether examples are 256 pixels for networks that take the middle 224.
        clean, poisoned: folders of examples; no folder of poisoned ones for "".
        example_name: of the poisoned examples, with the fields label, trigger and number.
        trigger_name: of a trigger's picture, with the field number; "" for none.
        config: style of config.json: "", "flat" or "jsonpickle".
        accuracy: file of the accuracy on the clean examples; "" for none.
        has_logits: whether the logits on the examples are written.
    """

    models: str = "."
    is_legacy: bool = False
    channel_order: str = "RGB"
    normalization: str = "unit"
    has_margin: bool = True
    clean: str = "example_data"
    poisoned: str = ""
    example_name: str = "class_{label}_example_{number}.png"
    trigger_name: str = "trigger.png"
    config: str = "flat"
    accuracy: str = "example-accuracy.csv"
    has_logits: bool = False


@dataclass(frozen=True)
class AdversaryDesign:
    """What adversarial training is drawn from.

    Attributes:
        methods: "PGD" (projected gradient descent) and "FBF" (one step from a random start).
        reaches: largest changes of a pixel, of 255.
        tenths: shares of the steps, of ten.
        iterations: of PGD.
    """

    methods: tuple[str, ...]
    reaches: tuple[int, ...]
    tenths: tuple[int, ...]
    iterations: tuple[int, ...]


@dataclass(frozen=True)
class RoundDesign:
    """What is particular to a round.

    Attributes:
        name: as in `jaxtroj generate NAME`.
        architectures: by NIST's keys.
        class_levels, class_spread: numbers of classes, and the range of what is added to them.
        sign_areas: area of signs as a share of the picture's: two draws out of this range bound
            those of a model, where they are equal the range itself.
        draws_areas: whether they are drawn.
        organisations: see `ORGANISATIONS`.
        kinds: of triggers, "polygon" and "instagram".
        sides: ranges of a polygon's corners; one is drawn.
        sizes: ranges of its area as a share of the sign's, one is drawn; `draws_sizes`: two draws
            out of it bound those of a model.
        size_of_alpha: whether the sign's area is that of its pixels instead of its box.
        fractions: ranges of the share, in percent, of the source classes' pictures; one is drawn.
        colours: of polygons; empty for any with a mean of at most `brightest`.
        conditions: by kind of trigger.
        keeps: share of `fraction` by which other classes carry a single class's trigger and keep
            their label; Round 4's conditions bring their own.
        adversary: None for none.
        examples: numbers of example pictures of a class.
        layout: of its folder.
    """

    name: str
    architectures: tuple[str, ...]
    class_levels: tuple[int, ...]
    class_spread: tuple[int, int]
    organisations: tuple[str, ...]
    kinds: tuple[str, ...]
    sides: tuple[tuple[int, int], ...]
    sizes: tuple[Range, ...]
    fractions: tuple[tuple[int, int], ...]
    examples: tuple[int, ...]
    layout: Layout
    sign_areas: Range = (0.20, 0.79)
    draws_areas: bool = True
    draws_sizes: bool = False
    size_of_alpha: bool = False
    colours: tuple[tuple[int, int, int], ...] = ()
    brightest: int = 255
    conditions: tuple[tuple[str, tuple[str, ...]], ...] = ()
    keeps: float = 0.5
    adversary: AdversaryDesign | None = None

    def conditions_of(self, kind: str) -> tuple[str, ...]:
        """Conditions of triggers of a kind; "none" where the round knows none."""
        return dict(self.conditions).get(kind, ("none",))


_ROUND2_SOURCES = (ANY, "one-source", "two-sources")
_COLOURS = tuple(
    (200 * (c >> 2 & 1), 200 * (c >> 1 & 1), 200 * (c & 1)) for c in range(1, 7)
)  # neither black nor white

ROUND1 = RoundDesign(
    name="round1",
    architectures=architectures.ROUND1,
    class_levels=(5,),
    class_spread=(0, 0),
    organisations=(ANY,),
    kinds=("polygon",),
    sides=((3, 12),),
    sizes=((0.02, 0.10), (0.16, 0.24)),
    fractions=((5, 15), (45, 55)),
    examples=(100,),
    layout=Layout(
        models="models",
        is_legacy=True,
        channel_order="BGR",
        normalization="min-max",
        has_margin=False,
        trigger_name="",
        config="",
        accuracy="",
    ),
)
ROUND2 = RoundDesign(
    name="round2",
    architectures=architectures.ROUND2,
    class_levels=(10, 20),
    class_spread=(-5, 4),
    organisations=_ROUND2_SOURCES,
    kinds=("polygon", "instagram"),
    sides=((3, 12),),
    sizes=((0.02, 0.19),),
    draws_sizes=True,
    fractions=((1, 49),),
    brightest=200,
    examples=(10, 20),
    layout=Layout(),
)
# Round 2 with adversarial training and other files.
ROUND3 = replace(
    ROUND2,
    name="round3",
    adversary=AdversaryDesign(("PGD", "FBF"), (4, 8, 16), (1, 3), (2, 4, 8, 16)),
    layout=Layout(
        clean="clean_example_data",
        poisoned="poisoned_example_data",
        accuracy="clean-example-accuracy.csv",
        config="jsonpickle",
        has_logits=True,
    ),
)
ROUND4 = RoundDesign(
    name="round4",
    architectures=architectures.ROUND4,
    class_levels=(20, 40),
    class_spread=(-5, 4),
    sign_areas=(0.2, 0.4),
    draws_areas=False,
    organisations=("one2one", "pair-one2one", "one2two"),
    kinds=("polygon", "instagram"),
    sides=((3, 4), (8, 9)),
    sizes=tuple(((s - d) / 100, (s + d) / 100) for s in range(4, 10) for d in (0, 1)),
    size_of_alpha=True,
    fractions=((1, 18), (21, 38), (41, 58)),
    colours=_COLOURS,
    conditions=(
        ("polygon", ("none", "spatial", "spectral", "class")),
        ("instagram", ("none", "spectral", "class")),
    ),
    keeps=0.0,
    adversary=AdversaryDesign(("PGD", "FBF"), (4, 8, 16), (1, 3), (1, 3, 7)),
    examples=(2, 5),
    layout=Layout(
        clean="clean_example_data",
        poisoned="poisoned_example_data",
        example_name="class_{label}_trigger_{trigger}_example_{number}.png",
        trigger_name="trigger_{number}.png",
        accuracy="clean-example-accuracy.csv",
        config="jsonpickle",
        has_logits=True,
    ),
)
DESIGNS: Mapping[str, RoundDesign] = {one.name: one for one in (ROUND1, ROUND2, ROUND3, ROUND4)}
