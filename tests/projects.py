"""Baked projects at work: their commands run in clean processes, on small images drawn here."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from baking import Answers, bake, copy_template
from PIL import Image

Environment = dict[str, str] | None
Done = subprocess.CompletedProcess[str]
# Variables that would tell a command more than the person typed.
LEAKING = ("FIT_", "LOCAL_", "MASTER_", "NETRC", "NODE_", "PL_", "PYTHON", "RANK", "SLURM_", "WANDB_", "WORLD_SIZE")
SECONDS = 900.0  # far beyond what any command here needs: it hangs
SHORT = ("--trainer.max_epochs", "1", "--trainer.limit_train_batches", "2", "--trainer.limit_val_batches", "1")
CLASSES = ("blue", "green", "red")


@dataclass(frozen=True)
class Project:
    """A baked project that is installed nowhere; its commands run as `python -m`, in its folder or elsewhere."""

    folder: Path
    package: str

    @property
    def package_folder(self) -> Path:
        """Where its Python lies."""
        return self.folder / "src" / self.package

    def start(
        self,
        *args: str | Path,
        cwd: Path | None = None,
        env: Environment = None,
        output: int = subprocess.PIPE,
        within: tuple[str, ...] = (),
    ) -> subprocess.Popen[str]:
        """Start `python -m` in a process group of its own, without a terminal, maybe within another command."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(LEAKING)}
        given = {"PYTHONPATH": str(self.folder / "src"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        return subprocess.Popen(
            [*within, sys.executable, "-m", *map(str, args)],
            cwd=cwd or self.folder,
            env=kept | given | (env or {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
        )

    def python(self, *args: str | Path, code: int = 0, cwd: Path | None = None, env: Environment = None) -> Done:
        """Run `python -m` to its end, which must come in time and with this exit code."""
        process = self.start(*args, cwd=cwd, env=env)
        try:
            output, errors = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        assert process.returncode == code, f"{args} exited {process.returncode}:\n{output}\n{errors}"
        return subprocess.CompletedProcess(process.args, code, output, errors)

    def run(
        self, verb: str, *args: str | Path, code: int = 0, cwd: Path | None = None, env: Environment = None
    ) -> Done:
        """Run one of the project's verbs."""
        return self.python(self.package, verb, *args, code=code, cwd=cwd, env=env)

    def fit(self, *args: str | Path, env: Environment = None) -> Path:
        """Train in a run of its own; returns the run's folder."""
        before = set(self.runs())
        self.run("fit", *args, env=env)
        (run,) = set(self.runs()) - before
        return run

    def kill_fit(self, *args: str | Path, step: int, env: Environment = None) -> Path:
        """Kill a run, that process alone, once its log has the step; returns the run's folder."""
        before = set(self.runs())
        process = self.start(self.package, "fit", *args, env=env, output=subprocess.DEVNULL)
        self.wait_for_step(step, process)
        process.kill()
        assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"
        (run,) = set(self.runs()) - before
        return run

    def wait_for_step(self, step: int, process: subprocess.Popen[str] | None = None) -> None:
        """Until the logs of unfinished runs have the step, or the process has ended."""
        deadline = time.monotonic() + SECONDS
        while not (process and process.poll() is not None) and time.monotonic() < deadline and self.last_step() < step:
            time.sleep(0.01)

    def last_step(self) -> int:
        """Last step in the logs of unfinished runs."""
        logs = [run / "metrics.csv" for run in self.runs() if not (run / "result.json").exists()]
        lines = [line for log in logs if log.exists() for line in log.read_text(encoding="utf-8").splitlines(True)]
        steps = [line.partition(",")[0] for line in lines if line.endswith("\n")]
        return max((int(step) for step in steps if step.isdecimal()), default=-1)

    def runs(self) -> list[Path]:
        """All run folders."""
        return sorted(self.folder.glob("runs/*/*"))


def bake_project(folder: Path, answers: Answers | None = None) -> Project:
    """Bake the template as it stands into a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    answers = {"project_slug": "smoke", **(answers or {})}
    project = bake(copy_template(folder / "template"), folder / "baked", answers)
    return Project(project, answers.get("package_name", answers["project_slug"]))


def consume(project: Project, bundle: Path, *paths: Path) -> Done:
    """Run the consumer where nothing of the project can be imported."""
    script = project.folder / "deploy" / "python" / "classify.py"
    command = [sys.executable, *map(str, (script, bundle, *paths))]
    return subprocess.run(command, cwd=bundle.parent, env={"PYTHONPATH": ""}, capture_output=True, text=True)


def read_rows(file: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def read_json(file: Path) -> dict[str, Any]:
    """Content of a JSON file."""
    content: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content


def numbers(folder: Path) -> dict[str, float]:
    """The metrics, and the number of images, that `test` or `validate` left in a folder."""
    return {name: value for name, value in read_json(folder / "metrics.json").items() if name not in PLACES}


PLACES = {"checkpoint", "split"}


def draw_image(index: int, label: int, *, mode: str = "RGB", size: tuple[int, int] = (20, 24)) -> Image.Image:
    """Noise, brighter by the label."""
    levels = np.random.default_rng(index).integers(0, 90, (size[1], size[0], 3), dtype=np.uint8) + np.uint8(60 * label)
    return Image.fromarray(levels).convert(mode)


def draw_folder(root: Path, *, images_per_class: int = 24, mode: str = "RGB") -> Path:
    """Images in class folders."""
    for label, name in enumerate(CLASSES):
        (root / name).mkdir(parents=True)
        for number in range(images_per_class):
            draw_image(number * len(CLASSES) + label, label, mode=mode).save(root / name / f"{number}.png")
    return root


NETWORK = '''"""SmallResidual, a network of the team's own."""

from torch import Tensor, nn

from . import register


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        convolution = nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False)
        self.change = nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        return images + self.change(images)


@register
class SmallResidual(nn.Module):
    """One residual block, the mean over all places, and a linear head behind dropout."""

    def __init__(
        self, num_classes: int, channels: int, image_size: tuple[int, int], width: int = 24, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, width, kernel_size=5, stride=2)
        self.block = _Residual(width)
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(width, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.block(self.stem(images)).mean((2, 3)))
'''
