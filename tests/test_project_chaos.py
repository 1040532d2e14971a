"""A run with all callbacks that is killed again and again, and resumed, equals one that was never killed."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
from killing import kill
from projects import Project, bake_project, read_json
from test_project_together import OPTIONS, QUIET

STEPS = 48
LENGTH = (
    *("--trainer.max_epochs", "4", "--trainer.limit_train_batches", "12", "--trainer.limit_val_batches", "2"),
    *("--trainer.log_every_n_steps", "1", "--last_checkpoint.every_n_train_steps", "5"),
    *("--profiling.skip", "1", "--profiling.warm_up", "1", "--profiling.record", "2"),
)
OVERLAYS = tuple(part for key in OPTIONS for part in ("-c", f"configs/{key}.yaml", *OPTIONS[key]))
FIT = (*OVERLAYS, *LENGTH, *(option for option in QUIET if option not in {"--pictures", "null"}))
MOMENTS = (
    ("step", 3),  # before the first checkpoint, so that it starts anew
    ("step", 14),
    ("writing", 20),
    ("written", 25),
    ("validation", 36),
    ("epochs", 36),
    ("published", 40),
    ("unsaved", STEPS),  # best.ckpt is from later than last.ckpt
    ("end", STEPS),
)
NUM_RANDOM_KILLS = 20
PER_PROCESS = (  # parts of the names of what was measured, or compiled, in one process
    *("milliseconds", "_ms", "seconds", "speed_up", "memory_mb", "per_second", "shares", "bottleneck", "paid_off"),
    *("graphs", "graph_breaks", "recompiles"),
)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return bake_project(tmp_path_factory.mktemp("chaos"), {"logger": "csv"})


@pytest.fixture(scope="module")
def whole(project: Project) -> Path:
    return project.fit("--name", "whole", *FIT)


def newest(project: Project, name: str) -> Path:
    """The last run of that name, if any."""
    return max(project.folder.glob(f"runs/{name}/*"), default=project.folder)


def is_finished(run: Path) -> bool:
    return (run / "result.json").is_file()


def go_on(project: Project, name: str) -> tuple[str, ...]:
    """Options that resume the last run of that name, or start anew where that has no checkpoint or is finished."""
    run = newest(project, name)
    resumable = (run / "checkpoints" / "last.ckpt").is_file() and not is_finished(run)
    return ("--resume", str(run.relative_to(project.folder))) if resumable else ("--name", name, *FIT)


def leaves(value: object, run: Path, name: str = "") -> dict[str, object]:
    """Every single value by its name, less what was measured in time or memory of a process; tensors by their bytes."""
    name = str(short(name, run))
    if any(word in name.rpartition("/")[2] for word in PER_PROCESS):
        return {}
    if isinstance(value, (list, tuple)):
        return leaves(dict(enumerate(value)), run, name)
    if isinstance(value, dict):
        parts = {} if value.get("unit") == "ms" else value
        return {f"{name}/": len(parts)} | {
            key: leaf for part in parts for key, leaf in leaves(parts[part], run, f"{name}/{part}").items()
        }
    if isinstance(value, torch.Tensor):
        return {name: (value.dtype, value.shape, value.reshape(-1).contiguous().view(torch.uint8).numpy().tobytes())}
    return {name: short(value, run)}


def short(value: object, run: Path) -> object:
    return value.replace(f"{run.parent.name}/{run.name}", "RUN") if isinstance(value, str) else value


def files_of(run: Path) -> set[str]:
    return {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}


def content_of(run: Path) -> dict[str, object]:
    """All that must be as it is without a kill."""
    content: dict[str, object] = dict.fromkeys(files_of(run), "any")
    for name in content:
        path = run / name
        if path.suffix == ".ckpt":
            content[name] = leaves(torch.load(path, weights_only=True) | {"config.yaml": ""}, run)
        elif path.suffix == ".json" and path.stem != "trace":
            content[name] = leaves(read_json(path), run)
        elif path.suffix == ".csv" or path.parent.name == "pictures":
            content[name] = path.read_bytes()
    return content


def differences(found: Path, expected: Path) -> list[str]:
    here, there = content_of(found), content_of(expected)
    names = [name for name in sorted(here.keys() | there.keys()) if here.get(name) != there.get(name)]
    return [f"{name}: {_leaf(here.get(name), there.get(name))}" for name in names]


def _leaf(here: object, there: object) -> str:
    if isinstance(here, dict) and isinstance(there, dict):
        return ", ".join(str(key) for key in here.keys() | there.keys() if here.get(key) != there.get(key))
    return "missing" if here is None else "not expected" if there is None else "other content"


def test_a_run_killed_at_the_worst_moments_equals_one_that_was_not(project: Project, whole: Path) -> None:
    for moment, step in MOMENTS:
        kill(project, moment, step, *go_on(project, "killed"))
    project.run("fit", *go_on(project, "killed"))
    assert differences(newest(project, "killed"), whole) == []
    assert len(project.runs()) == 3  # the one without a checkpoint stays behind


def test_the_comparison_sees_one_bit(whole: Path, tmp_path: Path) -> None:
    changed = shutil.copytree(whole, tmp_path / whole.parent.name / whole.name)
    checkpoint = torch.load(changed / "checkpoints" / "last.ckpt", weights_only=True)
    weight = checkpoint["state_dict"]["network.head.weight"]
    weight.view(torch.int32)[0, 0] ^= 1
    torch.save(checkpoint, changed / "checkpoints" / "last.ckpt")
    (changed / "pruning.json").write_text((whole / "pruning.json").read_text("utf-8").replace("0.8", "0.81"), "utf-8")
    found = differences(changed, whole)
    assert found[0] == "checkpoints/last.ckpt: /state_dict/network.head.weight"
    assert len(found) == 2 and found[1].startswith("pruning.json: ")


@pytest.mark.slow  # minutes; a failure names the seed
def test_a_run_killed_at_random_moments_equals_one_that_was_not(project: Project, whole: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED", random.SystemRandom().randrange(10**6)))
    print(f"CHAOS_SEED={seed}")
    draws, kills, finished = random.Random(seed), 0, set()
    started = time.monotonic()
    project.run("fit", "--name", "timed", *FIT)
    seconds = time.monotonic() - started
    while kills < NUM_RANDOM_KILLS or not is_finished(newest(project, "random")):
        process = project.start(project.package, "fit", *go_on(project, "random"), output=subprocess.DEVNULL)
        if kills < NUM_RANDOM_KILLS:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draws.uniform(0, seconds))
            process.kill()
        code = process.wait()
        assert code in (0, -signal.SIGKILL), code
        kills += code != 0
        if code == 0:
            finished.add(newest(project, "random"))
    assert {run.name: differences(run, whole) for run in finished} == {run.name: [] for run in finished}
