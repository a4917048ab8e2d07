"""Verdicts on the networks of a zoo beside other people's detectors, each by its own threshold.

    python -m benchmarks.accuracy.zoo_rivals DATASET [--each N] [--calibrator FILE] [--out FILE]

DATASET is a folder made by `jaxtroj generate zoo` or `round1` to `round4`: networks for pictures
that are RGB / 255, with example pictures and a METADATA.csv. `--each` takes the first so many clean
networks and as many poisoned ones by name, of those that learnt their task and trigger. Every
network goes through `jaxtroj` (`scan_model` as `detect` calls it, early stop on, its programs
compiled before: the second of two scans counts; by a calibrator that has not met DATASET, if one is
given), Neural Cleanse, K-Arm and MM-BD, in one process on one core; seconds are of processor time,
so that others on the machine do not count. The rivals run in PyTorch on the same example pictures,
at most so many of them: ONNX files through onnx2torch, pickles as the network that `converters`
reads out of them; nothing in a file is executed. Each may take so many steps and seconds a network
as `BUDGETS` says, and an answer that its budget ended early is told.

Each answer is a JSON line of FILE's `.answers.jsonl`, which only ever grows: run it again to go on,
or with another DATASET to compare on both. FILE gets the comparison, which is printed too.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.accuracy.picture_rows import described
from benchmarks.provenance import RESULTS, provenance
from benchmarks.rivals.verdict import Budget, RivalVerdict
from converters.files import write_atomic
from jaxtroj import scoring
from jaxtroj.cli.options import keep_compiled
from jaxtroj.rounds import Examples, ModelEntry, iter_models, load_examples
from jaxtroj.rounds.examples import middle

if TYPE_CHECKING:
    from jaxtroj.settings import Settings

OURS = "jaxtroj"
BUDGETS: Mapping[str, Budget] = {
    "neural cleanse": Budget(steps=250),
    "k-arm": Budget(steps=2500),
    "mm-bd": Budget(steps=300),
}
"""Steps of each label, of all arms together, and of each class; and processor seconds a network."""
PICTURES = 64
"""Example pictures that a rival is given, at most, and at least one of each class."""


@dataclass(frozen=True)
class Answer:
    """One detector's answer on one network.

    Attributes:
        model: its dataset's name and its own.
        detector: one of `DETECTORS`.
        truth: whether the network is poisoned; `true_target` to which class, if it is to one;
            `second_target` that of a second trigger.
        kind: of its trigger; "" for a clean one.
        poisoned, target, statistic, seconds, cut: as `RivalVerdict`; of ours the statistic is the
            probability.
        problem: why there is no answer; "" where there is one.
    """

    model: str
    detector: str
    truth: bool
    true_target: int | None
    kind: str
    poisoned: bool = False
    target: int | None = None
    statistic: float = 0.0
    seconds: float = 0.0
    cut: bool = False
    problem: str = ""
    second_target: int | None = None

    @property
    def has_right_target(self) -> bool:
        """Whether the class that it names is that of a trigger."""
        return self.target is not None and self.target in (self.true_target, self.second_target)


def main() -> int:
    """Ask, print and write; returns the exit status."""
    args = _arguments()
    _take_one_core()
    keep_compiled()
    entries = chosen([e for e in iter_models(args.dataset) if e.poisoned is not None], args.each)
    settings = _settings(args.calibrator)
    lines = args.out.with_suffix(".answers.jsonl")
    known = read_answers(lines)
    done = {(answer.model, answer.detector) for answer in known}
    for answer in answers(args.dataset.name, entries, args.detectors, settings, done):
        with lines.open("a") as file:
            file.write(json.dumps(asdict(answer)) + "\n")
        print(f"{answer.model} {answer.detector} {_said(answer)}", file=sys.stderr)
        known.append(answer)
    result = {"provenance": provenance()} | compared(known)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(text(result))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", type=Path)
    parser.add_argument("--out", type=Path, default=RESULTS / "zoo_rivals.json")
    parser.add_argument("--each", type=int, help="only the first so many clean and poisoned ones")
    parser.add_argument("--calibrator", type=Path, help="of jaxtroj; default: the shipped one")
    parser.add_argument(
        "--detectors", type=_names, default=DETECTORS, help=f"of {', '.join(DETECTORS)}"
    )
    return parser.parse_args()


def chosen(entries: Sequence[ModelEntry], each: int | None) -> list[ModelEntry]:
    """The first `each` clean and poisoned ones by name, in turn; all that converged for None."""
    kept = sorted(
        (e for e in entries if e.metadata.get("converged", "True") == "True"),
        key=lambda e: e.model_id,
    )
    sides = [[e for e in kept if e.poisoned is poisoned][:each] for poisoned in (True, False)]
    return [e for pair in zip_longest(*sides) for e in pair if e is not None]


def _settings(calibrator: Path | None) -> "Settings":
    from jaxtroj.settings import Settings

    if calibrator is None:
        return Settings()
    return Settings(calibrator=calibrator, special_calibrators=(), round_calibrators=())


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not set(names) <= set(DETECTORS):
        raise argparse.ArgumentTypeError(f"expected some of {', '.join(DETECTORS)}, got {text!r}")
    return names


def _take_one_core() -> None:
    """Before jax and torch count cores."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def read_answers(path: Path) -> list[Answer]:
    """The answers on file; a line that was cut off by a kill does not count."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(Answer(**json.loads(line)))
        except (ValueError, TypeError):
            print(f"{path.name} has a line that is no answer: {line[:60]!r}", file=sys.stderr)
    return found


def answers(
    population: str,
    entries: Sequence[ModelEntry],
    detectors: Sequence[str],
    settings: "Settings",
    done: Container[tuple[str, str]],
) -> Iterator[Answer]:
    """The answers that are not on file, network by network.

    Args:
        population: name of the networks' dataset.
        entries: the networks.
        detectors: of `DETECTORS`.
        settings: of our own scan.
        done: networks, as answers call them, and detectors that are on file.
    """
    for entry in entries:
        model = f"{population}/{entry.model_id}"
        for name in detectors:
            if (model, name) not in done:
                yield _asked(model, entry, name, settings)


def _asked(model: str, entry: ModelEntry, name: str, settings: "Settings") -> Answer:
    poisoned = bool(entry.poisoned)
    cells = described(entry.metadata)
    about = (model, name, poisoned, cells["target_class"], cells["kind"])
    second = cells.get("second_target")
    try:
        verdict = _ours(entry, settings) if name == OURS else RIVALS[name](entry)
    except Exception as error:  # another network may be answered; the line says what went wrong
        problem = f"{type(error).__name__}: {error}"[:300]
        return Answer(*about, second_target=second, problem=problem)
    return Answer(*about, second_target=second, **asdict(verdict))


def _ours(entry: ModelEntry, settings: "Settings") -> RivalVerdict:
    from jaxtroj.scan import scan_model

    scan_model(entry, settings)
    started = time.process_time()
    record = scan_model(entry, settings)
    seconds = time.process_time() - started
    if record.status != "ok":
        raise RuntimeError(record.reason)
    return RivalVerdict(record.poisoned, record.target_class, record.probability, seconds)


def _neural_cleanse(entry: ModelEntry) -> RivalVerdict:
    from benchmarks.rivals.torch_neural_cleanse import neural_cleanse_verdict

    network, given, classes = _for_torch(entry)
    budget = BUDGETS["neural cleanse"]
    return neural_cleanse_verdict(network, given.images, given.labels, classes, budget)


def _k_arm(entry: ModelEntry) -> RivalVerdict:
    from benchmarks.rivals.torch_k_arm import k_arm

    network, given, classes = _for_torch(entry)
    return k_arm(network, given.images, given.labels, classes, BUDGETS["k-arm"])


def _mm_bd(entry: ModelEntry) -> RivalVerdict:
    from benchmarks.rivals.torch_mm_bd import mm_bd

    network, given, classes = _for_torch(entry)
    height, width, channels = given.images.shape[1:]
    return mm_bd(network, (channels, height, width), classes, BUDGETS["mm-bd"])


RIVALS: Mapping[str, Callable[[ModelEntry], RivalVerdict]] = {
    "neural cleanse": _neural_cleanse,
    "k-arm": _k_arm,
    "mm-bd": _mm_bd,
}
DETECTORS = (OURS, *RIVALS)


def _for_torch(entry: ModelEntry) -> tuple[Any, Examples, int]:
    """The network in PyTorch on one thread, its examples, and its number of classes."""
    import torch

    torch.set_num_threads(1)
    cells = entry.metadata
    classes, channels = int(cells["number_classes"]), int(cells.get("channels", 3))
    if entry.examples_path is None:
        raise FileNotFoundError(f"{entry.model_id} has no examples")
    given = load_examples(
        entry.examples_path,
        "RGB",
        max(1, PICTURES // classes),
        normalization="unit",
        channels=channels,
    )
    side = int(cells.get("cnn_img_size_pixels", given.images.shape[1]))
    given = replace(given, images=middle(given.images, side))
    return torch_network(entry.model_path), given, classes


def torch_network(path: Path) -> Any:
    """The network of an ONNX file or of a pickle of torchvision's, in evaluation mode, float32."""
    if path.suffix == ".onnx":
        from onnx2torch import convert

        return convert(str(path)).eval()
    from converters.artifact import open_artifact
    from converters.conversion import convert as converted
    from converters.families import family_of
    from converters.families.reference import filled_module
    from converters.rebuilt.network import rebuild

    artifact = open_artifact(path)
    config = converted(artifact).config
    if family_of(config) is None:
        return rebuild(artifact.weights).module.eval()
    return filled_module(config, artifact.weights.tensors).float()


