"""`jaxtroj detect hf://ORG/NAME`: the hub's real client, and a local server that speaks its API."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from converters.errors import LoadError
from converters.fetching import HUB, LIMIT, fetch_in_time
from converters.hub.fetch import address_of, fetch
from jaxtroj.rounds.arrays import pictures_of, write_pictures
from tests.door.hub_folders import SIDE, write_folder
from tests.door.hub_server import COMMIT, DRIPPING, SILENT, serving

QUICK = ("--evidence-only", "--stages", "weights", "--json")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """`vit`, a folder that is served; `examples`; and `cache`, which the client fills."""
    root = tmp_path_factory.mktemp("hub")
    write_folder(root / "vit", "vit")
    (root / "vit" / "modeling_evil.py").write_text("open('ran', 'w')")
    (root / "vit" / "pytorch_model.bin").write_bytes(b"never fetched")
    pixels = np.random.default_rng(0).integers(0, 256, (6, SIDE, SIDE, 3)).astype(np.uint8)
    write_pictures(pictures_of(pixels, np.arange(6) % 3), root / "examples")
    return root


def detect(home, *models, **environment):
    """Records of a command of its own, by their models."""
    words = [sys.executable, "-m", "jaxtroj", "detect", *models, *QUICK]
    words += ["--examples", str(home / "examples")]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    places = {"HF_HOME": str(home / "cache"), "HF_HUB_DISABLE_TELEMETRY": "1"}
    found = subprocess.run(
        words, capture_output=True, text=True, timeout=400, env=clean | places | environment
    )
    lines = [json.loads(line) for line in found.stdout.splitlines()]
    assert len(lines) == len(models), found.stderr
    return {line["model"]: line for line in lines}


def test_fetched_judged_and_found_again_without_a_network(home):
    with serving({"org/vit": home / "vit"}) as (address, asked):
        found = detect(
            home,
            "hf://org/vit@v1",
            "hf://org/none",
            "hf://org/gated",
            "hf://org/vit@nope",
            "hf://a b",
            HF_ENDPOINT=address,
            HF_HUB_ETAG_TIMEOUT="5",
        )
        fetched = {path.rpartition("/")[2] for path in asked if "/resolve/" in path}
    assert fetched == {"config.json", "preprocessor_config.json", "model.safetensors"}
    record = found["hf://org/vit@v1"]
    assert record["status"] == "ok", record["reason"]
    assert record["input_form"]["basis"] == "folder"
    said = " ".join(record["findings"])
    assert f"commit {COMMIT} of org/vit" in said
    assert "model.safetensors: sha256 " in said and "config.json: sha256" in said
    reasons = {name: line["reason"] for name, line in found.items() if line["status"] == "failed"}
    assert reasons == {
        "hf://org/none@main": "the hub has no org/none, or it is private; check the name, or log in"
        " with HF_TOKEN or `hf auth login`",
        "hf://org/gated@main": "org/gated is gated: accept its terms on the hub, then log in with"
        " HF_TOKEN or `hf auth login`",
        "hf://org/vit@nope": "org/vit has no revision nope; name a branch, a tag or a commit",
        "hf://a b@main": "hf://a b@main names no repository, expected hf://ORG/NAME",
    }
    away = detect(home, "hf://org/vit@v1", "hf://org/new", HF_ENDPOINT=address, HF_HUB_OFFLINE="1")
    assert away["hf://org/vit@v1"]["sha256"] == record["sha256"]
    assert away["hf://org/vit@v1"]["evidence"] == record["evidence"]
    reason = away["hf://org/new@main"]["reason"]
    assert reason.startswith(
        f"cannot fetch hf://org/new@main from {address}, and the cache has not"
    )
    assert "name the folder" in reason and reason.count("cannot fetch") == 1
    assert not (home / "ran").exists()


def test_a_server_that_says_nothing_or_a_byte_at_a_time_is_not_waited_for(home, tmp_path):
    started = time.monotonic()
    with serving({name: home / "vit" for name in (SILENT, DRIPPING)}) as (address, asked):
        found = detect(
            home,
            f"hf://{SILENT}",
            f"hf://{DRIPPING}",
            HF_ENDPOINT=address,
            HF_HOME=str(tmp_path),
            HF_HUB_ETAG_TIMEOUT="1",
            JAXTROJ_FETCH_SECONDS="15",
        )
    assert time.monotonic() - started < 120
    assert {line["status"] for line in found.values()} == {"failed"}
    silent, dripping = (line["reason"] for line in found.values())
    assert silent.startswith(f"cannot fetch hf://{SILENT}@main from {address}, and the cache has")
    assert dripping == (
        f"cannot fetch hf://{DRIPPING}@main: it was not here after 15 s; allow more with"
        " JAXTROJ_FETCH_SECONDS, or download it and name the folder"
    )
    assert any(DRIPPING in path and path.endswith("/model.safetensors") for path in asked)


def test_a_limit_that_is_no_number_is_said(monkeypatch):
    for said in ("soon", "0", "-1", "inf", "nan"):
        monkeypatch.setenv(LIMIT, said)
        with pytest.raises(LoadError, match=f"JAXTROJ_FETCH_SECONDS is '{said}', expected seconds"):
            fetch_in_time(HUB, "hf://org/net")


@pytest.mark.parametrize(("sent", "said"), [(signal.SIGINT, "interrupted\n"), (signal.SIGKILL, "")])
def test_ctrl_c_and_the_end_of_a_command_end_its_download(tmp_path, sent, said):
    code = (
        # A shell's background jobs ignore SIGINT, and so would what they start.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from converters.fetching import HUB, fetch_in_time\n"
        f"try: fetch_in_time(HUB, 'hf://{SILENT}')\n"
        "except KeyboardInterrupt: print('interrupted', flush=True)"
    )
    with serving({}) as (address, asked):
        command = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
            env=os.environ | {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path)},
            start_new_session=True,
        )  # fmt: skip
        until(lambda: asked)
        assert len(session_of(command.pid)) == 2
        command.send_signal(sent)
        assert command.communicate(timeout=30)[0] == said
        until(lambda: not session_of(command.pid))


def until(holds) -> None:
    """Wait until something holds, at most a minute."""
    ends = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.1)


def session_of(leader: int) -> list[str]:
    """Processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has gone since
            state, _, _, session = stat.read_text().rpartition(")")[2].split()[:4]
            if int(session) == leader and state != "Z":
                found.append(stat.parent.name)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf://org/net", "hf://org/net@main"),
        ("hf:/org/net", "hf://org/net@main"),
        ("hf://org/net@refs/pr/3", "hf://org/net@refs/pr/3"),
        ("hf://net", "hf://net@main"),
        ("hf.pt", "None"),
        ("a/hf://net", "None"),
    ],
)
def test_addresses(text, expected):
    assert str(address_of(text)) == expected


