"""The driver of all generated rounds: which models to make, tries, what is written, resume.

A round is a value with the attributes and methods of `Round`; `make_round` owns the only loop. The
models come in pairs that share everything but the trojan. The poisoned one is trained first, and
its record goes to the clean one, which is trained for at least as long. A training that falls short
is repeated with the next sub-seed; after some tries the pair is given up.

A model's folder appears under its name when it is complete, so a killed run goes on where it was.
The tables and manifest.json are rebuilt from the records while models are made, and at the end.
Processes with different shards can work on one folder at once; a second one with the same shard is
refused, since it would train every model a second time.
"""

import json
from collections import defaultdict, deque
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from converters.files import write_atomic
from jaxtroj.errors import GenerationError
from jaxtroj.generate.model_ids import is_poisoned, model_id, partner, poisoned_first
from jaxtroj.generate.round_folder import (
    MANIFEST,
    RECORD,
    claim,
    complete_or_absent,
    hold_shard,
    hold_tables,
    read_record,
    record_bytes,
    records_of,
)

Record = dict[str, Any]
"""How a model was made, as its generation.json says it."""


@dataclass(frozen=True)
class Event:
    """What just happened to a model.

    Attributes:
        model: its number.
        kind: "kept" (was there), "started", "warm start", "checked", "rejected", "written" or
            "failed".
        text: one sentence for people.
        step: training steps so far.
    """

    model: int
    kind: str
    text: str
    step: int = 0


@dataclass(frozen=True)
class Try:
    """A training to do.

    Attributes:
        model: number of the model.
        sub_seed: 0 for the first try, one more for each retraining.
        partner: record of the poisoned partner; None for a poisoned model.
    """

    model: int
    sub_seed: int = 0
    partner: Record | None = None


@dataclass(frozen=True)
class TrainingOutcome:
    """A finished training.

    Attributes:
        done: which one.
        accepted: whether it is good enough to be written.
        attempt: what the record says about this try; plain values.
        text: what was reached, for people.
        steps: how long it was trained.
        trained: whatever `Round.fill` needs.
    """

    done: Try
    accepted: bool
    attempt: Record
    text: str
    steps: int
    trained: Any


@dataclass(frozen=True)
class RoundPlan:
    """The plain values of a round.

    Attributes:
        name: of the round, as in `jaxtroj generate NAME`.
        version: of its files.
        seed: identity of the round, 0 or more.
        pairs: pairs to make, in this order: pair n are the models 2 n and 2 n + 1.
        most_tries: trainings of a model before its pair is given up.
        identity: entries of the manifest that must agree for a run to go on in a folder; no paths
            and no number of models.
        models: folder of the models inside the round's folder.
        ordered: names of objects in the identity's `settings` whose order counts as well.
        remembers_failures: whether the tries of a pair that was given up are kept in `failed/` and
            not repeated by the next run.
        collect_every: finished trainings between two rebuilds of the tables.
    """

    name: str
    version: int
    seed: int
    pairs: tuple[int, ...]
    most_tries: int
    identity: Mapping[str, Any]
    models: str = "."
    ordered: tuple[str, ...] = ()
    remembers_failures: bool = False
    collect_every: int = 1


class Round(Protocol):
    """What a kind of round brings; see docs/adding-a-round.md."""

    def plan(self) -> RoundPlan:
        """The plain values; asked once."""
        ...

    def train(self, tries: deque[Try], out: Path) -> Iterator[Event | TrainingOutcome]:
        """Do the trainings, each once, and end when `tries` is empty.

        After an outcome the driver puts what follows from it (the partner, another try) at the left
        of `tries`; a round that trains many models at once may take several before it answers.
        `out` is the folder of the round, for what its models start from.
        """
        ...

    def fill(self, folder: Path, outcome: TrainingOutcome, tries: list[Record]) -> Record:
        """Write the files of an accepted model, but its record and ground truth; its record."""
        ...

    def tables(self, records: list[Record]) -> Mapping[str, bytes]:
        """Files of the round's folder by name, such as METADATA.csv, from all records."""
        ...

    def manifest(self, out: Path, records: list[Record]) -> Mapping[str, Any]:
        """What manifest.json says besides the identity."""
        ...


def make_round(out: Path, this: Round, shard: tuple[int, int] = (0, 1)) -> Iterator[Event]:
    """Make the models that are not there yet, yielding what happens.

    Args:
        out: folder of the round; made if absent.
        this: what to make.
        shard: `(i, n)` makes only the i-th of n parts, 0 <= i < n, pairs together; processes with
            different i can work on one folder at once.

    Raises:
        GenerationError: the folder holds something else, or a round of other settings; or another
            process makes the same part.
        OSError: the folder cannot be written.
    """
    run = _Making(out, this)
    run.begin()
    with hold_shard(out, shard):
        yield from _made(run, shard)


def _made(run: "_Making", shard: tuple[int, int]) -> Iterator[Event]:
    """The only loop: every try of the models that are not there."""
    plan = run.plan
    tries: deque[Try] = deque()
    for pair in plan.pairs[shard[0] :: shard[1]]:
        tries.extend((yield from run.missing(poisoned_first(plan.seed, pair)[0], None)))
    finished = 0
    for event in run.this.train(tries, run.out):
        if isinstance(event, Event):
            yield event
            continue
        follows = yield from run.finish(event)
        tries.extendleft(reversed(follows))
        finished += 1
        if finished % plan.collect_every == 0:
            run.collect()
    run.collect()