def compared(found: Sequence[Answer]) -> dict[str, Any]:
    """Scores of each detector on the networks that all of them were asked about.

    Of detectors: `networks` and `poisoned` among them, `right` verdicts (a fraction; no answer is
    none), `auc` of the statistic, `targets`: of poisoned networks with one target, the fraction
    that was called poisoned and its target named, `by_kind`: the fraction of each kind called
    poisoned, `seconds` (median), `cut` and `failed`: answers that the budget ended, and none.
    """
    names = [name for name in DETECTORS if any(answer.detector == name for answer in found)]
    asked = [{a.model for a in found if a.detector == name} for name in names]
    common = set.intersection(*asked) if asked else set()
    rows = {name: [a for a in found if a.detector == name and a.model in common] for name in names}
    budgets = {name: asdict(budget) for name, budget in BUDGETS.items()}
    return {
        "budgets": budgets,
        "pictures": PICTURES,
        "detectors": {name: _scores(part) for name, part in rows.items() if part},
    }


def _scores(rows: Sequence[Answer]) -> dict[str, Any]:
    truth = [row.truth for row in rows]
    targeted = [row for row in rows if row.truth and row.true_target is not None]
    kinds = sorted({row.kind for row in rows})
    by_kind = {
        kind or "clean": _share([row.poisoned for row in rows if row.kind == kind])
        for kind in kinds
    }
    # A detector without an answer knows less than any answer says.
    least = min(row.statistic for row in rows)
    ranked = np.array([least if row.problem else row.statistic for row in rows])
    return {
        "networks": len(rows),
        "poisoned": sum(truth),
        "right": _share([row.poisoned == row.truth and not row.problem for row in rows]),
        "auc": scoring.roc_auc(_ranks(ranked), truth) if len(set(truth)) == 2 else None,
        "targets": _share([row.poisoned and row.has_right_target for row in targeted]),
        "by_kind": by_kind,
        "seconds": round(float(np.median([row.seconds for row in rows])), 2),
        "cut": sum(row.cut for row in rows),
        "failed": sum(bool(row.problem) for row in rows),
    }


def _ranks(values: np.ndarray) -> np.ndarray:
    """Values in order, as numbers between 0 and 1, which scores take."""
    return (np.searchsorted(np.unique(values), values) + 1) / (len(values) + 1)


def _share(right: Sequence[bool]) -> float | None:
    return round(float(np.mean(right)), 4) if right else None


def _said(answer: Answer) -> str:
    if answer.problem:
        return f"no answer: {answer.problem}"
    word = "poisoned" if answer.poisoned else "clean"
    verdict = "right" if answer.poisoned == answer.truth else "wrong"
    return f"{word} ({verdict}), target {answer.target}, {answer.seconds:.1f} s"


def text(result: Mapping[str, Any]) -> str:
    """The table."""
    lines = ["| detector | networks | right | AUC | right targets | seconds | cut | failed |"]
    lines.append("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, row in result["detectors"].items():
        cells = (row["networks"], row["right"], row["auc"], row["targets"], row["seconds"])
        lines.append(f"| {name} | {' | '.join(map(str, cells))} | {row['cut']} | {row['failed']} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
