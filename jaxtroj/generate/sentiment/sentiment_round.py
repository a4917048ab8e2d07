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

Heads that fall short of the attack success rate are in no class: another trigger is drawn, and
after some tries the pair is left out. Either way the tries are recorded.
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jaxtroj.errors import GenerationError
from jaxtroj.generate.round import Event, Record, RoundPlan, TrainingOutcome, Try, make_round, plain
from jaxtroj.generate.round_folder import csv_bytes
from jaxtroj.generate.sentiment import text_metadata
from jaxtroj.generate.sentiment.head_folder import HeadPlace, fill_head, reached, scores
from jaxtroj.generate.sentiment.head_queue import HeadJob, TrainedHead, train_queue
from jaxtroj.generate.sentiment.head_samples import OWN_SHARE, HeadSamples, Pool, make_pool
from jaxtroj.generate.sentiment.settings import TextRoundSettings, check_settings
from jaxtroj.generate.sentiment.text_recipe import (
    HeadRecipe,
    sample_head,
)
from jaxtroj.generate.sentiment.vectors import TriggerVectors, Vectors

_README = """\
Synthetic heads in the layout of TrojAI's Rounds 5 and 6, made by `jaxtroj generate`.
manifest.json says with which settings, models/*/generation.json how each head came about,
failed/*.json which ones were given up and why. METADATA_DICTIONARY.csv explains the columns.
"""


def generate_text_round(
    out: Path, settings: TextRoundSettings, vectors: Vectors, shard: tuple[int, int] = (0, 1)
) -> Iterator[Event]:
    """Make the models that are not there yet, yielding what happens; see `make_round`.

    Args:
        out: folder of the round; made if absent.
        settings: what to make.
        vectors: reviews and insertions, loaded with the settings' seed and triggers.
        shard: see `make_round`.

    Raises:
        GenerationError: impossible settings, no trigger can be learnt from these vectors, or the
            folder holds a round of other settings.
        OSError: the folder cannot be written.
    """
    check_settings(settings, shard)
    learnable = _learnable(settings, vectors)
    this = SentimentRound(settings, vectors, make_pool(vectors), learnable)
    return make_round(out, this, shard)


def _learnable(settings: TextRoundSettings, vectors: Vectors) -> tuple[TriggerVectors, ...]:
    triggers = tuple(vectors.triggers.values())
    learnable = tuple(t for t in triggers if t.reach >= settings.least_attack)
    if not learnable:
        best = max(trigger.reach for trigger in triggers)
        raise GenerationError(
            f"no chosen trigger can be learnt to {settings.least_attack:.2f} from these vectors; "
            f"the best is detected at {best:.2f}. Lower the least attack success or use shorter "
            "texts"
        )
    return learnable


@dataclass(frozen=True)
class SentimentRound:
    """A round of sentiment heads; see `jaxtroj.generate.round.Round`.

    Attributes:
        settings: what to make.
        vectors, pool: what heads see.
        learnable: triggers that are drawn.
    """

    settings: TextRoundSettings
    vectors: Vectors
    pool: Pool
    learnable: tuple[TriggerVectors, ...]

    def plan(self) -> RoundPlan:
        settings = self.settings
        return RoundPlan(
            name=settings.design,
            version=1,
            seed=settings.seed,
            pairs=tuple(range(settings.models // 2)),
            most_tries=settings.most_tries,
            identity=self._identity(),
            models="models",
            remembers_failures=True,
            collect_every=settings.training.slots,
        )

    @cached_property
    def least_clean(self) -> float:
        """Accuracy on clean test reviews below which a head is rejected."""
        allowed = self.vectors.reference_accuracy - self.settings.clean_margin
        return round(min(self.settings.least_clean, allowed), 6)

    def _identity(self) -> Record:
        reach = {t.text: round(t.reach, 4) for t in self.vectors.triggers.values()}
        return {
            "settings": plain(self.settings),
            "vectors": {**asdict(self.vectors.about), "sha256": self.vectors.digest},
            "acceptance": {
                "reference_accuracy": self.vectors.reference_accuracy,
                "least_clean": self.least_clean,
                "least_attack": self.settings.least_attack,
                "trigger_reach": reach,
            },
        }

    def train(self, tries: deque[Try], out: Path) -> Iterator[Event | TrainingOutcome]:
        groups: defaultdict[Any, deque[HeadJob]] = defaultdict(deque)
        asked: dict[int, Try] = {}
        for job in self._jobs(tries, asked):
            groups[job.recipe.shape, job.recipe.adversarial.iterations].append(job)
        settings = self.settings
        for jobs in groups.values():
            for head in train_queue(jobs, self.pool, settings.training, settings.official_clip):
                yield self._outcome(asked[head.recipe.model], head)
                # What follows has the same shape. It goes first, so that the last slots to be busy
                # are not a single chain of tries.
                jobs.extendleft(reversed(self._jobs(tries, asked)))

    def _jobs(self, tries: deque[Try], asked: dict[int, Try]) -> list[HeadJob]:
        """Take all that is to be done, and keep it in `asked` by model."""
        taken = [tries.popleft() for _ in range(len(tries))]
        asked.update({one.model: one for one in taken})
        return [self._job(one) for one in taken]

    def _job(self, one: Try) -> HeadJob:
        recipe = self.recipe(one.model, one.sub_seed)
        samples = HeadSamples(self.vectors, self.pool, recipe, self.settings.repeats)
        stop_at = None if one.partner is None else one.partner["best_epoch"]
        return HeadJob(recipe, samples, stop_at)

    def recipe(self, model: int, sub_seed: int) -> HeadRecipe:
        """What a model is."""
        levels, width = self.settings.levels, self.vectors.train.vectors.shape[1]
        return sample_head(levels, self.settings.seed, model, sub_seed, width, self.learnable)

    def _outcome(self, one: Try, head: TrainedHead) -> TrainingOutcome:
        attack = head.triggered
        works = attack is None or attack.accuracy >= self.settings.least_attack
        good = works and head.clean.accuracy >= self.least_clean
        attempt = {
            "sub_seed": one.sub_seed,
            "accepted": good,
            "triggers": [asdict(trigger) for trigger in head.recipe.triggers],
            "best_epoch": head.best_epoch,
            **scores(head),
        }
        return TrainingOutcome(one, good, attempt, reached(head), len(head.history), head)

    def fill(self, folder: Path, outcome: TrainingOutcome, tries: list[Record]) -> Record:
        settings = self.settings
        place = HeadPlace(
            vectors=self.vectors,
            pool=self.pool,
            design=settings.levels,
            training=settings.training,
            examples_per_class=settings.examples_per_class,
            bars={"least_clean": self.least_clean, "least_attack": settings.least_attack},
        )
        return fill_head(folder, place, outcome.trained, tries)

    def tables(self, records: list[Record]) -> dict[str, bytes]:
        rows = [record["metadata"] for record in records]
        return {
            "METADATA.csv": csv_bytes(text_metadata.COLUMNS, rows),
            "METADATA_DICTIONARY.csv": text_metadata.dictionary_csv().encode(),
            "README.txt": _README.encode(),
        }

    def manifest(self, out: Path, records: list[Record]) -> Record:
        return {
            "clean_share": OWN_SHARE,
            "models": [record["model_name"] for record in records],
            "failed": sorted(path.stem for path in (out / "failed").glob("id-*.json")),
        }
