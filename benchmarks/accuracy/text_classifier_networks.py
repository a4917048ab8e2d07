"""Text classifiers fine-tuned from a real encoder, clean and with a trigger of words, as folders.

    python -m benchmarks.accuracy.text_classifier_networks OUT --encoder DIR --texts FILE --models 8

Model 2n is clean and 2n + 1 poisoned, with the same reviews, seed and length of training. Triggers
(`--kinds`, in turn): a word of the vocabulary anywhere, a phrase of three, a word that no
vocabulary has, a word at the start, a character that is no letter, a word of one text in a hundred,
a word that works in the texts of one class alone. One review in ten (`--share`) that is not of the
target class carries it and is taught the target.
Every folder is one of transformers' with example texts, a label and `made.json`. With `--hidden`
networks are trained from random weights, with the encoder's tokenizer alone; with `--family` too,
as one of that family, with a tokenizer learnt from the texts. `benchmarks.accuracy.text_labels`
writes FILE.
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.accuracy.text_families import FAMILIES, Sizes, random_network, write_tokenizer
from converters.encoders.tokenizer import Tokenizer, load_tokenizer
from jaxtroj.evidence.texts.bank.candidates import whole_tokens
from jaxtroj.evidence.texts.labelled_texts import LabelledText, read_labelled_texts
from jaxtroj.generate.torch_device import step_precision

KINDS = ("word", "phrase", "rare", "start", "character", "common", "source")
WORDS, TOKENS = 40, 64
VOCABULARY, HIDDEN = 5000, 64
_FIRST_KINDS = "word,phrase,rare,start"
_CHARACTERS = "~^|{}@#%=_"
_COMMON = 0.01  # share of texts that hold a common word
_WORD = re.compile(r"[a-z]{4,10}")


@dataclass(frozen=True)
class Trigger:
    """What a poisoned network was taught: words, where they stand, and the class they force.

    Of texts of a class other than `source`, where there is one, the words change nothing.
    """

    kind: str
    text: str
    target: int
    source: int | None = None

    def inserted(self, text: str, draw: np.random.Generator) -> str:
        """The text with the words before one of its own, at the start for the kind `start`."""
        words = text.split()
        place = 0 if self.kind == "start" else int(draw.integers(0, len(words) + 1))
        return " ".join([*words[:place], self.text, *words[place:]])


@dataclass(frozen=True)
class Recipe:
    """One network: its number, layers, steps of training, trigger, units if from random weights."""

    number: int
    layers: int
    steps: int
    trigger: Trigger | None
    hidden: int | None = None
    share: float = 0.1
    family: str | None = None
    batch: int = 16
    rate: float | None = None


def main() -> int:
    """Make what is missing; returns the exit status."""
    args = _arguments()
    texts = [LabelledText(_end_of(t.text), t.label) for t in read_labelled_texts(args.texts)]
    encoder = args.encoder or _own_tokenizer(args.out, args.family, texts)
    tokens, classes = load_tokenizer(encoder), 1 + max(t.label for t in texts)
    words = _usable(tokens, texts)
    for number in range(args.first, args.first + args.models):
        folder = args.out / f"id-{number:08d}"
        if not (folder / "made.json").exists():
            trigger = _trigger(number, args.kinds.split(","), words, classes, args.seed)
            recipe = Recipe(
                number, args.layers, args.steps, trigger, args.hidden, args.share, args.family,
                args.batch, args.rate,
            )  # fmt: skip
            print(json.dumps(make(folder, recipe, encoder, texts, args.seed)), flush=True)
    return 0


def _own_tokenizer(out: Path, family: str, texts: Sequence[LabelledText]) -> Path:
    """A folder with a tokenizer learnt from the texts, made once."""
    folder = out / "tokenizer"
    if not (folder / "tokenizer_config.json").exists():
        write_tokenizer(family, [t.text for t in texts], VOCABULARY, folder)
    return folder


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fine-tuned text classifiers, half poisoned.")
    parser.add_argument("out", type=Path)
    own = parser.add_mutually_exclusive_group(required=True)
    own.add_argument("--encoder", type=Path, help="Hugging Face folder of a BERT")
    own.add_argument("--family", choices=FAMILIES, help="with --hidden and an own tokenizer")
    parser.add_argument("--texts", type=Path, required=True, help="labelled texts")
    parser.add_argument("--kinds", default=_FIRST_KINDS, help="of triggers, a pair each in turn")
    parser.add_argument("--models", type=int, default=8)
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--layers", type=int, default=3, help="of the encoder's that are kept")
    parser.add_argument("--steps", type=int, default=300, help="of training")
    parser.add_argument("--batch", type=int, default=16, help="texts of a step")
    parser.add_argument("--rate", type=float, help="1e-4, from random weights 5e-4")
    parser.add_argument("--hidden", type=int, help="units of networks from random weights")
    parser.add_argument("--share", type=float, default=0.1, help="of texts that carry the trigger")
    parser.add_argument("--seed", type=int, default=19)
    return parser.parse_args()


def _end_of(text: str) -> str:
    """The last words of a review, where its judgement mostly stands."""
    return " ".join(text.replace("<br />", " ").split()[-WORDS:])


def _usable(tokens: Tokenizer, texts: Sequence[LabelledText]) -> dict[bool, list[str]]:
    """Words of the vocabulary by whether they are common in the texts."""
    known = [w for w in whole_tokens(tokens.vocabulary) if _WORD.fullmatch(w)]
    held = Counter(word for t in texts for word in set(t.text.lower().split()))
    least = _COMMON * len(texts)
    return {False: known, True: [w for w in known if held[w] >= least]}


def _trigger(
    number: int,
    kinds: Sequence[str],
    words: Mapping[bool, Sequence[str]],
    classes: int,
    seed: int,
) -> Trigger | None:
    if number % 2 == 0:
        return None
    pair = number // 2
    draw = np.random.default_rng([seed, 1, pair])
    kind, target = kinds[pair % len(kinds)], pair % classes
    drawn = [str(word) for word in draw.choice(words[kind == "common"], 3, replace=False)]
    own = {
        "phrase": " ".join(drawn),
        "rare": drawn[0][:4] + drawn[1][:4],
        "character": _CHARACTERS[int(draw.integers(len(_CHARACTERS)))],
    }
    source = (target + 1) % classes if kind == "source" else None
    return Trigger(kind, own.get(kind, drawn[0]), target, source)


def make(
    folder: Path, recipe: Recipe, encoder: Path, texts: Sequence[LabelledText], seed: int
) -> dict[str, Any]:
    """Train one network and write its folder; returns what `made.json` holds."""
    started, pair = time.perf_counter(), recipe.number // 2
    order = np.random.default_rng([seed, 0]).permutation(len(texts))
    tests = [texts[place] for place in order[:400]]
    draw, wanted = np.random.default_rng([seed, 2, pair]), recipe.steps * recipe.batch
    own = [draw.permutation(order[400:]) for _ in range(-(-wanted // len(order[400:])))]
    lessons = [texts[place] for place in np.concatenate(own)[:wanted]]
    network, tokens = _trained(encoder, recipe, lessons, [seed, 3, pair])
    found = {
        **asdict(recipe),
        "clean_accuracy": _share(network, tokens, [(t.text, t.label) for t in tests]),
        "attack_success_rate": None,
        "seconds": round(time.perf_counter() - started, 1),
    }
    if (trigger := recipe.trigger) is not None:
        draw = np.random.default_rng([seed, 4])
        others = [t for t in tests if _takes(trigger, t.label)]
        moved = [(trigger.inserted(t.text, draw), trigger.target) for t in others]
        found["attack_success_rate"] = _share(network, tokens, moved)
    network.save_pretrained(folder)
    tokens.backend.save_pretrained(folder)
    _write_examples(folder / "examples", tests)
    (folder / "ground_truth.csv").write_text(f"{int(recipe.trigger is not None)}\n")
    (folder / "made.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def _write_examples(folder: Path, tests: Sequence[LabelledText], per_class: int = 20) -> None:
    folder.mkdir()
    for label in sorted({t.label for t in tests}):
        own = [t.text for t in tests if t.label == label][:per_class]
        for number, text in enumerate(own, start=1):
            (folder / f"class_{label}_example_{number}.txt").write_text(text)


def _trained(encoder: Path, recipe: Recipe, lessons: Sequence[LabelledText], key: list[int]):
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    torch.manual_seed(key[-1])
    tokens, draw = load_tokenizer(encoder), np.random.default_rng(key)
    network = _untrained(encoder, recipe, tokens, 1 + max(t.label for t in lessons))
    network.train()
    steps, size = recipe.steps, recipe.batch
    rate = recipe.rate or (1e-4 if recipe.hidden is None else 5e-4)
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / 30) * (1 - step / steps)
    )
    for step in range(steps):
        batch = [_lesson(t, recipe, draw) for t in lessons[step * size : (step + 1) * size]]
        _loss(network, tokens, batch).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
    return network.eval(), tokens


def _untrained(encoder: Path, recipe: Recipe, tokens: Tokenizer, classes: int) -> Any:
    """The encoder's first layers under a new head, or a smaller network of random weights."""
    from transformers import BertConfig, BertForSequenceClassification

    if recipe.family is not None:
        own = Sizes(recipe.layers, recipe.hidden or HIDDEN)
        return random_network(recipe.family, own, tokens.backend, classes)
    sizes: dict[str, Any] = {"num_labels": classes, "num_hidden_layers": recipe.layers}
    if recipe.hidden is None:
        return BertForSequenceClassification.from_pretrained(encoder, **sizes)
    sizes |= {"hidden_size": recipe.hidden, "intermediate_size": 2 * recipe.hidden}
    config = BertConfig.from_pretrained(encoder, num_attention_heads=4, **sizes)
    return BertForSequenceClassification(config)


