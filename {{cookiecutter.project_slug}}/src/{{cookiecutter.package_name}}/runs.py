"""Run folders: runs/<name>/<date-time>/ with config.yaml, checkpoints/, metrics.csv and, once finished, result.json."""

import json
import os
import re
import shutil
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

RUNS = Path("runs")
RESULT = "result.json"
OLD = ".old"  # ends the name of a folder that is being replaced
STAMP = re.compile(r"\d{4}(-\d\d){2}_\d\d(-\d\d){2}(_\d+)*")  # a copy with another name is no run of its own


def new_run(name: str) -> Path:
    """Make a folder that no other run has; under SLURM its name ends with the job's number."""
    if not re.fullmatch(r"[\w][\w.-]*", name):
        raise ValueError(f"name must be made of letters, digits, '_', '-' and '.', got {name!r}.")
    parts = [datetime.now().strftime("%Y-%m-%d_%H-%M-%S"), os.environ.get("SLURM_JOB_ID", "")]
    stamp = "_".join(filter(None, parts))
    for number in count(1):
        run = RUNS / name / (stamp if number == 1 else f"{stamp}_{number:02d}")
        try:
            run.mkdir(parents=True)
        except FileExistsError:
            continue
        return run
    raise AssertionError("unreachable")


def discard_if_empty(run: Path) -> None:
    """Take back a folder in which nothing has happened yet, and the folders above it if they are empty too."""
    with suppress(OSError):
        for folder in (run, run.parent, RUNS):
            folder.rmdir()


def is_finished(run: Path) -> bool:
    """Whether `fit` came to its end there."""
    return (run / RESULT).is_file()


def newest_run(*, finished: bool) -> Path:
    """The newest run under runs/ that is finished, or that can be resumed; a FileNotFoundError where there is none."""
    runs = [path for path in RUNS.glob("*/*") if STAMP.fullmatch(path.name) and is_finished(path) == finished]
    found = [run for run in runs if finished or can_go_on(run)]
    if not found:
        kind = "finished run" if finished else "unfinished run with a checkpoint"
        raise FileNotFoundError(f"no {kind} in {RUNS.resolve()}.")
    return max(found, key=lambda run: run.name)


def finish(run: Path, result: dict[str, Any]) -> None:
    """Mark the run as finished."""
    write_json(run / RESULT, result)


def write_json(path: Path, content: object) -> None:
    """Write aside, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.part")
    aside.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    aside.replace(path)


def read_result(run: Path) -> dict[str, Any]:
    """What `finish` wrote."""
    result: dict[str, Any] = json.loads((run / RESULT).read_text(encoding="utf-8"))
    return result


def can_go_on(run: Path) -> bool:
    """Whether the run has a last checkpoint, if need be one that `put_back` finds."""
    return any((run / "checkpoints").glob("last.ckpt*"))


def put_in_place(aside: Path, path: Path) -> None:
    """Rename; where there is a folder, a rename alone can't take its place."""
    old = path.with_name(f"{path.name}{OLD}")
    if path.is_dir():
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
    aside.replace(path)
    shutil.rmtree(old, ignore_errors=True)


def put_back(folder: Path) -> None:
    """Mend what a kill between the two renames of `put_in_place` has left: the old one, and nothing in its place."""
    for old in folder.glob(f"*{OLD}"):
        if not (path := old.with_suffix("")).exists():
            with suppress(FileNotFoundError):  # another process of the run has
                old.rename(path)
