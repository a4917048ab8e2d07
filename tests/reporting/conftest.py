"""A run folder with everything that a report shows, hostile in every field where asked for."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtroj.evidence.stages import IMAGES, TEXTS
from jaxtroj.record import Record
from jaxtroj.record_text import write_trigger
from jaxtroj.store import RunStore
from jaxtroj.triggers.mask import FreeMask

ATTACK = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
"""Runs when any page shows it as markup."""

REFUSED = "model.pt: the pickle asks for the global 'os.system'; nothing was executed"


def evidence(fields, random: np.random.Generator) -> dict[str, float]:
    return {field.name: float(random.normal()) for field in fields}


def records(store: RunStore, count: int, random: np.random.Generator, trouble: str) -> list[Record]:
    """`count` records: of pictures and texts, poisoned and clean, failed, skipped."""
    made = []
    for number in range(count):
        kind, name = number % 6, f"id-{number:08d}{trouble}"
        if kind == 4:
            made.append(Record(name, "ab" * 32, 0.5, False, None, (), "failed", REFUSED + trouble))
            continue
        if kind == 5:
            made.append(Record(name, "", 0.5, False, None, (), "skipped", f"erratum{trouble}"))
            continue
        is_text, poisoned = kind == 3, kind in (1, 3)
        fields = TEXTS.fields if is_text else IMAGES.fields
        trigger, recovered = None, {}
        if poisoned and is_text:
            recovered = {"method": "bank", "score": 0.93, "text": f"wholly unforgettable{trouble}"}
        elif poisoned:
            path = store.trigger_path(name)
            mask = np.zeros((16, 16, 1), np.float32)
            mask[4:8, 4:8] = 1
            trigger = FreeMask(jnp.asarray(mask), jnp.full((16, 16, 3), 0.2, np.float32))
            panels = trigger.picture(random.random((16, 16, 3)), np.zeros(2, int))
            write_trigger(path, panels)
            trigger, recovered = str(path) + trouble, {"method": "patch" + trouble, "score": 0.9}
            recovered |= {"kind": "mask" + trouble, "flips": flips(trouble)}
        probability = 0.6 + 0.39 * random.random() if poisoned else 0.4 * random.random()
        made.append(
            Record(
                model=name,
                sha256="cd" * 32,
                probability=probability,
                poisoned=poisoned,
                target_class=1 if poisoned else None,
                source_classes=(0, 2) if poisoned else (),
                status="ok",
                reason=f"a patch was found is 0.91; no other class has one is 0.5{trouble}",
                seconds={"read": 0.1, "probes" + trouble: float(random.uniform(1, 9))},
                evidence=evidence(fields, random) | ({trouble: 1.0} if trouble else {}),
                kind="text" if is_text else "image",
                architecture=("gru" if is_text else ("resnet50", "densenet121")[number % 2])
                + trouble,
                trigger=trigger,
                recovered=recovered,
                searched=("mask" + trouble, "warp"),
                found={"mask": 0.9, "pixels" + trouble: 0.25},
                findings=(f"the layout was assumed{trouble}",) if number % 6 == 2 else (),
                identity=f"{number:032x}",
            )
        )
    return made


def flips(trouble: str) -> dict:
    """Classes 0 and 2 go to class 1; other than a scan writes it where there is trouble."""
    percent = [[10, 90, 0], [0, 100, 0], [0, 75, trouble or 25]]
    return {"sources": [0, 1, 2], "targets": [0, 1, 2], "percent": percent}


def make_run(folder: Path, count: int = 24, trouble: str = "") -> tuple[Path, Path]:
    """A run folder and a table of its labels; `trouble` goes into every text."""
    random = np.random.default_rng(7)
    lines = ["model_name,poisoned,kind"]
    with RunStore(folder / "run", {"seed": 0, "note": "n" + trouble}) as store:
        for record in records(store, count, random, trouble):
            store.append(record)
            if record.status != "skipped":
                label = record.poisoned if random.random() < 0.8 else not record.poisoned
                quoted = record.model.replace('"', '""')
                lines.append(f'"{quoted}",{label},"{"ab"[label]}{trouble}"')
    truth = folder / "truth.csv"
    truth.write_text("\n".join(lines))
    return folder / "run", truth


@pytest.fixture
def run_and_truth(tmp_path):
    return make_run(tmp_path)


@pytest.fixture
def hostile(tmp_path):
    return make_run(tmp_path, trouble=ATTACK)


@pytest.fixture
def make():
    """`make_run`, for runs of another size."""
    return make_run


DOUBTS = ("probabilities: sums of 1", "possible architectural backdoor: gt compares pixels")
"""A flag, and what is no flag and puts an answer in doubt all the same."""
PLAIN = ("batch norm x13; none of the 9 operators depends on x", "no-last-layer: no weight")


@pytest.fixture
def flagged(tmp_path):
    """A run with a doubtful clean answer, a doubtful poisoned one, and one with plain findings."""
    caveats = ("the calibrator has met no densenet",)
    with RunStore(tmp_path / "run", {}) as store:
        for name, findings, rate in (
            ("flagged", (*DOUBTS, *PLAIN), 0.1),
            ("called", DOUBTS[:1], 0.9),
            ("plain", PLAIN, 0.1),
        ):
            said = {"findings": findings, "caveats": caveats, "identity": f"{len(name):032x}"}
            record = Record(name, "", rate, rate > 0.5, None, (), "ok", "because", **said)
            store.append(record)
    return tmp_path / "run"
