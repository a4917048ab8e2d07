"""`--accept` from end to end: exit statuses, reports that agree with them, and what is refused."""

import csv
import io
import json
import shutil
from pathlib import Path

import pytest

import jaxtroj
from jaxtroj.cli.main import main
from jaxtroj.record import Record, digest_file
from jaxtroj.store import RunStore

pytestmark = pytest.mark.usefixtures("unguarded")

EXAMPLES = Path(jaxtroj.__file__).parent / "data" / "examples"
POISONED, OTHER = "ab" * 32, "cd" * 32
REASON = "known [as is] {a} \u00e9"
QUICK = "weights,statistics"  # enough for the poisoned example to be called so


def run(*arguments) -> int:
    return main([str(word) for word in arguments])


def accept(path: Path, *digests: str, expires: str = "2999-12-31") -> Path:
    tables = (
        f'[[accepted]]\nsha256 = "{one}"\nowner = "Ann"\nreason = "{REASON}"\nexpires = {expires}\n'
        for one in digests
    )
    path.write_text("".join(tables))
    return path


@pytest.fixture
def small(tmp_path):
    with RunStore(tmp_path / "run", {}) as store:
        for name, digest, probability in (("bad", POISONED, 0.9), ("fine", OTHER, 0.1)):
            poisoned = probability > 0.5
            store.append(
                Record(name, digest, probability, poisoned, None, (), "ok", "", identity=name * 8)
            )
    return tmp_path


def change(path: Path) -> None:
    """Other bytes, the same answer: the lowest bit of the last weight."""
    data = bytearray(path.read_bytes())
    data[-4] ^= 1
    path.write_bytes(data)


def test_a_scan_with_an_accepted_model_passes_until_its_file_changes(tmp_path, capsys):
    model = tmp_path / "models" / "id-00000001"
    shutil.copytree(EXAMPLES / "poisoned", model)
    scan = ("scan", tmp_path / "models", "--out", tmp_path / "run", "--stages", QUICK)
    assert run(*scan) == 1
    file = accept(tmp_path / "ours.toml", digest_file(model / "model.pt"))
    assert run(*scan, "--accept", file) == 0
    captured = capsys.readouterr()
    assert "accepted by Ann until 2999-12-31: known" in captured.out
    assert "0 poisoned, 0 clean, 0 failed, 0 skipped, 1 accepted" in captured.err
    assert run("report", tmp_path / "run", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"accepted": 1}
    change(model / "model.pt")
    assert run(*scan, "--accept", file) == 1
    assert "no model of this run has the sha256" in capsys.readouterr().err
    assert run(*scan) == 1
    capsys.readouterr()
    assert run("report", tmp_path / "run", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"poisoned": 1}
    assert run("detect", EXAMPLES / "poisoned", "--json", "--accept", file) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accepted"]["owner"] == "Ann"
    other = accept(tmp_path / "other.toml", OTHER)
    assert run("detect", EXAMPLES / "poisoned", "--stages", QUICK, "--accept", other) == 1
    assert "no model of this run" not in capsys.readouterr().err
    assert run(*scan, "--limit", 1, "--accept", other) == 1
    assert "no model of this run" not in capsys.readouterr().err
    assert run("report", tmp_path / "run", "--format", "json") == 0
    assert "no model of this run" not in capsys.readouterr().err
    assert run(*scan, "--accept", other) == 1
    assert "no model of this run has the sha256" in capsys.readouterr().err
    assert run("report", tmp_path / "run", "--format", "json") == 0
    assert "no model of this run has the sha256" in capsys.readouterr().err
    assert found["recovered"]["flips"]["targets"] == [3], "its trigger sends all to class 3"
    # A polygon of one colour was planted; speckles that move the network as well are no answer.
    assert found["recovered"]["kind"] == "patch"


@pytest.mark.parametrize(
    "form", ["json", "csv", "sarif", "markdown", "html", "cyclonedx", "intoto"]
)
def test_every_report_shows_it_as_accepted(small, capsys, form):
    file = accept(small / "ours.toml", POISONED)
    words = ("report", small / "run", "--format", form, "--out", "-")
    assert run(*words, "--accept", file) == 0
    text = capsys.readouterr().out
    assert "until 2999-12-31" in text or "2999-12-31" in text
    if form == "json":
        assert json.loads(text)["counts"] == {"accepted": 1, "clean": 1}
    elif form == "csv":
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [row["verdict"] for row in rows] == ["accepted", "clean"]
        assert rows[0]["accepted"].startswith("accepted by Ann") and not rows[1]["accepted"]
    elif form == "sarif":
        (result,) = json.loads(text)["runs"][0]["results"]
        assert result["suppressions"][0]["status"] == "accepted"
        said = result["suppressions"][0]["justification"]
        assert said == f"accepted by Ann until 2999-12-31: {REASON}"  # plain text: no escapes
    elif form == "cyclonedx":
        (found,) = json.loads(text)["vulnerabilities"]
        assert found["analysis"]["response"] == ["will_not_fix"]
    elif form == "intoto":
        verdicts = [json.loads(line)["predicate"]["verdict"] for line in text.splitlines()]
        assert verdicts == ["accepted", "clean"]
    elif form == "markdown":
        assert "## Accepted models" in text and "## Models to look at" not in text
    else:
        assert '"word":"accepted"' in text
    assert run(*words) == 0
    assert "2999-12-31" not in capsys.readouterr().out


@pytest.mark.parametrize("form", ["json", "sarif", "markdown", "html"])
def test_a_lapsed_entry_stands_in_the_report(small, capsys, form):
    file = accept(small / "ours.toml", POISONED, expires="2001-01-01")
    assert run("report", small / "run", "--format", form, "--out", "-", "--accept", file) == 0
    text = capsys.readouterr().out.replace("\\", "")
    assert "ended on 2001-01-01; the model is flagged again" in text


@pytest.mark.parametrize("command", ["detect", "scan", "report"])
def test_a_wrong_file_ends_a_command_before_any_work(small, capsys, command):
    (small / "ours.toml").write_text("[[accepted]]\n")
    out = ("--out", small / "new") if command == "scan" else ()
    assert run(command, small / "run", *out, "--accept", small / "ours.toml") == 4
    assert "ours.toml, entry 1" in capsys.readouterr().err
    assert not (small / "new").exists() and not (small / "run" / "report.html").exists()
