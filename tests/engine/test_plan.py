from dataclasses import replace
from pathlib import Path

import pytest

from jaxtroj.engine import ray_cluster
from jaxtroj.engine.devices import (
    Slot,
    cgroup_limits,
    local_slots,
    memory_of_machine,
    memory_per_worker,
    visible_gpus,
)
from jaxtroj.engine.guard import Guard
from jaxtroj.engine.jobs import ScanJob, Setup
from jaxtroj.engine.local import check_workers
from jaxtroj.engine.plan import WorkPlan, first_of_each_group, groups_of, make_jobs
from jaxtroj.errors import EngineError
from jaxtroj.rounds import ModelEntry, TextConfig
from jaxtroj.settings import Settings


def entry(name: str, kind: str = "image", **metadata: str) -> ModelEntry:
    return ModelEntry(name, Path("no/where") / name, None, None, metadata, kind=kind)


def unknown(_) -> tuple[str, ...]:
    return ()


def test_groups_follow_the_metadata():
    cells = [("resnet50", "5"), ("resnet50", "5"), ("resnet50", "6"), ("resnet18", "5"), ("", "5")]
    some = [
        entry(str(n), model_architecture=architecture, number_classes=classes)
        for n, (architecture, classes) in enumerate(cells)
    ]
    found = groups_of(some)
    assert found[0] == found[1] and len(set(found)) == 4
    assert [e.model_id for e in first_of_each_group(some)] == ["0", "2", "3", "4"]


def test_without_metadata_groups_follow_the_size(tmp_path):
    sizes = [("a.pt", 100_000), ("c.pt", 200_000), ("b.pt", 101_900), ("d.pth", 100_000)]
    some = []
    for name, size in sizes:
        (tmp_path / name).write_bytes(bytes(size))
        some.append(ModelEntry(name, tmp_path / name, None, None))
    found = groups_of([*some, entry("gone.pt"), entry("gone too.pt")])
    assert found[0] == found[2] and found[4] == found[5] and len(set(found)) == 4


def test_text_models_of_one_configuration_go_together():
    def text(number: int, architecture: str) -> ModelEntry:
        config = TextConfig(embedding="BERT", model_architecture=architecture)
        return replace(entry(f"t{number}", "text"), text_config=config)

    some = [text(n, "GruLinear" if n % 2 else "LstmLinear") for n in range(6)]
    jobs = make_jobs([*some, entry("picture")], unknown)
    assert [job.entry.model_id for job in jobs] == ["t0", "t2", "t4", "t1", "t3", "t5", "picture"]
    assert len({job.group for job in jobs}) == 3
    assert [e.model_id for e in first_of_each_group(some)] == ["t0", "t1"]


def test_what_is_on_file_travels_with_the_job():
    (job,) = make_jobs([entry("a")], lambda e: (f"identity of {e.model_id}",))
    assert job.known == ("identity of a",)


def plan_of(*groups: str) -> WorkPlan:
    return WorkPlan(ScanJob(entry(f"{g}{n}"), (), g) for n, g in enumerate(groups))


def test_workers_stay_with_their_group_and_then_help_others():
    plan = plan_of(*"aabbbb")
    taken = {who: [] for who in "xy"}
    for who in "xyxyxy":
        job = plan.take(who)
        assert job is not None
        taken[who].append(job.group)
    assert taken == {"x": ["a", "a", "b"], "y": ["b", "b", "b"]}
    assert len(plan) == 0 and plan.take("x") is None


def test_help_goes_where_most_is_left():
    plan = plan_of(*"abbccc")
    for who in "xyz":  # one on each group
        plan.take(who)
    assert plan.take("x").group == "c"  # pyright: ignore[reportOptionalMemberAccess]
    assert [job.group for job in (plan.take("y"), plan.take("z")) if job] == ["b", "c"]


def test_a_model_that_was_given_up_is_answered_before_the_others():
    """Its record is to stand when a budget or a signal ends the scan."""
    plan = plan_of("a", "b")
    assert plan.take("x") is not None
    plan.put(ScanJob(entry("slow"), (), "a", alone=True, failure="took 5 s"))
    plan.put(ScanJob(entry("again"), (), "a", alone=True))
    assert len(plan) == 3
    assert plan.take("y", busy=True).group == "b"  # pyright: ignore[reportOptionalMemberAccess]
    assert [job.entry.model_id for job in (plan.take("x"), plan.take("x")) if job] == [
        "slow",
        "again",
    ]


