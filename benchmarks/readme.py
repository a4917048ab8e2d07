"""Writes benchmarks/README.md: what each benchmark measures, and its newest figures.

    python -m benchmarks.readme

Every figure comes from a JSON file in `benchmarks/results`, whose provenance says how to get it
again; a benchmark without a result says so.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS
from benchmarks.suite import BENCHES, INPUTS, PROFILES, Bench, read_result
from converters.files import write_atomic

README = RESULTS.parent / "README.md"
Rows = Iterable[tuple[str, ...]]


def main() -> int:
    """Write the file; returns the exit status."""
    write_atomic(README, document().encode())
    print(f"wrote {README.name}")
    return 0


def document() -> str:
    """The whole README as text."""
    return "\n".join([_HEAD.format(profiles=", ".join(f"`{p}`" for p in PROFILES)), *_sections()])


_HEAD = """# Benchmarks

Written by `python -m benchmarks.readme` from the files in [results](results).

    bin/jaxtroj bench                          # all that need no data, small
    bin/jaxtroj bench gradients --profile cpu
    bin/jaxtroj bench bank --input encoder=DIR --input texts=FILE

Profiles: {profiles}. Compiling is timed apart, calls are warm and blocked, rivals take turns in the
same run, and quality stands beside speed. Seconds depend on the machine and on what else it does
(`load_average` in each result): compare ratios.

`accuracy` holds what tells how well verdicts separate, `speed` what tells seconds, `reading` what
tries the readers of files, `rivals` what others' methods are. Each result keeps the command that
was run; older ones name a benchmark without its folder.

