"""Several labels per image, from the table to the bundle and its consumer."""

import csv
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from projects import Project, bake_project, consume, numbers, read_json, read_rows

COLOURS = ("blue", "green", "red")


def draw_table(folder: Path, num_images: int = 60) -> Path:
    """Images that are bright in the channels of their labels, of which there may be none."""
    generator = np.random.default_rng(0)
    folder.mkdir()
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "label"))
        for number in range(num_images):
            present = generator.random(3) < 0.5
            pixels = generator.integers(0, 100, (24, 24, 3)) + 120 * present[::-1]
            Image.fromarray(pixels.astype(np.uint8)).save(folder / f"{number}.png")
            writer.writerow((f"{number}.png", "|".join(np.array(COLOURS)[present])))
    return folder / "labels.csv"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = bake_project(tmp_path_factory.mktemp("multilabel"), {"dataset": "csv"})
    table = draw_table(project.folder / "data")
    options = ("--data.root", table, "--data.task", "multilabel", "--data.batch_size", "8")
    project.fit(*options, "--trainer.max_epochs", "8", "--trainer.log_every_n_steps", "1")
    return project


def test_labels_are_learnt_and_scored(project: Project) -> None:
    project.run("test")
    (metrics,) = (numbers(path.parent) for path in project.folder.rglob("test/metrics.json"))
    assert metrics["test/accuracy"] > 0.9 and metrics["test/auroc"] > 0.95


def test_predict_and_the_bundle_s_consumer_name_the_same_labels(project: Project) -> None:
    files = sorted((project.folder / "data").glob("1?.png"))
    project.run("predict", *files)
    project.run("export", "--output", "bundle")
    checks = read_json(project.folder / "bundle" / "model.json")["checks"]["test_split"]
    assert checks["different_answers"] == 0
    printed = consume(project, project.folder / "bundle", *files).stdout.splitlines()
    labels = [row["label"] for row in read_rows(project.folder / "predictions.csv")]
    assert labels == [row["label"] for row in csv.DictReader(printed)]
    assert any("|" in label for label in labels)
