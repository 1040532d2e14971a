"""A team's own network and its own data come in with one new file each."""

import hashlib
from pathlib import Path

from projects import CLASSES, NETWORK, Project, bake_project, draw_folder, numbers, read_json, read_rows

SOURCE = '''"""Stripes, upright or level; drawn, with a validation split of their own."""

from pathlib import Path

import numpy as np

from . import Samples, Source


def _stripes(split: str, num_images: int, period: int) -> Samples:
    generator = np.random.default_rng(len(split))
    images = generator.integers(0, 90, (num_images, 20, 20), dtype=np.uint8)
    for number, image in enumerate(images):
        (image.T if number % 2 else image)[::period] = 255
    labels = [("upright" if number % 2 else "level",) for number in range(num_images)]
    return Samples([f"{split}/{number}" for number in range(num_images)], list(images), labels)


def open_source(root: Path | None, period: int = 4) -> Source:
    """Images of 20 x 20 pixels with a line every `period` pixels."""
    splits = {"train": _stripes("train", 160, period), "val": _stripes("val", 20, period)}
    return Source(["level", "upright"], splits, in_memory=True)
'''


def hashes(project: Project) -> dict[str, str]:
    """Of each Python file outside the tests."""
    files = [file for name in ("src", "deploy") for file in (project.folder / name).rglob("*.py")]
    return {str(file.relative_to(project.folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def test_a_network_in_one_new_file_and_a_folder_of_other_images_go_the_whole_road(tmp_path: Path) -> None:
    project = bake_project(tmp_path)
    images = draw_folder(project.folder / "images", mode="L")
    before = hashes(project)
    (project.package_folder / "networks" / "small_residual.py").write_text(NETWORK, encoding="utf-8")
    data = ("--data.source", "folder", "--data.root", "images", "--data.augmentation", "{}", "--data.batch_size", "8")
    decoding = ("--data.decoding.channels", "1", "--data.decoding.image_size", "[28, 44]")
    network = ("--model.network", "SmallResidual", "--model.network_args", "{dropout: 0.3}")
    run = project.fit(*data, *decoding, *network, "--trainer.max_epochs", "6")
    project.run("test")
    project.run("predict", images)
    project.run("export", "--output", "bundle")
    description = read_json(project.folder / "bundle" / "model.json")
    assert numbers(run / "test")["test/accuracy"] > 0.9
    labels = [row["label"] for row in read_rows(project.folder / "predictions.csv")]
    assert len(labels) == 72 and set(labels) == set(CLASSES) == set(description["classes"])
    assert description["input"]["shape"] == ["batch", 1, 28, 44]
    assert before.items() <= hashes(project).items()
    assert len(hashes(project)) == len(before) + 1


def test_a_source_in_one_new_file_trains_tests_and_exports(tmp_path: Path) -> None:
    project = bake_project(tmp_path)
    before = hashes(project)
    (project.package_folder / "data" / "sources" / "stripes.py").write_text(SOURCE, encoding="utf-8")
    run = project.fit("--data.source", "stripes", "--data.source_args", "{period: 5}", "--trainer.max_epochs", "4")
    project.run("test")
    project.run("export", "--output", "bundle")
    description = read_json(project.folder / "bundle" / "model.json")
    assert numbers(run / "test")["test/accuracy"] > 0.9
    assert description["classes"] == ["level", "upright"]
    assert description["checks"]["test_split"]["images"] == numbers(run / "test")["images"] > 10
    assert before.items() <= hashes(project).items()
