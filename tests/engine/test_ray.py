"""A real Ray cluster of several nodes on this machine, one of which dies."""

import logging
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="needs the extra `ray`")

import jaxtroj  # noqa: E402
from jaxtroj.engine.devices import Slot  # noqa: E402
from jaxtroj.engine.guard import Guard  # noqa: E402
from jaxtroj.engine.jobs import Setup, Watch  # noqa: E402
from jaxtroj.engine.local import LocalEngine  # noqa: E402
from jaxtroj.engine.ray_cluster import RayEngine  # noqa: E402
from jaxtroj.engine.run import run_scan  # noqa: E402
from jaxtroj.evidence.stages import IMAGES  # noqa: E402
from jaxtroj.rounds import iter_models  # noqa: E402
from jaxtroj.store import RunStore  # noqa: E402

from .conftest import DETECTOR, SETTINGS  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # Ray's own: sockets and processes that it leaves to the collector, its coming defaults.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def cluster(detector_path, monkeypatch):
    """A head without room for work, and two nodes of two processors."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [made.add_node(num_cpus=2) for _ in range(2)]
    path = os.pathsep.join(filter(None, sys.path))
    ray.init(
        address=made.address,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": path}},
    )
    made.nodes_to_kill = nodes
    yield made
    ray.shutdown()
    made.shutdown()


def plain(record, folder):
    """The record without what may differ: times, and the run folder in the picture's path."""
    trigger = record.trigger and record.trigger.replace(str(folder), "RUN")
    return replace(record, seconds={}, trigger=trigger)


def by_local(entries, folder) -> dict:
    with RunStore(folder, SETTINGS.as_json()) as store:
        setup = Setup(SETTINGS, store.pictures, DETECTOR)
        engine = LocalEngine(setup, [Slot("here")], Guard(timeout=20))
        found = list(run_scan(entries, SETTINGS, store, engine))
    return {o.record.model: plain(o.record, folder) for o in found}


def test_records_are_those_of_the_local_engine_though_a_node_dies(cluster, orders, tmp_path):
    entries = orders(*["picture", "device 0.25", "raises", "crashes", "device 0.25"] * 8)
    expected = by_local(entries, tmp_path / "local")
    folder, lines, found = tmp_path / "ray", [], []
    with RunStore(folder, SETTINGS.as_json()) as store:
        engine = RayEngine(Setup(SETTINGS, None, DETECTOR), Guard(timeout=20), 4)
        for outcome in run_scan(entries, SETTINGS, store, engine, Watch(log=lines.append)):
            found.append(outcome)
            if len(found) == 12:
                cluster.remove_node(cluster.nodes_to_kill.pop(), allow_graceful=False)
    assert any("a host ended" in line for line in lines), lines
    assert {o.record.model: plain(o.record, folder) for o in found} == expected
    for name in ("local", "ray"):
        pictures = sorted((tmp_path / name / "triggers").iterdir())
        assert [p.read_bytes() for p in pictures] == [
            b"picture of " + e.model_id.encode() for e in entries if "picture" in e.model_id
        ]
    with RunStore(folder, SETTINGS.as_json()) as store:
        engine = RayEngine(Setup(SETTINGS, None, DETECTOR), Guard(timeout=20), 1)
        again = list(run_scan(entries, SETTINGS, store, engine))
    assert len(again) == len(entries) and not any(o.fresh for o in again)


def test_a_model_that_takes_its_host_along_is_given_up(cluster, orders, tmp_path):
    entries = orders("device 0", "kills-parent", "device 0", "stuck")
    with RunStore(tmp_path / "run", SETTINGS.as_json()) as store:
        engine = RayEngine(Setup(SETTINGS, None, DETECTOR), Guard(timeout=2), 2)
        found = list(run_scan(entries, SETTINGS, store, engine))
    reasons = {o.record.model: (o.record.status, o.record.reason) for o in found}
    assert [reasons[entry.model_id][0] for entry in entries] == ["ok", "failed", "ok", "failed"]
    assert "died 3 times" in reasons[entries[1].model_id][1]
    assert "was stopped after 2 s" in reasons[entries[3].model_id][1]


def test_busy_hosts_leave_nothing_behind(cluster, orders, tmp_path):
    """Each left an empty folder where the scan ended before its chunk."""

    def folders() -> set[Path]:
        return set(Path(tempfile.gettempdir()).glob("jaxtroj-*"))

    before = folders()
    with RunStore(tmp_path / "run", SETTINGS.as_json()) as store:
        engine = RayEngine(Setup(SETTINGS, None, DETECTOR), Guard(timeout=60), 1)
        scan: Any = run_scan(orders("device 0", *["stuck"] * 4), SETTINGS, store, engine)
        assert next(scan).record.status == "ok"
        made = folders() - before
        scan.close()
    assert made and not made & folders()


def test_real_models_answer_bit_for_bit_alike(cluster, tmp_path):
    settings = replace(SETTINGS, stages=("weights", "probes"))
    entries = list(iter_models(Path(jaxtroj.__file__).parent / "data" / "examples"))
    records = {}
    for name in ("local", "ray"):
        folder = tmp_path / name
        with RunStore(folder, settings.as_json()) as store:
            if name == "ray":
                engine = RayEngine(Setup(settings), Guard(300), 1)
            else:
                engine = LocalEngine(Setup(settings, store.pictures), [Slot("here")], Guard(300))
            found = [o.record for o in run_scan(entries, settings, store, engine)]
        records[name] = [plain(record, folder) for record in found]
        assert all(Path(r.trigger or "").is_file() for r in found)
    assert [record.status for record in records["local"]] == ["ok", "ok"]
    fields = {name for stage in settings.stages for name in IMAGES.stage_fields[stage]}
    assert [set(record.evidence) for record in records["local"]] == [fields] * 2
    assert records["ray"] == records["local"]
