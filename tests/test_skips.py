"""A skip that is not listed with its reason fails the run."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SKIPPING = 'import pytest\n\n\n@pytest.mark.skip(reason="no moon")\ndef test_of_the_moon():\n    pass\n'
XFAILING = SKIPPING.replace("skip(", "xfail(").replace("pass", "raise ValueError")
AT_IMPORT = 'import pytest\n\npytest.importorskip("no_such_module", reason="no moon")\n'
LISTED = "test_moon.py::test_of_the_moon: no moon\n"


def run_tests(folder: Path, text: str, allowed: str, *options: str) -> subprocess.CompletedProcess[str]:
    for name in ("conftest.py", "baking.py"):
        shutil.copy(HERE / name, folder)
    (folder / "allowed_skips.txt").write_text(allowed, encoding="utf-8")
    (folder / "test_moon.py").write_text(text + "\n\ndef test_passes():\n    pass\n", encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", ".", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.parametrize("text", [SKIPPING, XFAILING, AT_IMPORT], ids=["skip", "xfail", "import"])
def test_an_unlisted_skip_fails_the_run(text: str, tmp_path: Path) -> None:
    done = run_tests(tmp_path, text, "", "-n", "2")
    assert done.returncode == 1, done.stdout
    assert "skipped, but not listed in allowed_skips.txt: test_moon.py" in done.stdout


def test_another_reason_fails_the_run(tmp_path: Path) -> None:
    assert run_tests(tmp_path, SKIPPING, LISTED.replace("moon\n", "sun\n")).returncode == 1


def test_a_listed_skip_is_fine(tmp_path: Path) -> None:
    assert run_tests(tmp_path, SKIPPING, LISTED).returncode == 0
