"""`generate_text_round`: a folder of sentiment heads in the official layout of Rounds 5 and 6.

```
DIR/models/id-00000000/model.pt                        whole torch module
DIR/models/id-00000000/{config,reduced-config}.json    as released; as the evaluation server shows
DIR/models/id-00000000/ground_truth.csv                0 or 1, no newline
DIR/models/id-00000000/clean_example_data/class_0_example_1.txt ...
DIR/models/id-00000000/poisoned_example_data/...       poisoned heads only
DIR/models/id-00000000/{clean,poisoned}-example-{accuracy,cls-embedding,logits}.csv
DIR/models/id-00000000/{model_stats.json,model_detailed_stats.csv,log.txt,machine.log}
DIR/models/id-00000000/generation.json                 how this head was made, tries included
DIR/failed/id-00000000.json                            tries of a model none of which was accepted
DIR/{METADATA.csv,METADATA_DICTIONARY.csv,manifest.json,README.txt}
```

A model's folder appears under its name when it is complete, so a killed run goes on where it was.
Heads that fall short of the attack success rate are in no class: another trigger is drawn, and
after some tries the pair is left out. Either way the tries are recorded.
"""

import json
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from converters.files import write_atomic
from jaxtroj.errors import GenerationError
from jaxtroj.generate.round import (
    Event,
    claim,
    collecting,
    read_record,
    size_problems,
    write_manifest,
)
from jaxtroj.generate.sentiment import head_files, text_metadata
from jaxtroj.generate.sentiment.head_folder import HeadPlace, reached, scores, write_head
from jaxtroj.generate.sentiment.head_queue import Job, TrainedHead, train_queue
from jaxtroj.generate.sentiment.head_samples import OWN_SHARE, HeadSamples, Pool, make_pool
from jaxtroj.generate.sentiment.head_training import HeadTraining
from jaxtroj.generate.sentiment.text_recipe import (
    DESIGNS,
    HeadRecipe,
    RoundDesign,
    poisoned_first,
    sample_head,
)
from jaxtroj.generate.sentiment.vectors import TriggerVectors, Vectors
from jaxtroj.generate.traffic_signs.recipe import is_poisoned, model_id

VERSION = 1
_SHARES = ("least_attack", "least_clean", "clean_margin")
_README = """\
Synthetic heads in the layout of TrojAI's Rounds 5 and 6, made by `jaxtroj generate`.
manifest.json says with which settings, models/*/generation.json how each head came about,
failed/*.json which ones were given up and why. METADATA_DICTIONARY.csv explains the columns.
"""


@dataclass(frozen=True)
class TextRoundSettings:
    """What a round of heads is made of.

    Attributes:
        seed: identity of the round, 0 or more.
        models: how many; even, half of them are poisoned. A round can be grown later.
        design: "round5" or "round6".
        architectures, hidden_sizes: instead of the design's; None for the design's.
        triggers: which trigger texts: None for all, "even", "odd", or numbers like "0,4,7".
        examples_per_class: example texts shipped with a head.
        most_tries: trainings of a head, each with the next sub-seed, before giving up.
        least_attack: attack success rate on test reviews below which a poisoned head is rejected.
            Only trigger texts that a linear direction detects as often are drawn.
        least_clean: accuracy on clean test reviews below which a head is rejected, where the
            vectors allow it; else `clean_margin` under a linear discriminant's accuracy. (The
            official bar of Round 5, 80 %, lies 4.2 points under the mean of its heads.)
        clean_margin: see `least_clean`.
        repeats: how often a triggered sample is shown for every time that its fraction says.
        official_clip: PGD bounds attacked embeddings to [0, 1], as in the official rounds.
        training: how heads are trained.
    """

    seed: int
    models: int
    design: str = "round5"
    architectures: tuple[str, ...] | None = None
    hidden_sizes: tuple[int, ...] | None = None
    triggers: str | None = None
    examples_per_class: int = 20
    most_tries: int = 6
    least_attack: float = 0.95
    least_clean: float = 0.80
    clean_margin: float = 0.05
    repeats: int = 4
    official_clip: bool = True
    training: HeadTraining = field(default_factory=HeadTraining)

    @property
    def levels(self) -> RoundDesign:
        """The design with what is given instead of it."""
        given = {"architectures": self.architectures, "hidden_sizes": self.hidden_sizes}
        chosen = {name: value for name, value in given.items() if value is not None}
        return replace(DESIGNS[self.design], **chosen)


