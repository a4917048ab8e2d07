"""`jaxtroj configure` tells at once that labels are too few to fit on."""

import pytest

from jaxtroj.cli import configure
from jaxtroj.cli.main import main


def labelled(folder, poisoned: int, clean: int):
    for number in range(poisoned + clean):
        home = folder / "round" / "models" / f"id-{number:08d}"
        home.mkdir(parents=True)
        (home / "model.pt").write_bytes(b"%d" % number)
        (home / "ground_truth.csv").write_text(str(int(number < poisoned)))
    words = ["configure", "--configure_models_dirpath", folder / "round", "--scratch_dirpath"]
    words += [folder / "scratch", "--learned_parameters_dirpath", folder / "learned"]
    return list(map(str, words))


@pytest.mark.parametrize(("poisoned", "clean"), [(3, 3), (2, 8), (12, 0), (5, 4)])
def test_nothing_is_scanned_where_labels_are_too_few(
    poisoned, clean, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(configure, "_scan", lambda *_: pytest.fail("a model was scanned"))
    assert main(labelled(tmp_path, poisoned, clean)) == 4
    said = capsys.readouterr().err
    assert f"too little to calibrate on: {poisoned} poisoned and {clean} clean models have" in said
    assert "expected at least 10 models, 3 of each kind" in said
    assert not (tmp_path / "scratch").exists()


@pytest.mark.parametrize(("poisoned", "clean"), [(3, 7), (7, 3)])
def test_just_enough_labels_are_scanned(poisoned, clean, tmp_path, monkeypatch):
    class Begun(Exception):
        pass

    def scan(entries, *_):
        assert len(entries) == 10
        raise Begun

    monkeypatch.setattr(configure, "_scan", scan)
    monkeypatch.setenv("JAXTROJ_DEBUG", "")
    assert main(labelled(tmp_path, poisoned, clean)) == 2  # an internal error: it began
