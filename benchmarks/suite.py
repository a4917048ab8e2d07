"""Every benchmark with what it needs and how big it is in each profile; `jaxtroj bench` runs them.

A benchmark is a module with its own command line that writes one JSON file. Here stands only which
arguments it gets, so that a figure can always be had again by the command in its own provenance.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS

PROFILES = ("cpu-small", "cpu", "gpu")
ROOT = RESULTS.parent.parent
INPUTS = {
    "round0": "folders that `jaxtroj generate round0` wrote, joined by commas",
    "evidence": "the .evidence.jsonl that benchmarks/accuracy/round0_accuracy.py wrote",
    "round5": "folders that `jaxtroj generate round5` wrote, joined by commas",
    "heads": "folder that `jaxtroj generate round5 --vectors` wrote",
    "heads_and_banks": "DATASET=BANK of sentiment heads, or stored evidence, joined by commas",
    "vectors": "the folder of sentence vectors that it took",
    "art": "python of an environment with tensorflow-cpu and adversarial-robustness-toolbox",
    "bank": "probe bank with references, from `jaxtroj bank`",
    "encoder": "Hugging Face folder of a sentence encoder",
    "texts": "labelled texts, as `jaxtroj bank` takes them",
    "photos": "pictures named `number_class_wnid_name.jpg` of the nine classes of ImageNet-9",
    "model": "torchvision network with five classes, as a pickle",
    "examples": "its example pictures",
    "wrn16": "folder with the poisoned WRN-16-1 and its CIFAR-10 pictures",
    "cifar10": "all of CIFAR-10 as benchmarks/cifar10.py writes it",
    "small": "folder that `jaxtroj generate small` wrote",
    "zoo": "folder that `jaxtroj generate zoo` wrote",
    "rounds": "folders that `jaxtroj generate round1` to `round4` wrote",
    "large": "folders that `jaxtroj generate round2 --image-size 224` or `zoo --pretrained` wrote",
    "zoo_pictures": "folder of the .npz files that it was generated from (zoo_pictures.py)",
    "few": "folder that `jaxtroj generate zoo` wrote of `few_class_pictures.py`",
    "few_fresh": "another one, of another seed",
    "next": "folder that `jaxtroj generate zoo --sources next` wrote",
    "next_fresh": "another one, of another seed",
}
"""Data that is not part of the project, by name; given as `--input NAME=PATH`."""


@dataclass(frozen=True)
class Bench:
    """One benchmark.

    Attributes:
        place: its module within `benchmarks`.
        title: what it measures, in words.
        arguments: by profile; `{work}` and `{INPUT}` are filled in. None leaves it out there.
        inputs: names in `INPUTS` that it needs.
    """

    place: str
    title: str
    arguments: Mapping[str, str | None]
    inputs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its own name, and that of its result."""
        return self.place.rpartition(".")[2]

    @property
    def module(self) -> str:
        """Name of its module, for `python -m`."""
        return f"benchmarks.{self.place}"


def _same(arguments: str) -> dict[str, str | None]:
    return dict.fromkeys(PROFILES, arguments)