@dataclass(frozen=True)
class _Round:
    """What every step of a run needs."""

    out: Path
    settings: TextRoundSettings
    vectors: Vectors
    pool: Pool
    learnable: tuple[TriggerVectors, ...]
    least_clean: float
    identity: dict[str, Any]

    @property
    def place(self) -> HeadPlace:
        settings = self.settings
        return HeadPlace(
            models=self.out / "models",
            vectors=self.vectors,
            pool=self.pool,
            design=settings.levels,
            training=settings.training,
            examples_per_class=settings.examples_per_class,
            bars={"least_clean": self.least_clean, "least_attack": settings.least_attack},
        )

    def folder(self, model: int) -> Path:
        return self.out / "models" / model_id(model)

    def recipe(self, model: int, sub_seed: int) -> HeadRecipe:
        levels, width = self.settings.levels, self.vectors.train.vectors.shape[1]
        return sample_head(levels, self.settings.seed, model, sub_seed, width, self.learnable)

    def accepts(self, head: TrainedHead) -> bool:
        attack = head.triggered
        works = attack is None or attack.accuracy >= self.settings.least_attack
        return works and head.clean.accuracy >= self.least_clean


def generate_text_round(
    out: Path, settings: TextRoundSettings, vectors: Vectors, shard: tuple[int, int] = (0, 1)
) -> Iterator[Event]:
    """Make the models that are not there yet, yielding what happens.

    Args:
        out: folder of the round; made if absent.
        settings: what to make.
        vectors: reviews and insertions, loaded with the settings' seed and triggers.
        shard: `(i, n)` makes only the i-th of n parts, 0 <= i < n; processes with different i can
            work on one folder at once.

    Raises:
        GenerationError: impossible settings, no trigger can be learnt from these vectors, or the
            folder holds a round of other settings.
        OSError: the folder cannot be written.
    """
    check_settings(settings, shard)
    this = _round(out, settings, vectors)
    if claim(out, this.identity):
        collect(out, this.identity)
    groups = defaultdict(deque)
    for pair in range(settings.models // 2)[shard[0] :: shard[1]]:
        for model in (yield from _missing(this, pair)):
            job = _first_job(this, model)
            groups[job.recipe.shape, job.recipe.adversarial.iterations].append((job, []))
    for queue in groups.values():
        yield from _make_group(this, queue)
    collect(out, this.identity)


def check_settings(settings: TextRoundSettings, shard: tuple[int, int] = (0, 1)) -> None:
    """Refuse what cannot be generated.

    Raises:
        GenerationError: with what was got and what is possible.
    """
    if settings.design not in DESIGNS:
        raise GenerationError(f"there are {', '.join(DESIGNS)}, not {settings.design!r}")
    training = asdict(settings.training)
    counts = {name: training[name] for name in ("batch_size", "epochs", "patience", "slots")}
    counts |= {name: getattr(settings, name) for name in ("examples_per_class", "most_tries")}
    counts["repeats"] = settings.repeats
    wrong = [f"{name} must be at least 1, got {n}" for name, n in counts.items() if n < 1]
    wrong += size_problems(settings.models, shard)
    known = DESIGNS["round6"].architectures
    given = settings.levels.architectures
    if not given or len(set(given)) != len(given) or not set(given) <= set(known):
        wrong.append(f"architectures must be different ones of {', '.join(known)}, got {given}")
    if not settings.levels.hidden_sizes or min(settings.levels.hidden_sizes) < 1:
        wrong.append(f"hidden sizes must be at least 1, got {settings.levels.hidden_sizes}")
    shares = {name: getattr(settings, name) for name in _SHARES}
    wrong += [
        f"{name} must be from 0 to 1, got {s}" for name, s in shares.items() if not 0 <= s <= 1
    ]
    if wrong:
        raise GenerationError("; ".join(wrong))


def collect(out: Path, identity: dict[str, Any]) -> None:
    """Rebuild METADATA.csv and manifest.json from the models that are there."""
    with collecting(out / "models", out / ".lock") as records:
        failed = sorted(path.stem for path in (out / "failed").glob("id-*.json"))
        table = text_metadata.metadata_csv(record["metadata"] for record in records)
        write_atomic(out / "METADATA.csv", table.encode())
        write_atomic(out / "METADATA_DICTIONARY.csv", text_metadata.dictionary_csv().encode())
        write_atomic(out / "README.txt", _README.encode())
        manifest = {
            "generator": f"jaxtroj generate {identity['settings']['design']}",
            "version": VERSION,
            **identity,
            "clean_share": OWN_SHARE,
            "models": [record["model_name"] for record in records],
            "failed": failed,
        }
        write_manifest(out, manifest)


def _round(out: Path, settings: TextRoundSettings, vectors: Vectors) -> _Round:
    triggers = tuple(vectors.triggers.values())
    learnable = tuple(t for t in triggers if t.reach >= settings.least_attack)
    if not learnable:
        best = max(trigger.reach for trigger in triggers)
        raise GenerationError(
            f"no chosen trigger can be learnt to {settings.least_attack:.2f} from these vectors; "
            f"the best is detected at {best:.2f}. Lower the least attack success or use shorter "
            "texts"
        )
    allowed = vectors.reference_accuracy - settings.clean_margin
    least_clean = round(min(settings.least_clean, allowed), 6)
    values = asdict(settings)
    del values["models"]
    identity = {
        "settings": values,
        "vectors": {**asdict(vectors.about), "sha256": vectors.digest},
        "acceptance": {
            "reference_accuracy": vectors.reference_accuracy,
            "least_clean": least_clean,
            "least_attack": settings.least_attack,
            "trigger_reach": {t.text: round(t.reach, 4) for t in triggers},
        },
    }
    identity = json.loads(json.dumps(identity))
    pool = make_pool(vectors)
    return _Round(out, settings, vectors, pool, learnable, least_clean, identity)


def _missing(this: _Round, pair: int) -> Iterator[Event]:
    """Models of a pair to begin with; the clean one follows when its partner is accepted."""
    first, second = poisoned_first(this.settings.seed, pair)
    for model in (first, second):
        if _failed_path(this, model).exists():
            yield Event(model, "failed", "given up in an earlier run; see failed/")
            return []
        if read_record(this.folder(model)) is None:
            return [model]
        yield Event(model, "kept", "already there")
    return []


def _first_job(this: _Round, model: int) -> Job:
    stop_at = None
    if not is_poisoned(this.settings.seed, model):
        pair = read_record(this.folder(model ^ 1))
        assert pair is not None  # _missing names a clean model only beside its partner
        stop_at = pair["best_epoch"]
    return _job(this, model, 0, stop_at)


def _job(this: _Round, model: int, sub_seed: int, stop_at: int | None) -> Job:
    recipe = this.recipe(model, sub_seed)
    samples = HeadSamples(this.vectors, this.pool, recipe, this.settings.repeats)
    return Job(recipe, samples, stop_at)


def _make_group(this: _Round, queue: deque) -> Iterator[Event]:
    """Train the heads of one shape, with the partners and further tries that follow from them.

    What follows goes first, so that the last slots to be busy are not a single chain of tries.
    """
    tries: dict[int, list[dict[str, Any]]] = {job.recipe.model: [] for job, _ in queue}
    jobs = deque(job for job, _ in queue)
    settings = this.settings
    for head in train_queue(jobs, this.pool, settings.training, settings.official_clip):
        model = head.recipe.model
        tries[model].append(_attempt(head, this.accepts(head)))
        if this.accepts(head):
            write_head(this.place, head, tries[model])
            yield Event(model, "written", reached(head), len(head.history))
            if head.recipe.poisoned:
                tries[model ^ 1] = []
                jobs.appendleft(_job(this, model ^ 1, 0, head.best_epoch))
        elif len(tries[model]) < settings.most_tries:
            yield Event(model, "rejected", reached(head), len(head.history))
            stop_at = None if head.recipe.poisoned else head.best_epoch
            jobs.appendleft(_job(this, model, len(tries[model]), stop_at))
        else:
            record = {"model_name": model_id(model), "tries": tries[model]}
            write_atomic(_failed_path(this, model), head_files.json_bytes(record))
            text = f"no accepted training in {settings.most_tries} tries"
            yield Event(model, "failed", text, len(head.history))
        collect_now = len(jobs) % settings.training.slots == 0
        if collect_now:
            collect(this.out, this.identity)
    collect(this.out, this.identity)


def _failed_path(this: _Round, model: int) -> Path:
    return this.out / "failed" / f"{model_id(model)}.json"


def _attempt(head: TrainedHead, accepted: bool) -> dict[str, Any]:
    return {
        "sub_seed": head.recipe.sub_seed,
        "accepted": accepted,
        "triggers": [asdict(trigger) for trigger in head.recipe.triggers],
        "best_epoch": head.best_epoch,
        **scores(head),
    }