TrojanZoo's Neural Cleanse runs beside the others where an environment of its own has it, since it
needs an older matplotlib: `pip install -e . trojanzoo "matplotlib<3.9"`, then
`python -m benchmarks.speed.detect_speed MODEL EXAMPLES --trojanzoo`. `--compile` adds the PyTorch
one by `torch.compile`. IBM ART's NeuralCleanse takes Keras classifiers only, so it cannot be given
these networks: `art_neural_cleanse` gives it Keras's ResNet50 and the same work on the same shape,
in an environment of its own (`pip install tensorflow-cpu adversarial-robustness-toolbox`).
"""


def _sections() -> Iterator[str]:
    for bench in BENCHES:
        yield f"## {bench.name}\n\n{bench.title[0].upper()}{bench.title[1:]}: `{bench.module}`."
        if bench.inputs:
            yield "Needs: " + "; ".join(f"`{name}` ({INPUTS[name]})" for name in bench.inputs) + "."
        found = sorted(RESULTS.glob(f"{bench.name}*.json"))
        if not found:
            yield "No result yet.\n"
        for path in found:
            yield _result(bench, path, read_result(path))


def _result(bench: Bench, path: Path, result: Mapping[str, Any]) -> str:
    lines = [f"\n[{path.name}](results/{path.name}): {_origin(result['provenance'])}\n"]
    shown = TABLES.get(bench.name)
    if shown is not None:
        head, rows = shown(result)
        lines.append(_table(head, rows))
    picture = path.with_suffix(".svg")
    if picture.exists():
        lines.append(f"\n![{bench.title}](results/{picture.name})")
    return "\n".join(lines) + "\n"


def _origin(source: Mapping[str, Any]) -> str:
    where = f"{source['cores']} cores of {source['processor']}, {source['device']}"
    return f"`{source['command']}` on {where}, {source['date']}, load {source['load_average']}"


def _table(head: tuple[str, ...], rows: Rows) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _floor(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    rates = [(f"product, {name}", f"{rate / 1e9:.1f} GFLOP/s")
             for name, rate in result["operations_per_second"].items()]  # fmt: skip
    return ("what", "rate"), [*rates, ("copy", f"{result['bytes_per_second'] / 1e9:.1f} GB/s")]


def _conversion(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    head = ("network", "file", "MB", "read s", "convert s", "compile s", "peak MiB",
            f"inference of {result['batch']} s", "difference")  # fmt: skip
    rows = (
        (
            row["architecture"],
            row["format"],
            row["megabytes"],
            row["read_seconds"],
            row["convert_seconds"],
            row["compile_seconds"],
            row["peak_memory_mib"],
            ", ".join(f"{name} {s}" for name, s in row["inference_seconds"].items()),
            row["difference"],
        )
        for row in result["rows"]
    )
    return head, rows


def _peak_memory(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    rows = (
        (row["file"], row["weights_mib"], row["peak_over_weights"], row["kept_over_weights"])
        for row in result["rows"]
    )
    return ("file", "MiB of weights", "peak over weights", "kept over weights"), rows


def _forward(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    rivals = ("pickle", "onnx", "pytorch", "onnxruntime")
    head = ("network", "px", "batch", "ours (pickle), s", "ours (ONNX)", "PyTorch", "onnxruntime",
            "pickle over PyTorch", "ONNX over PyTorch", "share of the floor")  # fmt: skip
    rows = (
        (row["architecture"], row["image_size"], row["batch"],
         *(row["seconds"].get(name, "") for name in rivals),
         *(row["of_pytorch"][name] for name in rivals[:2]), row["share_of_floor"])
        for row in result["rows"]
    )  # fmt: skip
    return head, rows


def _worker_memory(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    kinds = {"different": "of different architectures", "same": "of one architecture"}
    names = ("resident_after_first_mib", "resident_after_last_mib", "most_grown_mib")
    rows = (
        (f"{run['models']} {kinds[kind]}", *(run[name] for name in names))
        for kind, run in ((kind, result[kind]) for kind in kinds)
        if run
    )
    return ("models", "MiB after the first", "MiB after the last", "most growth, MiB"), rows


def _gradients(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    names = ("architecture", "image_size", "batch", "image_gradients_per_second",
             "pytorch_image_gradients_per_second", "ratio", "share_of_floor", "compile_seconds",
             "gradient_difference")  # fmt: skip
    head = ("network", "px", "batch", "a second", "PyTorch's", "seconds over PyTorch's",
            "share of the floor", "compile s", "difference")  # fmt: skip
    return head, (tuple(row[name] for name in names) for row in result["rows"])


def _growth(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    rows = (
        (f"{title}: {point['x']}", point["warm_seconds"], point.get("cold_seconds", ""))
        for title, points in result["curves"].items()
        for point in points
    )
    return ("where", "seconds", "first time"), rows


def _accuracy(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    """Out-of-fold scores by evidence stage."""
    rows = []
    for stage, scores in result["stages"].items():
        score = scores.get("all", scores)
        interval = f"{score['log_score_low']:.3f} to {score['log_score_high']:.3f}"
        rows.append((f"up to {stage}", f"{score['log_score']:.3f}", interval,
                     f"{score['roc_auc']:.3f}"))  # fmt: skip
    return (f"{result['models']} models", "log score", "95 %", "ROC AUC"), rows


def _kernels(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    rows = (
        (title, ", ".join(f"{name} {ms:.1f}" for name, ms in found.items()))
        for title, found in result["milliseconds"].items()
    )
    return ("what", "milliseconds"), rows


def _scaling(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    names = ("milliseconds_per_model", "memory_at_a_tenth_mib", "memory_at_the_end_mib")
    runs = {
        "local": result.get("local", {}).get("scan"),
        "ray": result.get("ray"),
        "ray; crashes, hangs, a node killed": result.get("ray_bad"),
    }
    rows = [
        (name, run["records"], *(run[key] for key in names)) for name, run in runs.items() if run
    ]
    if read := result.get("read"):
        rows += [
            (f"reading records, {way}; processor time", read["models"],
             round(1e3 * read[f"{name}_processor_seconds"] / read["models"], 3), "", "")
            for way, name in (("one by one", "iter_records"), ("at once", "read_records"))
        ]  # fmt: skip
    return ("engine", "models", "ms a model", "MiB after a tenth", "MiB at the end"), rows


def _workers(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    rows = [(f"measured at 2, {result['models']} models", f"{result['efficiency_at_2']:.2f}"),
            *((f"simulated at {n}, {result['simulated_models']} models", f"{share:.2f}")
              for n, share in result["simulated_efficiency"].items()),
            *((f"simulated at 64, {n} models", f"{share:.2f}")
              for n, share in result.get("simulated_at_64_by_models", {}).items())]  # fmt: skip
    return (f"workers ({result['engine']})", "efficiency"), rows


def _suites(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    rows = (
        (f"{suite}, by {result['engine']}", found["cases"], found.get("passed", 0),
         found.get("refused", 0), found.get("mismatched", 0) + found.get("crashed", 0))
        for suite, found in result["summary"].items()
    )  # fmt: skip
    return ("suite", "cases", "passed", "refused by our error", "rounding or crash"), rows


def _fuzz(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    tally = result["tally"]
    rows = [("damaged files", tally["done"]), ("failures", len(tally["failures"])),
            ("slowest, s", tally["slowest"][0]),
            ("memory growth, MiB", round(tally["peak"] / 2**20))]  # fmt: skip
    return ("what", "figure"), [(name, str(value)) for name, value in rows]


def _differential(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    outcomes = ("both", "ours only", "runtime only", "neither")
    rows = [
        (name, str(tally["mutants"]), *(str(tally["outcomes"].get(o, 0)) for o in outcomes),
         str(len(tally["findings"])))
        for name, tally in result["formats"].items()
    ]  # fmt: skip
    head = ("format", "mutants", "read by both", "by us only", "by torch only", "by neither")
    return (*head, "read differently"), rows


def _hostile(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    """The dearest files of each kind, by memory and by processor time."""
    rows = []
    for kind in dict.fromkeys(row["kind"] for row in result["rows"]):
        own = [row for row in result["rows"] if row["kind"] == kind]
        most = max(row["mib"] for row in own), max(row["processor_seconds"] for row in own)
        dearest = max(own, key=lambda row: row["mib"])["name"]
        beyond = sum(not row["answered"] for row in own)
        rows.append((kind, str(len(own)), *map(str, most), dearest, str(beyond)))
    head = ("kind", "files", "most MiB", "most processor seconds", "most memory takes")
    return (*head, "beyond the limits"), rows


def _real(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    head = ("file", "ours from onnxruntime", "ours from float64", "onnxruntime from float64",
            "convert s", "compile s", "seconds")  # fmt: skip
    rows = (
        (
            row["file"],
            row.get("relative_error", row.get("error", "").rpartition("Error: ")[2]),
            row.get("own_error_in_float64", ""),
            row.get("onnxruntime_error_in_float64", ""),
            row.get("convert_seconds", ""),
            row.get("compile_seconds", ""),
            ", ".join(f"{name} {s}" for name, s in row.get("seconds", {}).items()),
        )
        for row in result["rows"]
    )
    return head, rows


def _bank(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    names = ("batch_size", "candidates_per_second", "texts_per_second")
    rows = (tuple(row[name] for name in names) for row in result["by_batch_size"])
    return ("batch", "candidates a second", "texts a second"), rows


_RIVALS = {
    "pytorch_neural_cleanse": "PyTorch Neural Cleanse",
    "pytorch_neural_cleanse_batched": "the same, all labels in one batch",
    "pytorch_neural_cleanse_compiled": "the same by torch.compile",
    "trojanzoo_neural_cleanse": "TrojanZoo's",
}


def _verdicts(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    ours = result["jaxtroj"]["warm"]
    rivals = {label: result[key] for key, label in _RIVALS.items() if key in result}
    rows = [*((f"ours, {stage}", s) for stage, s in ours["seconds"].items()),
            ("ours, all", ours["all_seconds"]),
            *((f"{label}, {rival['steps']} steps a label", rival["seconds_all_labels"])
              for label, rival in rivals.items())]  # fmt: skip
    return (result["architecture"], "seconds"), rows


def _search(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    names = ("roc_auc", "right_target", "mean_seconds", "times_our_seconds")
    rows = ((name, *(part[n] for n in names)) for name, part in result["detectors"].items())
    return (f"{result['models']} models", "ROC AUC", "right target", "seconds", "times ours"), rows


def _success(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    names = ("reached", "median_seconds", "median_steps", "median_mask_l1",
             "candidate_steps_per_second")  # fmt: skip
    rows = (
        (name, part["reached"], *(round(part[n], 2) for n in names[1:]))
        for name, part in result["methods"].items()
    )
    return (f"success {result['goal']}", *(name.replace("_", " ") for name in names)), rows


def _rates(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    rows = result["candidate_steps_per_second"].items()
    return (f"ResNet50, {result['image_size']} px", "candidate-steps a second"), rows


def _piccolo(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    rivals = {f"PICCOLO's sweep to {reach}": part for reach, part in result["piccolo"].items()}
    parts = {f"ours, {name}": part for name, part in result["jaxtroj"].items()} | rivals
    scores = ((name, part["log_score"], part["roc_auc"], "") for name, part in parts.items())
    seconds = ((name, "", "", value) for name, value in result["seconds_per_head"].items())
    head = (f"{result['models']} heads", "log score", "ROC AUC", "seconds a head")
    return head, (*scores, *seconds)


def _transfer(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    head = ("population left out", "heads", "log score", "ROC AUC")
    columns = ("models", "log_score", "roc_auc")
    return head, [
        (name, *(part[column] for column in columns)) for name, part in result["left_out"].items()
    ]


def _zoo_rivals(result: Mapping[str, Any]) -> tuple[tuple[str, ...], Rows]:
    head = ("detector", "networks", "verdicts right", "ROC AUC", "right targets", "seconds")
    columns = ("networks", "right", "auc", "targets", "seconds")
    return head, [
        (name, *(row[column] for column in columns)) for name, row in result["detectors"].items()
    ]


TABLES: dict[str, Callable[[Mapping[str, Any]], tuple[tuple[str, ...], Rows]]] = {
    "floor": _floor,
    "conversion": _conversion,
    "forward": _forward,
    "gradients": _gradients,
    "growth": _growth,
    "kernels": _kernels,
    "detect_speed": _verdicts,
    "peak_memory": _peak_memory,
    "worker_memory": _worker_memory,
    "scaling": _scaling,
    "workers": _workers,
    "onnx_backend": _suites,
    "round5_accuracy": _accuracy,
    "attack_success": _success,
    "art_neural_cleanse": _rates,
    "piccolo": _piccolo,
    "text_transfer": _transfer,
    "bank": _bank,
    "fuzz": _fuzz,
    "differential": _differential,
    "hostile_cost": _hostile,
    "real_onnx": _real,
    "round0_accuracy": _accuracy,
    "search": _search,
    "zoo_rivals": _zoo_rivals,
}


if __name__ == "__main__":
    sys.exit(main())
