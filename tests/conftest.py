"""A home of the tests' own, the template and baked projects, and the rule that every skip is a known one."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from baking import bake, copy_template

collect_ignore = ["inside"]  # they run in a baked project
ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")
# .ci/run installs what a person's machine may lack.
WITHOUT_TOOLS = (
    ": no chromium",
    ": no chromium or no onnxruntime-web",
    ": no cmake, no C++ compiler or no openvino",
    ": no ip, nsenter, unshare",
    ": no slurmctld, slurmd or munged",
)
IDENTITY = {"NAME": "A Tester", "EMAIL": "tester@example.com"}
Bake = Callable[..., Path]
skipped: set[str] = set()


@pytest.fixture(scope="session", autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep the person's home and git settings out of the tests, and the tests out of them."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        for role in ("AUTHOR", "COMMITTER"):
            for key, value in IDENTITY.items():
                patch.setenv(f"GIT_{role}_{key}", value)
        yield folder


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy of the template, to read."""
    return copy_template(tmp_path_factory.mktemp("template"))


@pytest.fixture(scope="session")
def baked(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Bake:
    """Projects to read: baked once for each set of answers."""
    projects: dict[frozenset[tuple[str, str]], Path] = {}

    def baked_once(**answers: str) -> Path:
        key = frozenset(answers.items())
        if key not in projects:
            projects[key] = bake(template, tmp_path_factory.mktemp("baked"), answers)
        return projects[key]

    return baked_once


def pytest_collectreport(report: pytest.CollectReport) -> None:
    note_skip(report)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    note_skip(report)


def note_skip(report: pytest.CollectReport | pytest.TestReport) -> None:
    if report.skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        skipped.add(f"{report.nodeid}: {reason.removeprefix('Skipped: ')}")


def unlisted_skips() -> list[str]:
    lines = ALLOWED_SKIPS.read_text(encoding="utf-8").splitlines()
    found = sorted(skipped - set(lines))
    return found if os.environ.get("CI") else [skip for skip in found if not skip.endswith(WITHOUT_TOOLS)]


def pytest_sessionfinish(session: pytest.Session) -> None:
    if unlisted_skips():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for skip in unlisted_skips():
        terminalreporter.write_line(f"skipped, but not listed in {ALLOWED_SKIPS.name}: {skip}", red=True)