BENCHES = (
    Bench("speed.floor", "what a matrix product and a copy reach on this machine", _same("")),
    Bench("speed.conversion", "seconds from a file to the first answer, beside other runtimes",
          {"cpu-small": "--architectures resnet50 --image-size 64", "cpu": "", "gpu": ""}),
    Bench("speed.peak_memory", "memory that converting takes, over that of the weights",
          {"cpu-small": "--files resnet50-state-dict", "cpu": "", "gpu": None}),
    Bench("speed.worker_memory", "what a worker holds after many architectures",
          {"cpu-small": "--architectures 3 --same 2", "cpu": "", "gpu": None}),
    Bench("speed.kernels", "what XLA's convolutions cost, and what ours do",
          {"cpu-small": "", "cpu": "", "gpu": None}),
    Bench("speed.forward", "forward passes through both doors, beside other runtimes",
          {"cpu-small": "--architectures resnet50 --image-size 64 --batches 8",
           "cpu": "", "gpu": "--batches 32 256"}),
    Bench("speed.gradients", "image-gradients a second, beside PyTorch",
          {"cpu-small": "--architectures resnet50 --image-size 64 --batches 8",
           "cpu": "", "gpu": "--batches 32 256"}),
    Bench("speed.gpu_kernels", "what choosing kernels costs XLA on a GPU, and what they cost",
          {"cpu-small": None, "cpu": None, "gpu": "--batches 32"}),
    Bench("speed.detect_speed", "seconds for a verdict, beside a PyTorch Neural Cleanse",
          {"cpu-small": "{model} {examples} --steps 5",
           "cpu": "{model} {examples} --image-size 224 --steps 20",
           "gpu": "{model} {examples} --image-size 224"}, ("model", "examples")),
    Bench("speed.growth", "how the cost of a verdict grows",
          {"cpu-small": "--sizes 48 64 --classes 5 10 --models 3", "cpu": "",
           "gpu": "--architecture resnet50 --sizes 64 128 224 --models 8"}),
    Bench("speed.scaling", "what the scan engine itself costs",
          {"cpu-small": "--models 500 --ray-models 0 --bad-models 0 --ray-bad-models 0 "
                        "--read-models 500", "cpu": "", "gpu": ""}),
    Bench("speed.roofline", "what a verdict would cost at least on accelerators that are not here",
          {"cpu-small": None, "cpu": "{model} --examples {examples}", "gpu": None},
          ("model", "examples")),
    Bench("speed.workers", "how a scan gains by more workers",
          {"cpu-small": "{round0} --work {work}/workers --models 4",
           "cpu": "{round0} --work {work}/workers", "gpu": None}, ("round0",)),
    Bench("reading.onnx_backend", "ONNX's own conformance suites",
          {"cpu-small": "--kinds light", "cpu": "", "gpu": None}),
    Bench("reading.real_onnx", "ONNX files that people ship, beside onnxruntime and PyTorch",
          _same("--scratch {work}/real_onnx")),
    Bench("reading.architectural_findings", "suspicions of architectural backdoors in those files",
          _same("--scratch {work}/real_onnx")),
    Bench("reading.fuzz", "damaged files against every reader",
          {"cpu-small": "--work {work}/fuzz --inputs 2000", "cpu": "--work {work}/fuzz",
           "gpu": None}),
    Bench("reading.hostile_cost", "what detect costs on files made to cost much",
          {"cpu-small": "--work {work}/hostile_cost --files 6",
           "cpu": "--work {work}/hostile_cost", "gpu": None}),
    Bench("reading.differential", "mutants of torch's files, read by us and by torch",
          {"cpu-small": "--work {work}/differential --mutants 50",
           "cpu": "--work {work}/differential", "gpu": None}),
    Bench("accuracy.round0_accuracy", "poisoned image classifiers told from clean ones",
          _same("{round0} --work {work}/round0"), ("round0",)),
    Bench("accuracy.search",
          "seconds to a verdict on a folder, beside Neural Cleanse label after label",
          {"cpu-small": "{round0} --evidence {evidence} --work {work}/search --models 2 --steps 10",
           "cpu": "{round0} --evidence {evidence} --work {work}/search", "gpu": None},
          ("round0", "evidence")),
    Bench("speed.attack_success", "seconds until a planted class is reached, beside Neural Cleanse",
          {"cpu-small": "{round0} --models 1 --steps 20", "cpu": "{round0}", "gpu": "{round0}"},
          ("round0",)),
    Bench("speed.art_neural_cleanse", "candidate-steps a second, beside IBM ART's Neural Cleanse",
          {"cpu-small": "--python {art} --image-size 64 --steps 3", "cpu": "--python {art}",
           "gpu": "--python {art}"}, ("art",)),
    Bench("accuracy.round5_accuracy", "poisoned sentiment heads told from clean ones",
          _same("{round5} --bank {bank} --work {work}/round5"), ("round5", "bank")),
    Bench("accuracy.piccolo",
          "poisoned sentiment heads told from clean ones, beside PICCOLO's sweep",
          {"cpu-small": None, "cpu": "{heads} --vectors {vectors} --work {work}/piccolo",
           "gpu": None}, ("heads", "vectors")),
    Bench("accuracy.text_transfer", "sentiment heads of populations that no fit has met",
          _same("{heads_and_banks} --work {work}/text_transfer"), ("heads_and_banks",)),
    Bench("accuracy.text_apart", "sentiment heads beside clean heads of another dataset",
          _same("--work {work}/text_apart")),
    Bench("accuracy.text_fresh", "sentiment heads beside those that the shipped calibrator has met",
          _same("--work {work}/text_fresh")),
    Bench("accuracy.text_rivals", "the same by TrojanSleuth, PICCOLO's sweep and a weight sketch",
          {"cpu-small": None, "cpu": "{heads}", "gpu": None}, ("heads",)),
    Bench("accuracy.text_classifier_transfer", "whole text classifiers of populations not met",
          _same("--work {work}/text_classifiers")),
    Bench("speed.bank", "how fast a probe bank is built",
          {"cpu-small": "{encoder} {texts} --candidates 16 --batch-sizes 16",
           "cpu": "{encoder} {texts}", "gpu": "{encoder} {texts} --candidates 1024"},
          ("encoder", "texts")),
    Bench("accuracy.backgrounds", "the Backgrounds Challenge beside the original's way",
          {"cpu-small": "{photos} {work}/backgrounds --size 32 --steps 40 40",
           "cpu": "{photos} {work}/backgrounds", "gpu": "{photos} {work}/backgrounds --size 224"},
          ("photos",)),
    Bench("accuracy.wrn16", "a network that others poisoned, end to end",
          dict.fromkeys(("cpu-small", "cpu"), "--data {wrn16} --pictures {cifar10} "
                        "--clean {work}/wrn16/wrn16.onnx") | {"gpu": None}, ("wrn16", "cifar10")),
    Bench("accuracy.small_accuracy", "poisoned small networks told from clean ones",
          _same("{small} --work {work}/small"), ("small",)),
    Bench("accuracy.zoo", "networks of every kind told apart by a fit that has not met their kind",
          _same("{zoo} --work {work}/zoo"), ("zoo",)),
    Bench("accuracy.worth", "what each stage of evidence is worth, beside its seconds",
          _same("{zoo} --work {work}/zoo"), ("zoo",)),
    Bench("accuracy.few_classes", "networks of two to five classes",
          {"cpu-small": None, "cpu": "{few} --fresh {few_fresh} --work {work}/few", "gpu": None},
          ("few", "few_fresh")),
    Bench("accuracy.all_to_all", "triggers that send each class to the next",
          {"cpu-small": None, "cpu": "{next} --fresh {next_fresh} --work {work}/next", "gpu": None},
          ("next", "next_fresh")),
    Bench("accuracy.changed_examples", "examples that went another way than the training pictures",
          {"cpu-small": None, "cpu": "{zoo} --own {zoo} --work {work}/changed", "gpu": None},
          ("zoo",)),
    Bench("accuracy.order", "which stage next: the fixed order beside one by expected gain",
          _same("{zoo} --work {work}/zoo"), ("zoo",)),
    Bench("accuracy.fresh", "networks that the shipped calibrator has not met",
          {"cpu-small": None, "cpu": "{rounds} --work {work}/fresh", "gpu": None},
          ("rounds",)),
    Bench("accuracy.large_pictures", "pictures above 64 px: what the stages are worth that cost"
          " most there", {"cpu-small": None, "cpu": "{large} --work {work}/large", "gpu": None},
          ("large",)),
    Bench("accuracy.reference", "what a clean network beside the one that is judged is worth",
          _same("--work {work}/reference")),
    Bench("accuracy.rounds", "Rounds 1 to 4 as NIST scores them, by fits that met them or did not",
          _same("{rounds} --work {work}/rounds"), ("rounds",)),
    Bench("accuracy.zoo_rivals", "verdicts beside Neural Cleanse, K-Arm and MM-BD",
          {"cpu-small": "{zoo} --each 4", "cpu": "{zoo} --each 16", "gpu": None}, ("zoo",)),
    Bench("accuracy.round_rivals", "rivals on Rounds 1 to 4, in the same folds as our evidence",
          _same("{rounds} --work {work}/rounds"), ("rounds",)),
    Bench("accuracy.repair", "poisoned networks mended: unlearning, fine-pruning, fine-tuning",
          {"cpu-small": None, "gpu": None,
           "cpu": "--zoo {zoo} --pictures {zoo_pictures} --seed 21"}, ("zoo", "zoo_pictures")),
)  # fmt: skip
NAMES = tuple(bench.name for bench in BENCHES)