def test_a_job_of_a_worker_that_did_not_start_is_the_next_of_its_group():
    plan = plan_of("a", "a")
    plan.put(ScanJob(entry("back"), (), "a"), first=True)
    job = plan.take("x")
    assert job is not None and job.entry.model_id == "back"


def test_what_must_be_alone_comes_last_and_only_to_the_idle():
    plan = plan_of("a")
    for name, first in (("second", False), ("first", True)):
        plan.put(ScanJob(entry(name), alone=True), first)
    assert [plan.take("x").group, plan.take("x", busy=True)] == ["a", None]  # pyright: ignore
    assert plan.take("x").entry.model_id == "first"  # pyright: ignore
    assert len(plan) == 1


@pytest.mark.parametrize(
    "variable, gpus",
    [("0,1", ["0", "1"]), ("", []), ("-1", []), (" GPU-a , GPU-b", ["GPU-a", "GPU-b"])],
)
def test_gpus_are_those_that_the_user_leaves_visible(monkeypatch, variable, gpus):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert visible_gpus() == gpus
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert visible_gpus() == []


def test_more_workers_than_the_memory_starts_are_refused_with_a_number_that_goes(monkeypatch):
    monkeypatch.setattr("jaxtroj.engine.devices.memory_of_machine", lambda: 10 * 2**30)
    with pytest.raises(EngineError, match="100000 workers would get .* take --workers 36 at most"):
        check_workers(100_000)
    check_workers(36)
    with pytest.raises(EngineError):
        check_workers(37)
    monkeypatch.setattr("jaxtroj.engine.devices.memory_of_machine", lambda: 2**20)
    check_workers(1)  # the only one takes what there is


def test_workers_beyond_the_gpus_share_them(monkeypatch):
    monkeypatch.setattr("jaxtroj.engine.devices.visible_gpus", lambda: ["0", "1"])
    assert [slot.environment for slot in local_slots(None)] == [
        {"CUDA_VISIBLE_DEVICES": "0"},
        {"CUDA_VISIBLE_DEVICES": "1"},
    ]
    shared = local_slots(3)
    assert [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in shared] == ["0", "1", "0"]
    assert {slot.environment["XLA_PYTHON_CLIENT_MEM_FRACTION"] for slot in shared} == {"0.450"}
    monkeypatch.setattr("jaxtroj.engine.devices.visible_gpus", list)
    assert local_slots(2) == [Slot("the processor")] * 2
    assert 2**28 < memory_of_machine() < 2**50


@pytest.mark.parametrize(
    ("own", "files", "limits"),
    [
        ("0::/", {"memory.max": "7"}, [7]),
        ("0::/a/b", {"memory.max": "max", "a/memory.max": "9", "a/b/memory.max": "max"}, [9]),
        ("0::/a/b", {"a/memory.max": "9", "a/b/memory.max": "5"}, [5, 9]),
        ("0::/not/mounted", {"memory.max": "7", "a/memory.max": "5"}, [7]),
        ("0::/../../a", {"a/memory.max": "9"}, [9]),
        (
            "9:name=systemd:/x\n4:memory,hugetlb:/job\n1:cpu:/y\n0::/",
            {
                "memory/memory.limit_in_bytes": "9223372036854771712",
                "memory/job/memory.limit_in_bytes": "6",
                "memory/y/memory.limit_in_bytes": "1",
                "memory/x/memory.limit_in_bytes": "1",
            },
            [6, 9223372036854771712],
        ),
        ("no colons\n", {}, []),
    ],
)
def test_limits_of_memory_are_those_of_all_control_groups_on_the_way(tmp_path, own, files, limits):
    for name, text in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (tmp_path / "own").write_text(own)
    assert sorted(cgroup_limits(tmp_path / "own", tmp_path / "fs")) == limits


def test_no_control_groups_are_no_limit(tmp_path):
    assert cgroup_limits(tmp_path / "absent", tmp_path) == []


@pytest.mark.parametrize(("gpus", "sharing", "share"), [(0, 2, 2), (4, 5, 4), (8, 1, 1)])
def test_a_host_takes_its_share_of_the_memory_of_its_own_node(monkeypatch, gpus, sharing, share):
    monkeypatch.setattr(ray_cluster, "_gpus_here", lambda: gpus)
    for limit, expected in ((None, memory_per_worker(share)), (7, 7)):
        host = ray_cluster.Host(Setup(Settings()), Guard(memory=limit), {}, "", sharing)
        assert host._engine._guard.memory == expected
        host.close()
