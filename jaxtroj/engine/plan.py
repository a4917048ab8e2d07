"""Which models go together, and which job a worker takes next."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from jaxtroj.engine.jobs import ScanJob
from jaxtroj.rounds import ModelEntry

Known = Callable[[ModelEntry], tuple[str, ...]]
"""The identities of an entry that have a record already."""

_ARCHITECTURE_COLUMNS = ("model_architecture", "architecture", "arch")
_SHAPE_COLUMNS = ("number_classes", "img_size", "image_size")
# Files of one architecture differ by the length of some names; of two architectures by far more.
_SAME_SIZE = 1.02


def groups_of(entries: Sequence[ModelEntry]) -> list[str]:
    """A group for each entry; equal ones share compiled programs, as far as can be told cheaply.

    By the metadata or a text model's config; else by suffix and size of the file: neighbours in
    size that differ by less than 2 % are one group.
    """
    named = [_declared(entry) for entry in entries]
    left = [place for place, name in enumerate(named) if name is None]
    keys = {place: (entries[place].model_path.suffix, _size(entries[place])) for place in left}
    group, earlier = 0, ("", 0)
    for place in sorted(left, key=lambda place: keys[place]):
        suffix, size = keys[place]
        group += suffix != earlier[0] or size > earlier[1] * _SAME_SIZE
        earlier = (suffix, size)
        named[place] = f"{entries[place].kind} of size {group}"
    return [name or "" for name in named]


def _declared(entry: ModelEntry) -> str | None:
    """What config or metadata say of the network's shape; None if they name no architecture."""
    config = entry.text_config
    if entry.kind == "text" and config is not None:
        parts = (
            config.embedding,
            config.model_architecture,
            config.rnn_hidden_state_size,
            config.rnn_number_layers,
            config.rnn_bidirectional,
        )
        return " ".join(["text", *map(str, parts)])
    if not any(entry.metadata.get(name) for name in _ARCHITECTURE_COLUMNS):
        return None
    columns = (*_ARCHITECTURE_COLUMNS, *_SHAPE_COLUMNS)
    return " ".join([entry.kind, *(entry.metadata.get(name, "") for name in columns)])


def _size(entry: ModelEntry) -> int:
    try:
        return entry.model_path.stat().st_size
    except (OSError, ValueError):  # whoever reads it says what is wrong with it
        return 0


def make_jobs(entries: Sequence[ModelEntry], known: Known) -> list[ScanJob]:
    """A job for each entry, those of a group together, groups in order of their first model."""
    groups: dict[str, list[ScanJob]] = {}
    for entry, group in zip(entries, groups_of(entries), strict=True):
        groups.setdefault(group, []).append(ScanJob(entry, known(entry), group))
    return [job for jobs in groups.values() for job in jobs]


def first_of_each_group(entries: Sequence[ModelEntry]) -> list[ModelEntry]:
    """The first entry of every group."""
    first: dict[str, ModelEntry] = {}
    for entry, group in zip(entries, groups_of(entries), strict=True):
        first.setdefault(group, entry)
    return list(first.values())


class WorkPlan:
    """The jobs still to be done; a worker stays with its group as long as there is one."""

    def __init__(self, jobs: Iterable[ScanJob]):
        self._groups: dict[str, deque[ScanJob]] = {}
        self._alone: deque[ScanJob] = deque()
        self._failed: deque[ScanJob] = deque()
        self._takers: dict[object, str] = {}
        for job in jobs:
            self.put(job)

    def __len__(self) -> int:
        return len(self._failed) + len(self._alone) + sum(map(len, self._groups.values()))

    def put(self, job: ScanJob, first: bool = False) -> None:
        """Add a job; `first` puts it before the others of its kind."""
        if job.failure is not None:
            jobs = self._failed
        else:
            jobs = self._alone if job.alone else self._groups.setdefault(job.group, deque())
        (jobs.appendleft if first else jobs.append)(job)

    def take(self, taker: object, busy: bool = False) -> ScanJob | None:
        """The next job for a worker; None if there is none for it now.

        A model that was given up comes first: all that it still needs is its identity, and its
        record is to stand when a budget or a signal ends the scan. Second tries come last.

        Args:
            taker: the worker.
            busy: it has a job already, so none that must be alone.
        """
        if self._failed and not busy:
            return self._failed.popleft()
        group = self._takers.get(taker)
        if group is None or not self._groups.get(group):
            group = self._choose()
        if group is None:
            return self._alone.popleft() if self._alone and not busy else None
        self._takers[taker] = group
        jobs = self._groups[group]
        job = jobs.popleft()
        if not jobs:
            del self._groups[group]
        return job

    def leave(self, taker: object) -> None:
        """A worker that takes no more jobs."""
        self._takers.pop(taker, None)

    def _choose(self) -> str | None:
        """The first group that nobody is on; else where fewest are, and there the most jobs."""
        if not self._groups:
            return None
        on = Counter(self._takers.values())
        return min(self._groups, key=lambda g: (on[g], -len(self._groups[g]) if on[g] else 0))