@dataclass(frozen=True)
class BenchOutcome:
    """What became of one benchmark.

    Attributes:
        name: of the benchmark.
        status: "done", "failed" or "left out".
        reason: why it is not done; empty if it is.
        seconds: wall time.
        result: the JSON file it wrote.
    """

    name: str
    status: str
    reason: str = ""
    seconds: float = 0.0
    result: Path | None = None


def run(
    names: Sequence[str],
    profile: str,
    inputs: Mapping[str, str],
    out: Path,
    work: Path,
    on_start: Callable[[str], None] = lambda name: None,
) -> Iterator[BenchOutcome]:
    """Run benchmarks one after another, each in its own process; a failure stops no other.

    Args:
        names: of `NAMES`.
        profile: of `PROFILES`.
        inputs: paths by names of `INPUTS`; a benchmark that lacks one is left out.
        out: folder of the results, `NAME.json`.
        work: folder for data that is kept between runs.
        on_start: told the name of each that begins.
    """
    out.mkdir(parents=True, exist_ok=True)
    work.mkdir(parents=True, exist_ok=True)
    for bench in (bench for bench in BENCHES if bench.name in names):
        arguments = bench.arguments[profile]
        missing = [name for name in bench.inputs if name not in inputs]
        if arguments is None:
            yield BenchOutcome(bench.name, "left out", f"says nothing in profile {profile}")
        elif missing:
            wanted = " ".join(f"--input {name}=PATH" for name in missing)
            yield BenchOutcome(bench.name, "left out", f"needs {wanted}")
        else:
            on_start(bench.name)
            path = out / f"{bench.name}.json"
            words = _filled(arguments, inputs, work)
            yield _measured(bench, [*words, "--out", str(path.resolve())], path)


def _filled(arguments: str, inputs: Mapping[str, str], work: Path) -> list[str]:
    """The command line's words; a path with spaces stays one, a list of paths becomes several."""
    words = []
    for word in arguments.split():
        name = word.strip("{}")
        if name in INPUTS:
            words += [str(Path(path).absolute()) for path in inputs[name].split(",")]
        else:
            words.append(word.replace("{work}", str(work.resolve())))
    return words


def _measured(bench: Bench, words: Sequence[str], path: Path) -> BenchOutcome:
    started, before = time.perf_counter(), _stamp(path)
    command = [sys.executable, "-m", bench.module, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    seconds = round(time.perf_counter() - started, 1)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return BenchOutcome(bench.name, "failed", lines[-1][:300], seconds)
    if _stamp(path) == before:
        return BenchOutcome(
            bench.name, "failed", f"it ended well and wrote no {path.name}", seconds
        )
    return BenchOutcome(bench.name, "done", "", seconds, path)


def _stamp(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0


def read_result(path: Path) -> dict[str, Any]:
    """A result as JSON values. Raises OSError or ValueError."""
    return json.loads(path.read_text())