class _Making:
    """Models of one run: which are missing, and what becomes of a training."""

    def __init__(self, out: Path, this: Round) -> None:
        self.out, self.this, self.plan = out, this, this.plan()
        self.tries: defaultdict[int, list[Record]] = defaultdict(list)

    def begin(self) -> None:
        """Claim the folder; of parts that start at once the first says whose settings it has."""
        self._claim()  # makes the folder, and leaves no lock in another's
        with hold_tables(self.out):
            if self._claim():
                self._write_tables()

    def _claim(self) -> bool:
        plan = self.plan
        return claim(self.out, _generator(plan) | dict(plan.identity), plan.ordered)

    def missing(self, model: int, pair: Record | None) -> Generator[Event, None, list[Try]]:
        """What is to be trained of a model or, where that is there, of its partner.

        Args:
            model: its number.
            pair: record of its poisoned partner; None for a poisoned model.
        """
        record = read_record(self.out / self.plan.models / model_id(model))
        if record is not None:
            yield Event(model, "kept", "already there")
            return (yield from self.missing(partner(model), record)) if pair is None else []
        if self._failure(model).exists():
            yield from self._give_up(model, "given up in an earlier run; see failed/")
            return []
        return [Try(model, 0, pair)]

    def finish(self, outcome: TrainingOutcome) -> Generator[Event, None, list[Try]]:
        """Write or reject a trained model; what is to be trained because of it."""
        done, tries = outcome.done, self.tries[outcome.done.model]
        tries.append(outcome.attempt)
        if outcome.accepted:
            record = self._write(outcome, tries)
            yield Event(done.model, "written", outcome.text, outcome.steps)
            if done.partner is None:
                return (yield from self.missing(partner(done.model), record))
            return []
        yield Event(done.model, "rejected", outcome.text, outcome.steps)
        if len(tries) < self.plan.most_tries:
            return [replace(done, sub_seed=len(tries))]
        if self.plan.remembers_failures:
            failure = {"model_name": model_id(done.model), "tries": tries}
            write_atomic(self._failure(done.model), json.dumps(failure, indent=2).encode())
        reason = f"no accepted training in {len(tries)} tries"
        yield from self._give_up(done.model, reason)
        return []

    def collect(self) -> None:
        """Rebuild the tables and manifest.json from the models that are there.

        Raises GenerationError where the folder has become another round's in the meantime.
        """
        with hold_tables(self.out):
            self._claim()
            self._write_tables()

    def _write_tables(self) -> None:
        out, plan = self.out, self.plan
        records = records_of(out / plan.models)
        start = _generator(plan) | {"version": plan.version}
        manifest = start | dict(plan.identity) | dict(self.this.manifest(out, records))
        # First: a folder with tables and no manifest would be nobody's.
        write_atomic(out / MANIFEST, record_bytes(manifest))
        for name, content in self.this.tables(records).items():
            write_atomic(out / name, content)

    def _write(self, outcome: TrainingOutcome, tries: list[Record]) -> Record:
        model = outcome.done.model
        with complete_or_absent(self.out / self.plan.models / model_id(model)) as part:
            truth = b"1" if outcome.done.partner is None else b"0"
            write_atomic(part / "ground_truth.csv", truth)
            record = self.this.fill(part, outcome, tries)
            write_atomic(part / RECORD, record_bytes(record))
        return record

    def _give_up(self, model: int, reason: str) -> Iterator[Event]:
        yield Event(model, "failed", reason)
        other = partner(model)
        if is_poisoned(self.plan.seed, model):
            yield Event(other, "failed", f"its poisoned partner {model_id(model)} is missing")

    def _failure(self, model: int) -> Path:
        return self.out / "failed" / f"{model_id(model)}.json"


def _generator(plan: RoundPlan) -> Record:
    return {"generator": f"jaxtroj generate {plan.name}"}


def plain(settings: Any) -> Record:
    """The values of a dataclass as JSON gives them back, without `models`: a round can grow."""
    values = asdict(settings)
    del values["models"]
    return json.loads(json.dumps(values))


def check_sizes(settings: Any, counts: Mapping[str, int], shard: tuple[int, int]) -> list[str]:
    """What is wrong with the numbers of a round, in words.

    Args:
        settings: has `seed` and `models`.
        counts: numbers that must be at least 1, by name.
        shard: see `make_round`.
    """
    wrong = [f"{name} must be at least 1, got {n}" for name, n in counts.items() if n < 1]
    if settings.models < 2 or settings.models % 2:
        wrong.append(f"models must be even, half of them poisoned; got {settings.models}")
    if not 0 <= shard[0] < shard[1]:
        wrong.append(f"a shard i/n needs 0 <= i < n, got {shard[0]}/{shard[1]}")
    if settings.seed < 0:
        wrong.append(f"seed must be 0 or more, got {settings.seed}")
    return wrong


def refuse(wrong: list[str]) -> None:
    """Raise a GenerationError of these sentences, if there are any."""
    if wrong:
        raise GenerationError("; ".join(wrong))
