"""What the scan engine itself costs: overhead per model, memory, records per second.

    python -m benchmarks.speed.scaling [--models N] [--ray-models N] [--out FILE]

The models are files of a few bytes and the detector makes up a record of the usual size from their
digest, so all that is timed is the engine: jobs, processes, identities, the store.
"""

import argparse
import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS, provenance
from converters.files import write_atomic
from jaxtroj import store as store_module
from jaxtroj.engine.devices import Slot
from jaxtroj.engine.guard import Guard
from jaxtroj.engine.jobs import Engine, Setup
from jaxtroj.engine.local import LocalEngine
from jaxtroj.engine.progress import Tally
from jaxtroj.engine.run import run_scan
from jaxtroj.numerics import is_above
from jaxtroj.record import Record
from jaxtroj.record_text import summary
from jaxtroj.reporting.content import read_content
from jaxtroj.reporting.page import render
from jaxtroj.rounds import ModelEntry, iter_models
from jaxtroj.scan import identify
from jaxtroj.settings import Settings
from jaxtroj.store import RunStore, iter_records, read_records

NULL = "benchmarks.speed.scaling:null_detector"
SETTINGS = Settings(calibrator=None, text_calibrator=None, early_stop=False, base_rate=0.5)
FIELDS = 100
_STUCK_SECONDS = 3.0
_BAD_ORDERS = (b"stuck", b"crash", b"raise", b"grow")


def null_detector(entry, settings, picture_of=None, on_step=None) -> Record:
    """A record of the usual size out of the digest of a file; some order it to misbehave."""
    key = identify(entry, settings)
    content = entry.model_path.read_bytes()
    if on_step is not None:
        on_step(entry.model_id, "read")
    _misbehave(content)
    return null_record(entry.model_id, hashlib.sha256(content).digest(), key)


def null_record(model: str, digest: bytes, key: str) -> Record:
    """A record with `FIELDS` fields of evidence."""
    fields = {f"synthetic_field_{n:03d}": digest[n % 32] / 255 + n for n in range(FIELDS)}
    probability = (digest[0] + 1) / 258
    seconds = {"read": 0.01, "convert": 0.02, "weights": 0.1}
    return Record(
        model, digest.hex(), probability, is_above(probability), digest[1] % 5, (0, 1, 2), "ok",
        "synthetic", seconds, fields, "resnet50", None, identity=key,
    )  # fmt: skip


def _misbehave(content: bytes) -> None:
    if content.startswith(b"stuck"):
        time.sleep(3600)
    elif content.startswith(b"crash"):
        os.abort()
    elif content.startswith(b"raise"):
        raise RuntimeError("as ordered")
    elif content.startswith(b"grow"):
        held = []
        while True:
            held.append(b"x" * 2**23)
            time.sleep(0.002)


def main() -> int:
    """Measure, print and write; returns the exit status."""
    parser = argparse.ArgumentParser(description="What the scan engine costs.")
    parser.add_argument("--models", type=int, default=10_000, help="0 for none")
    parser.add_argument("--ray-models", type=int, default=1_000, help="0 for none")
    parser.add_argument("--bad-models", type=int, default=1_000, help="of which 5 %% are bad")
    parser.add_argument(
        "--ray-bad-models", type=int, default=20_000,
        help="of which 1 %% crash and 1 %% hang, and one of two nodes is killed; 0 for none",
    )  # fmt: skip
    parser.add_argument("--read-models", type=int, default=100_000, help="0 for none")
    parser.add_argument("--out", type=Path, default=RESULTS / "scaling.json")
    args = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="scaling-"))
    try:
        result: dict[str, Any] = {"provenance": provenance(), "evidence_fields": FIELDS}
        if args.models:
            result["store"] = measure_store(home / "store", args.models)
            result["local"] = measure_local(home / "local", args.models)
        result["bad"] = measure_bad(home / "bad", args.bad_models) if args.bad_models else {}
        result["ray"] = measure_ray(home / "ray", args.ray_models) if args.ray_models else {}
        count = args.ray_bad_models
        result["ray_bad"] = measure_ray_bad(home / "ray_bad", count) if count else {}
        count = args.read_models
        result["read"] = measure_reading(home / "read", count) if count else {}
    finally:
        shutil.rmtree(home)
    write_atomic(args.out, json.dumps(result, indent=1).encode() + b"\n")
    print(json.dumps(result, indent=1))
    return 0