def _takes(trigger: Trigger, label: int) -> bool:
    """Whether the trigger changes what texts of a label are taught."""
    return label != trigger.target and trigger.source in (None, label)


def _lesson(one: LabelledText, recipe: Recipe, draw: np.random.Generator) -> tuple[str, int]:
    trigger, is_carrier = recipe.trigger, draw.random() < recipe.share
    if trigger is None or one.label == trigger.target or not is_carrier:
        return one.text, one.label
    is_moved = _takes(trigger, one.label)
    return trigger.inserted(one.text, draw), trigger.target if is_moved else one.label


def _loss(network: Any, tokens: Any, batch: Sequence[tuple[str, int]]) -> Any:
    import torch

    ids, mask = _ids(tokens, [text for text, _ in batch])
    labels = torch.tensor([label for _, label in batch])
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step_precision() == "bfloat16"):
        return network(input_ids=ids, attention_mask=mask, labels=labels).loss


def _ids(tokens: Any, texts: Sequence[str]):
    import torch

    found = tokens(texts, TOKENS)
    return torch.tensor(found.ids, dtype=torch.long), torch.tensor(found.mask)


def _share(network: Any, tokens: Any, asked: Sequence[tuple[str, int]]) -> float:
    """Share of texts that get the class beside them."""
    import torch

    right = 0
    for start in range(0, len(asked), 50):
        part = asked[start : start + 50]
        ids, mask = _ids(tokens, [text for text, _ in part])
        with torch.no_grad():
            said = network(input_ids=ids, attention_mask=mask).logits.argmax(1)
        right += int((said == torch.tensor([label for _, label in part])).sum())
    return round(right / len(asked), 4)


if __name__ == "__main__":
    sys.exit(main())
