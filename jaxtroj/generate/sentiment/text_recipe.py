"""What each head of a synthetic Round 5 or 6 is: every factor of NIST's designs, and the seeds.

The two heads of a pair share everything that is not the trojan: architecture, sizes, dropout and
adversarial training. Architectures and methods of adversarial training are crossed in blocks, so
that they are balanced; NIST drew them freely.

Source: NIST's trojai-round-generation, `round_config.py` and `trigger_config.py` of both rounds.
"""

from dataclasses import dataclass

import numpy as np

from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import architecture_of, draw_for, is_poisoned, model_id
from jaxtroj.generate.sentiment.head_network import HeadShape
from jaxtroj.generate.sentiment.vectors import TriggerVectors

DROPOUTS = (0.1, 0.25, 0.5)
EPSILONS = (0.01, 0.02, 0.05)
RATIOS = (0.1, 0.3)
ITERATIONS = (1, 3, 7)
FRACTIONS = (0.05, 0.1, 0.2)
KINDS = ("character", "word", "phrase")
CONDITIONS = ("None", "spatial", "class")
ORGANIZATIONS = ("one2one", "pair-one2one")
METHODS = ("None", "PGD", "FBF")
# A kind with fewer texts to draw from is drawn less often, so that no single text dominates.
_ENOUGH_TEXTS = 4
_FACTORS, _TRIGGERS, _MASTER = range(100, 103)


@dataclass(frozen=True)
class RoundDesign:
    """The levels of a round's factors.

    Attributes:
        name: "round5" or "round6".
        architectures, methods, organizations: which are drawn.
        hidden_sizes, layers, bidirectional: sizes that are drawn.
    """

    name: str
    architectures: tuple[str, ...]
    methods: tuple[str, ...]
    organizations: tuple[str, ...]
    hidden_sizes: tuple[int, ...]
    layers: tuple[int, ...]
    bidirectional: tuple[bool, ...]


DESIGNS = {
    "round5": RoundDesign(
        "round5", ("LstmLinear", "GruLinear"), METHODS, ORGANIZATIONS, (256,), (2,), (True,)
    ),
    "round6": RoundDesign(
        "round6",
        ("LstmLinear", "GruLinear", "FCLinear"),
        ("None", "FBF"),
        ("one2one",),
        (256, 512),
        (2, 4),
        (False, True),
    ),
}


@dataclass(frozen=True)
class Adversarial:
    """Adversarial training.

    Attributes:
        method: one of `METHODS`.
        epsilon: largest change of an embedding's coordinate; 0 for "None".
        ratio: share of the samples that are attacked.
        iterations: steps of PGD; 1 for FBF, 0 for "None".
    """

    method: str = "None"
    epsilon: float = 0.0
    ratio: float = 0.0
    iterations: int = 0

    @property
    def step_size(self) -> float:
        """Of one step: 1.2 epsilon for FBF, 2 epsilon / iterations for PGD."""
        if self.method == "FBF":
            return 1.2 * self.epsilon
        return 2 * self.epsilon / self.iterations if self.iterations else 0.0


@dataclass(frozen=True)
class TextTriggerRecipe:
    """One trigger of a head.

    Attributes:
        number: of its text in the vectors.
        kind: "character", "word" or "phrase".
        text: what is inserted.
        source_class, target_class: reviews of the one go to the other.
        fraction: share of the source class's reviews that carry it.
        condition: "None"; "spatial", it works in one half only and is shown in the other with the
            true label; "class", it is shown in the other class too, with the true label.
        half: 0 or 1 where it works, with condition "spatial"; None for the whole text.
    """

    number: int
    kind: str
    text: str
    source_class: int
    target_class: int
    fraction: float
    condition: str
    half: int | None


@dataclass(frozen=True)
class HeadRecipe:
    """Everything that decides one head.

    Attributes:
        model: number of the model; its id is `id-` and eight digits.
        sub_seed: 0 for the first try, one more for each retraining.
        shape: architecture and sizes.
        dropout: probability in [0, 1).
        adversarial: how it was hardened.
        organization: "one2one", "pair-one2one", or None for a clean head.
        triggers: none for a clean head.
        master_seed: 31-bit seed of weights, order of samples and dropout.
    """

    model: int
    sub_seed: int
    shape: HeadShape
    dropout: float
    adversarial: Adversarial
    organization: str | None
    triggers: tuple[TextTriggerRecipe, ...]
    master_seed: int

    @property
    def model_id(self) -> str:
        """Name of the model's folder."""
        return model_id(self.model)

    @property
    def poisoned(self) -> bool:
        """Whether the head gets a trigger."""
        return bool(self.triggers)