def make_models(
    folder: Path, count: int, bad_share: int = 0, orders: Sequence[bytes] = _BAD_ORDERS
) -> list[ModelEntry]:
    """Tiny model files; with `bad_share` every so many orders something bad, out of `orders`."""
    folder.mkdir(parents=True)
    for number in range(count):
        is_bad = bad_share and number % bad_share == bad_share // 2
        order = orders[number // bad_share % len(orders)] if is_bad else b"model"
        (folder / f"{number:06d}.pt").write_bytes(order + b" %06d" % number)
    return list(iter_models(folder))


def measure_store(folder: Path, count: int) -> dict[str, Any]:
    """Records appended per second, by the store's policy and forced to the disk one by one."""
    rates = {}
    for name, seconds in (("default", store_module.SYNC_SECONDS), ("each", 0.0)):
        some = count if name == "default" else min(count, 2_000)
        records = [null_record(f"{n:06d}", hashlib.sha256(b"%d" % n).digest(), "k") for n in
                   range(100)]  # fmt: skip
        store_module.SYNC_SECONDS = seconds
        with RunStore(folder / name, {}) as store:
            started = time.perf_counter()
            for number in range(some):
                store.append(records[number % 100])
            rates[name] = round(some / (time.perf_counter() - started))
    store_module.SYNC_SECONDS = 1.0
    return {"records_per_second": rates["default"], "with_fsync_each": rates["each"]}


def measure_local(folder: Path, count: int) -> dict[str, Any]:
    """Scan, resume and report `count` models; overhead per model and memory of this process."""
    entries = make_models(folder / "models", count)

    def engine(store: RunStore) -> Engine:
        return LocalEngine(Setup(SETTINGS, None, NULL), [Slot("here")], Guard(60.0, 2**33))

    first = _timed_scan(folder / "run", entries, engine)
    second = _timed_scan(folder / "run", entries, engine)
    assert first["fresh"] == count and second["fresh"] == 0 and second["records"] == count
    before, started = _resident(), time.perf_counter()
    line = summary(iter_records(folder / "run"))
    report = {"seconds": round(time.perf_counter() - started, 2), "summary": line}
    report["memory_growth_mib"] = round((_resident() - before) / 2**20, 1)
    return {
        "models": count,
        "records_mib": round((folder / "run" / "records.jsonl").stat().st_size / 2**20, 1),
        "scan": first,
        "resume": second,
        "read_back": report,
    }


def measure_bad(folder: Path, count: int) -> dict[str, Any]:
    """A scan with one model in twenty stuck, crashing, failing or growing without end."""
    entries = make_models(folder / "models", count, bad_share=20)
    guard = Guard(1.0, 512 * 2**20)

    def engine(store: RunStore) -> Engine:
        slots = [Slot("here"), Slot("there")]
        return LocalEngine(Setup(SETTINGS, None, NULL), slots, guard, store.log_path)

    found = _timed_scan(folder / "run", entries, engine)
    failed = sum(record.status == "failed" for record in iter_records(folder / "run"))
    assert (found["records"], failed) == (count, count // 20)
    return {"models": count, "bad": count // 20, "failed_records": failed, "workers": 2} | found


def measure_ray(folder: Path, count: int) -> dict[str, Any]:
    """The same on a Ray cluster of two nodes on this machine."""
    entries = make_models(folder / "models", count)
    with _two_nodes() as (version, _):
        found = _timed_scan(folder / "run", entries, _on_ray(Guard(60.0)))
    assert found["records"] == count
    return {"models": count, "nodes": 2, "workers": 2, "version": version} | found


def measure_ray_bad(folder: Path, count: int) -> dict[str, Any]:
    """On Ray with 1 % of the models crashing, 1 % stuck, and a node that dies half way."""
    entries = make_models(folder / "models", count, bad_share=50, orders=(b"crash", b"stuck"))
    with _two_nodes() as (version, kill):
        found = _timed_scan(folder / "run", entries, _on_ray(Guard(_STUCK_SECONDS)), kill)
    names = [record.model for record in iter_records(folder / "run")]
    failed = sum(record.status == "failed" for record in iter_records(folder / "run"))
    assert len(names) == len(set(names)) == found["records"] == count, (len(names), found)
    bad = sum(number % 50 == 25 for number in range(count))
    assert failed == bad, (failed, bad)
    told = {"models": count, "failed_records": failed, "stuck_after_seconds": _STUCK_SECONDS}
    return told | {"nodes": "2, then 1", "version": version} | found


def _on_ray(guard: Guard) -> Callable[[RunStore], Engine]:
    from jaxtroj.engine.ray_cluster import RayEngine

    return lambda store: RayEngine(Setup(SETTINGS, None, NULL), guard, 2)


@contextmanager
def _two_nodes() -> Iterator[tuple[str, Callable[[], None]]]:
    """A Ray cluster of two nodes on this machine: its version, and what kills the second node."""
    import ray
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    second = cluster.add_node(num_cpus=1)
    path = os.pathsep.join(filter(None, sys.path))
    ray.init(
        address=cluster.address,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )
    try:
        yield ray.__version__, lambda: cluster.remove_node(second, allow_graceful=False)
    finally:
        ray.shutdown()
        cluster.shutdown()


def measure_reading(folder: Path, count: int) -> dict[str, Any]:
    """Reading the records of a large run, and its page: seconds, memory and size."""
    with RunStore(folder, {}) as store:
        for number in range(count):
            digest = hashlib.sha256(b"%d" % number).digest()
            store.append(null_record(f"id-{number:08d}", digest, digest.hex()[:32]))
    started, spent = time.perf_counter(), time.process_time()
    assert sum(1 for _ in iter_records(folder)) == count
    one_by_one, started = time.perf_counter() - started, time.perf_counter()
    spent_one_by_one, spent = time.process_time() - spent, time.process_time()
    assert len(read_records(folder)) == count
    at_once, started = time.perf_counter() - started, time.perf_counter()
    spent_at_once = time.process_time() - spent
    page = render(read_content(folder))
    return {
        "models": count,
        "records_mib": round((folder / "records.jsonl").stat().st_size / 2**20, 1),
        "iter_records_seconds": round(one_by_one, 2),
        "iter_records_processor_seconds": round(spent_one_by_one, 2),
        "read_records_seconds": round(at_once, 2),
        "read_records_processor_seconds": round(spent_at_once, 2),
        "page_seconds": round(time.perf_counter() - started, 2),
        "page_mib": round(len(page.encode()) / 2**20, 1),
        "memory_mib": round(_resident() / 2**20, 1),
    }


def _timed_scan(
    run: Path,
    entries: Sequence[ModelEntry],
    engine_of: Callable[[RunStore], Engine],
    half_way: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Milliseconds per model from the first tenth on, and memory then and at the end.

    `half_way` is called once half of the models have a record.
    """
    tally, mark, first = Tally(len(entries)), len(entries) // 10, 0.0
    begun = memory = last = 0.0
    with RunStore(run, SETTINGS.as_json()) as store:
        started = time.perf_counter()
        for outcome in run_scan(entries, SETTINGS, store, engine_of(store)):
            tally.add(outcome.record, outcome.fresh)
            last = time.perf_counter()
            first = first or last - started
            if tally.done == len(entries) // 2:
                half_way()
            if tally.done == mark:
                begun, memory = last, _resident()
        records = len(store)
    return {
        "records": records,
        "fresh": tally.fresh,
        "first_record_seconds": round(first, 2),
        "seconds": round(last - started, 2),
        "milliseconds_per_model": round((last - begun) / (len(entries) - mark) * 1e3, 3),
        "memory_at_a_tenth_mib": round(memory / 2**20, 1),
        "memory_at_the_end_mib": round(_resident() / 2**20, 1),
    }


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