def test_what_is_too_large_is_not_fetched(home, tmp_path):
    code = (
        "import converters.hub.fetch as hub; hub.MOST_BYTES = 1000\n"
        "try: hub.fetch('hf://org/vit')\n"
        "except hub.TooLargeError as error: print(error)"
    )
    with serving({"org/vit": home / "vit"}) as (address, asked):
        places = {"HF_ENDPOINT": address, "HF_HOME": str(tmp_path)}
        found = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=200,
            env=os.environ | places,
        )  # fmt: skip
    assert "bytes of weights, expected at most 1000" in found.stdout, found.stderr
    assert not any("/resolve/" in path for path in asked)


def test_a_cache_that_answers_for_a_branch_is_told_of(monkeypatch, tmp_path, capsys):
    """What the hub has by now may be another network."""
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *a, **k: str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"")
    for sizes, address, is_told in [
        (None, "hf://org/net", True),
        (None, f"hf://org/net@{'a' * 40}", False),
        ({}, "hf://org/net", False),
    ]:
        monkeypatch.setattr("converters.hub.fetch._sizes", lambda address, sizes=sizes: sizes)
        assert fetch(address) == tmp_path
        said = capsys.readouterr().err
        assert ("not reached: hf://org/net@main is what the cache has" in said) == is_told, address
