import os
import subprocess
import sys
from pathlib import Path

import jaxtroj

BIN = Path(__file__).resolve().parents[2] / "bin"


def call(script: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script with the Python of the tests as the environment's `python3`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        [script, *arguments], cwd=cwd, env=environment, capture_output=True, text=True
    )


def test_an_environment_with_jaxtroj_is_used_from_anywhere(tmp_path):
    """Through a link in a folder with a space, where folders shadow our packages."""
    home = tmp_path / "with space"
    for name in ("jaxtroj", "converters"):
        (home / name).mkdir(parents=True)
        (home / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    (home / "link").symlink_to(BIN / "jaxtroj")
    result = call(home / "link", "--version", cwd=home)
    assert (result.returncode, result.stdout) == (0, f"jaxtroj {jaxtroj.__version__}\n")
    assert result.stderr == ""


def test_the_exit_status_comes_through(tmp_path):
    result = call(BIN / "jaxtroj", "detect", "none.pt", cwd=tmp_path)
    assert result.returncode == 2
    assert "none.pt" in result.stdout