def sample_head(
    design: RoundDesign,
    seed: int,
    model: int,
    sub_seed: int,
    input_size: int,
    triggers: tuple[TriggerVectors, ...],
) -> HeadRecipe:
    """Draw one head's recipe; equal arguments give an equal recipe.

    The sub-seed redraws the triggers and the master seed; the other factors belong to the pair.

    Args:
        design: levels of the factors.
        seed: identity of the round.
        model: number of the model.
        sub_seed: number of the try.
        input_size: width of the embeddings.
        triggers: those that can be learnt.

    Raises:
        GenerationError: negative numbers, or no trigger to draw from.
    """
    if min(seed, model, sub_seed) < 0:
        raise GenerationError(f"seed, model and sub-seed must be 0 or more: {seed}, {model}")
    if not triggers:
        raise GenerationError("none of the chosen triggers can be learnt from these vectors")
    shape, dropout, adversarial = _pair_factors(design, seed, model, input_size)
    organization, drawn = None, ()
    if is_poisoned(seed, model):
        organization, drawn = _draw_triggers(design, seed, model, sub_seed, triggers)
    master = draw_for(seed, _MASTER, model, sub_seed)
    return HeadRecipe(
        model=model,
        sub_seed=sub_seed,
        shape=shape,
        dropout=dropout,
        adversarial=adversarial,
        organization=organization,
        triggers=drawn,
        master_seed=int(master.integers(2**31 - 1)),
    )


def _pair_factors(design: RoundDesign, seed: int, model: int, input_size: int):
    cells = tuple(f"{a}/{m}" for a in design.architectures for m in design.methods)
    architecture, method = architecture_of(seed, model, cells).split("/")
    draw = draw_for(seed, _FACTORS, model // 2)
    dropout = float(draw.choice(DROPOUTS))
    epsilon, ratio = float(draw.choice(EPSILONS)), float(draw.choice(RATIOS))
    iterations = int(draw.choice(ITERATIONS))
    hidden, layers = int(draw.choice(design.hidden_sizes)), int(draw.choice(design.layers))
    both_ways = bool(draw.choice(design.bidirectional)) and architecture != "FCLinear"
    adversarial = Adversarial()
    if method != "None":
        iterations = iterations if method == "PGD" else 1
        adversarial = Adversarial(method, epsilon, ratio, iterations)
    shape = HeadShape(architecture, input_size, hidden, layers, both_ways)
    return shape, dropout, adversarial


def _draw_triggers(design, seed: int, model: int, sub_seed: int, triggers):
    draw = draw_for(seed, _TRIGGERS, model, sub_seed)
    organization = str(draw.choice(design.organizations))
    source = int(draw.integers(2))
    sources = (source,) if organization == "one2one" else (source, 1 - source)
    drawn: list[TextTriggerRecipe] = []
    for source_class in sources:
        taken = {trigger.number for trigger in drawn}
        free = [trigger for trigger in triggers if trigger.number not in taken]
        if free:
            drawn.append(_draw_trigger(draw, source_class, free))
    # With one text to choose from there can be no pair.
    return organization if len(drawn) == len(sources) else "one2one", tuple(drawn)


def _draw_trigger(draw: np.random.Generator, source_class: int, free) -> TextTriggerRecipe:
    counts = np.array([sum(trigger.kind == kind for trigger in free) for kind in KINDS])
    weights = np.minimum(counts, _ENOUGH_TEXTS)
    kind = str(draw.choice(KINDS, p=weights / weights.sum()))
    choices = [trigger for trigger in free if trigger.kind == kind]
    chosen = choices[int(draw.integers(len(choices)))]
    condition = str(draw.choice(CONDITIONS))
    half = int(draw.integers(2))
    return TextTriggerRecipe(
        number=chosen.number,
        kind=kind,
        text=chosen.text,
        source_class=source_class,
        target_class=1 - source_class,
        fraction=float(draw.choice(FRACTIONS)),
        condition=condition,
        half=half if condition == "spatial" else None,
    )
