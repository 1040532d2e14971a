"""A folder of its own for each test, a few small images, and one short run for all tests."""

import csv
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.data.sources import SOURCES
from {{cookiecutter.package_name}}.runs import newest_run

CONFIGS = Path(__file__).parent.parent / "configs"
CLASSES = ("blue", "green", "red")


def write_images(folder: Path, *, images_per_class: int = 24) -> Path:
    """Noisy images in the colours of their class, in class folders and listed in labels.csv."""
    generator = np.random.default_rng(0)
    rows = []
    for index, name in enumerate(CLASSES):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(images_per_class):
            pixels = generator.integers(0, 150, (24, 20, 3), dtype=np.uint8)
            pixels[..., 2 - index] += 80
            path = f"images/{name}/{number}.png"
            Image.fromarray(pixels).save(folder / path)
            rows.append((path, name))
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "label"), *rows])
    return folder


def source_options(folder: Path) -> list[str]:
    """Options of `fit` for the images of `write_images`, through whichever source the project still has."""
    roots = {"folder": str(folder / "images"), "csv": str(folder / "labels.csv"), "digits": "null"}
    source = next(name for name in roots if name in SOURCES)
    return ["--data.source", source, "--data.root", roots[source], "--data.source_args", "{}", "--data.batch_size", "8"]


@pytest.fixture(scope="session")
def image_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="session")
def data(image_folder: Path) -> list[str]:
    return source_options(image_folder)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with the project's configurations, as the working directory."""
    shutil.copytree(CONFIGS, tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


class Stopped(BaseException):
    """Stands for a process that ends there."""


@pytest.fixture
def fit_until(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Fit until a method is called and it is time, as if the process ended there; returns the unfinished run."""

    def fit(owner: type, method: str, is_time: Callable[..., bool], *options: str) -> Path:
        original = getattr(owner, method)

        def stop(self: Any, *args: Any) -> Any:
            if is_time(self, *args):
                raise Stopped
            return original(self, *args)

        with monkeypatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(owner, method, stop)
            main(["fit", *options])
        return newest_run(finished=False)

    return fit


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, data: list[str]) -> Path:
    """Folder of a finished run of two epochs."""
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(CONFIGS, folder / "configs")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main(["fit", *data, "--trainer.max_epochs", "2", "--trainer.log_every_n_steps", "1"]) == 0
        return newest_run(finished=True).resolve()


@pytest.fixture(scope="session")
def checkpoint(run: Path) -> Path:
    return run / "checkpoints" / "best.ckpt"
