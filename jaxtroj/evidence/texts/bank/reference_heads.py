"""Clean heads kept with a bank, so that a scan can ask what heads without a trojan do.

```
BANK/references/000/{config.json,params.safetensors}   Flax checkpoints
BANK/references/000/examples.npy                        vectors of its clean texts, float32 [n, d]
BANK/references.json                                    where each comes from; written last
```
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice, zip_longest
from pathlib import Path

import numpy as np

from converters import open_artifact
from converters.checkpoint import CONFIG, load_checkpoint, save_checkpoint
from converters.conversion import convert
from converters.errors import ConverterError, LoadError, safe_repr
from converters.families.folding import single_step
from converters.files import read_json, write_atomic
from converters.model import Model
from jaxtroj.errors import ExamplesError, StoreError, UsageError
from jaxtroj.evidence.texts.bank.build import Embed
from jaxtroj.evidence.texts.bank.contents import FOLDER
from jaxtroj.evidence.texts.bank.example_vectors import AGAIN, read_examples, write_examples
from jaxtroj.evidence.texts.bank.origin import MANIFEST, is_of, named_by
from jaxtroj.evidence.texts.bank.store import Bank, is_usual, open_bank
from jaxtroj.evidence.texts.references import head_key
from jaxtroj.rounds.layout import ModelEntry, iter_models
from jaxtroj.rounds.places import some_of
from jaxtroj.rounds.text_examples import load_text_examples

VERSION = 2
# Clean heads that are opened for every one that is kept, to find different architectures.
_READ = 10
# Examples of each class that are kept of a head, as many as Round 5 shipped.
_PER_CLASS = 20


@dataclass(frozen=True)
class ReferenceHead:
    """Where a reference comes from.

    Attributes:
      model: its name in the dataset.
      architecture: TrojAI's name.
      sha256: of its file.
      embedding: family of the encoder that it stands on, as its config.json names it.
      flavor: pretrained weights of this encoder; None where its config.json does not say.
    """

    model: str
    architecture: str
    sha256: str
    embedding: str | None = None
    flavor: str | None = None


@dataclass(frozen=True)
class CleanHead:
    """A reference one by one.

    Attributes:
      model: with what acts on one step only.
      examples: vectors of its own clean texts, float32 `[n, d]`.
    """

    model: Model
    examples: np.ndarray


@dataclass(frozen=True)
class _Opened:
    head: ReferenceHead
    clean: CleanHead

    @property
    def model(self) -> Model:
        return self.clean.model


def copy_references(
    dataset: Path,
    folder: Path,
    encoder: str,
    count: int,
    embed: Embed,
    note: Callable[[str], None] = lambda sentence: None,
) -> tuple[ReferenceHead, ...]:
    """Copy clean heads of a labelled dataset into a bank's folder, spread over architectures.

    Which heads are taken follows from their names and what they are, not from their order.

    Args:
      dataset: a round's folder with labels.
      folder: of a bank.
      encoder: architecture of the bank's encoder, such as "bert"; heads whose config names another
        encoder or another pooling are left out, and those of other classes or weights of the
        encoder than most.
      count: how many, at least 1; fewer where the dataset has no more.
      embed: texts to vectors, for heads whose examples come without.
      note: told in a sentence of heads that are left out, since they compute what another does: a
        head that is counted several times would make the clean heads look alike.

    Raises:
      DatasetError: the dataset cannot be read.
      StoreError: the folder holds other references, links in their place, or no bank.
      UsageError: no clean head of the dataset fits the bank.
    """
    bank = open_bank(folder)
    entries = [entry for entry in iter_models(dataset) if _is_wanted(entry, encoder, bank)]
    entries.sort(key=lambda entry: hashlib.sha256(entry.model_id.encode()).digest())
    copies: list[str] = []
    distinct = _distinct(_opened(entries, bank.plan.width, embed), copies)
    opened = _alike(list(islice(distinct, _READ * count)))
    if copies:
        note(f"{len(copies)} clean heads are copies of others and left out: {some_of(copies)}")
    chosen = _spread(opened, (lambda o: o.model.architecture, lambda o: o.model.config))[:count]
    if not chosen:
        raise UsageError(
            f"{dataset} has no clean head for this bank: of its models {len(entries)} are labelled "
            f"clean and made for {encoder} vectors, none of them with width {bank.plan.width} and "
            "example texts"
        )
    _write(folder, chosen)
    return tuple(one.head for one in chosen)


def load_clean_heads(folder: Path) -> tuple[CleanHead, ...]:
    """The clean heads kept with a bank, with their examples.

    Raises:
      StoreError: there are none, or they are damaged or do not fit the bank.
    """
    bank = open_bank(folder)
    width = bank.plan.width
    try:
        listed = read_json(folder / MANIFEST, 2**20)
        heads = listed.get("heads")
        version = listed.get("version")
        if version not in (1, VERSION) or not isinstance(heads, list) or not heads:
            raise StoreError(
                f"{folder / MANIFEST} has version {safe_repr(version)} and lists "
                f"{safe_repr(heads)}, expected version {VERSION} and clean heads; remove it and "
                f"{AGAIN}"
            )
        places = [_place(folder, number) for number in range(len(heads))]
        # Version 1 kept no examples; the bank's carriers are clean texts too, if fewer.
        examples = bank.carriers if version == 1 else None
        found = tuple(
            CleanHead(load_checkpoint(one), read_examples(one) if examples is None else examples)
            for one in places
        )
    except LoadError as error:
        why = f"{folder} holds no clean heads to compare with ({error})"
        raise StoreError(f"{why}; {AGAIN}") from error
    widths = {head.model.input_size for head in found} | {head.examples.shape[1] for head in found}
    if widths != {width}:
        raise StoreError(f"{folder} holds clean heads for vectors of another width than {width}")
    classes = sorted({head.model.num_classes for head in found})
    if len(classes) > 1:
        raise StoreError(
            f"{folder} holds clean heads of {' and '.join(map(str, classes))} classes, which cannot"
            f" be compared; remove {folder / MANIFEST} and {AGAIN}"
        )
    return found


def _is_wanted(entry: ModelEntry, encoder: str, bank: Bank) -> bool:
    sound = entry.poisoned is False and entry.problem is None and entry.skip_reason is None
    config = entry.text_config
    if not sound or entry.kind != "text" or config is None:
        return False
    return is_of(config, encoder) and config.pooling == bank.plan.pooling


def _opened(entries: Iterable[ModelEntry], width: int, embed: Embed) -> Iterator[_Opened]:
    """The heads that can be read, take vectors of this width and bring example texts."""
    for entry in entries:
        try:
            artifact = open_artifact(entry.model_path)
            model = single_step(convert(artifact))
            texts = load_text_examples(entry, _PER_CLASS)
        except (ConverterError, ExamplesError):
            # A damaged model of a dataset is the scan's to report; references come from the rest.
            continue
        if model.input_size != width or model.num_classes < 2:
            continue
        vectors = embed(texts.texts) if texts.embeddings is None else texts.embeddings
        if vectors.shape[1] == width and is_usual(vectors):
            named = named_by(entry.text_config)
            origin = (artifact.sha256, named.embedding, named.flavor)
            head = ReferenceHead(entry.model_id, model.architecture, *origin)
            yield _Opened(head, CleanHead(model, vectors.astype(np.float32)))


def _distinct(opened: Iterable[_Opened], copies: list[str]) -> Iterator[_Opened]:
    """The first of all heads that compute the same; names of the others are added to `copies`."""
    taken: set[str] = set()
    for one in opened:
        key = head_key(one.model)
        if key in taken:
            copies.append(one.head.model)
            continue
        taken.add(key)
        yield one


def _alike(opened: Sequence[_Opened]) -> list[_Opened]:
    """Those with the number of classes and the encoder's weights that most have: only such heads
    can be compared."""
    counts = Counter(_compared_by(one) for one in opened)
    usual = min(counts, key=lambda kind: (-counts[kind], kind), default=None)
    return [one for one in opened if _compared_by(one) == usual]


def _compared_by(one: _Opened) -> tuple[int, str]:
    return one.model.num_classes, one.head.flavor or ""


def _spread(items: Sequence[_Opened], keys: Sequence[Callable[[_Opened], object]]):
    """The items in turn of what the first key says, each group again by the next key."""
    if not keys:
        return list(items)
    groups: dict[object, list[_Opened]] = {}
    for item in items:
        groups.setdefault(keys[0](item), []).append(item)
    ordered = [_spread(group, keys[1:]) for group in groups.values()]
    return [item for row in zip_longest(*ordered) for item in row if item is not None]


def _write(folder: Path, chosen: Sequence[_Opened]) -> None:
    described = {"version": VERSION, "heads": [asdict(one.head) for one in chosen]}
    manifest = folder / MANIFEST
    kept = _listed(manifest) if manifest.exists() else None
    if kept not in (None, described, _without_names(described)):
        raise StoreError(
            f"{folder} holds other clean heads; remove {manifest} to replace them, or name the "
            "dataset and number of heads that they were taken with"
        )
    for number, one in enumerate(chosen):
        _refuse_links(folder, number)
        if not _is_whole(_place(folder, number), one.model):
            _write_head(_place(folder, number), one)
    if kept != described:
        write_atomic(manifest, json.dumps(described, indent=1).encode())


def _listed(manifest: Path) -> dict:
    try:
        return read_json(manifest, 2**20)
    except LoadError as error:
        raise StoreError(f"{error}; remove {manifest} to copy the clean heads again") from error


def _without_names(described: dict) -> dict:
    """The list as earlier versions wrote it, which did not note the encoder that heads name."""
    heads = [
        {name: value for name, value in head.items() if name not in ("embedding", "flavor")}
        for head in described["heads"]
    ]
    return described | {"heads": heads}


def _refuse_links(folder: Path, number: int) -> None:
    """A folder of somebody else could lead to any folder of the user."""
    for path in (folder / FOLDER, _place(folder, number)):
        if path.is_symlink():
            raise StoreError(
                f"{path} is a symbolic link, expected a folder; remove it or name another bank"
            )


def _is_whole(place: Path, model: Model) -> bool:
    """Whether a head lies there with its examples, undamaged."""
    try:
        return head_key(load_checkpoint(place)) == head_key(model) and read_examples(place).size > 0
    except (LoadError, StoreError):
        return False


def _write_head(place: Path, one: _Opened) -> None:
    (place / CONFIG).unlink(missing_ok=True)  # a damaged one would be taken for another's
    save_checkpoint(one.model, place, one.head.sha256)
    write_examples(place, one.clean.examples)


def _place(folder: Path, number: int) -> Path:
    return folder / FOLDER / f"{number:03d}"
