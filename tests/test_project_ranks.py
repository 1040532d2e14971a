"""Two processes do what one does, with odd numbers of images and classes that only one of them sees."""

import csv
from pathlib import Path

import pytest
from projects import Project, bake_project, draw_image, numbers, read_rows

NUM_TRAIN, NUM_VAL = 19, 5  # two times 9 training images in batches of 4: a last batch of one is left out
STRATEGIES = ("ddp", "fsdp")
RANKS = ("--devices", "2", "--accelerator", "cpu")
FIT_ON_RANKS = ("-c", "configs/ddp.yaml", "--trainer.devices", "2", "--trainer.accelerator", "cpu")
# Of every split, the first process sees blue and red alone, and the second green alone.
LABELS = ("blue", "green", "red", "green")
PROBE = '''"""Notes which images each process trains on."""

from pathlib import Path
from typing import Any

from lightning import Callback, LightningModule, Trainer


class Probe(Callback):
    """Writes epoch and first pixel of each training image to a file per process."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        with Path(f"seen_{trainer.global_rank}.txt").open("a", encoding="utf-8") as file:
            file.writelines(f"{trainer.current_epoch} {level}\\n" for level in batch[0][:, 0, 0, 0].tolist())
'''


def draw_table(folder: Path, num_test: int) -> Path:
    """A table of images whose first pixel tells their place in the split."""
    rows: list[tuple[str, str, str]] = []
    for split, num_images in (("train", NUM_TRAIN), ("val", NUM_VAL), ("test", num_test)):
        for number in range(num_images):
            label = LABELS[number % len(LABELS)]
            image = draw_image(len(rows), sorted(set(LABELS)).index(label), size=(32, 32))
            image.putpixel((0, 0), (number, 0, 0))
            image.save(folder / f"{split}{number}.png")
            rows.append((f"{split}{number}.png", label, split))
    table = folder / f"{num_test}.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("path", "label", "split"), *rows])
    return table


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = bake_project(tmp_path_factory.mktemp("ranks"), {"dataset": "csv"})
    (project.package_folder / "callbacks" / "probe.py").write_text(PROBE, encoding="utf-8")
    (project.folder / "data").mkdir()
    return project


@pytest.fixture(scope="module")
def checkpoint(project: Project) -> Path:
    table = draw_table(project.folder / "data", 7)
    options = ("--data.root", table, "--data.batch_size", "4", "--trainer.max_epochs", "2", "--probe", "{}")
    return project.fit(*FIT_ON_RANKS, *options) / "checkpoints" / "last.ckpt"


def test_each_process_trains_on_images_of_its_own(project: Project, checkpoint: Path) -> None:
    lines = [(project.folder / f"seen_{rank}.txt").read_text(encoding="utf-8").splitlines() for rank in range(2)]
    epochs = [[line.partition(" ")[2] for rank in lines for line in rank if line.startswith(epoch)] for epoch in "01"]
    assert [len(rank) for rank in lines] == [16, 16]
    assert [len(set(levels)) for levels in epochs] == [16, 16]
    assert epochs[0] != epochs[1]
    assert set(epochs[0]) | set(epochs[1]) <= {str(number) for number in range(NUM_TRAIN)}


def confusion(folder: Path) -> bytes:
    return (folder / "pictures" / "test_confusion_matrix.png").read_bytes()


@pytest.mark.parametrize("num_test", [7, 8, 9])
def test_the_numbers_of_two_processes_are_those_of_one(num_test: int, project: Project, checkpoint: Path) -> None:
    common = ("--ckpt_path", checkpoint, "--root", draw_table(project.folder / "data", num_test), "--batch_size", "2")
    alone = project.folder / f"alone{num_test}"
    project.run("test", *common, "--output", alone)
    assert numbers(alone)["images"] == num_test
    assert {"test/accuracy", "test/f1", "test/auroc", "test/loss"} <= numbers(alone).keys()
    for strategy in STRATEGIES:  # of 9 images in batches of 2, one process has a batch more than the other
        shared = project.folder / f"{strategy}{num_test}"
        project.run("test", *common, "--output", shared, *RANKS, "--strategy", strategy)
        assert numbers(shared) == pytest.approx(numbers(alone), abs=1e-6)
        assert confusion(shared) == confusion(alone)


@pytest.mark.parametrize("num_files", [1, 5])
def test_rows_of_two_processes_are_those_of_one(num_files: int, project: Project, checkpoint: Path) -> None:
    paths = [project.folder / "data" / f"train{number}.png" for number in reversed(range(num_files))]
    common: list[str | Path] = [*paths, "--ckpt_path", checkpoint, "--batch_size", "2", "--output"]
    alone = project.folder / f"alone{num_files}.csv"
    project.run("predict", *common, alone)
    assert [row["path"] for row in read_rows(alone)] == [str(path) for path in paths]
    for strategy in STRATEGIES:
        shared = project.folder / f"{strategy}{num_files}.csv"
        project.run("predict", *common, shared, *RANKS, "--strategy", strategy)
        assert read_rows(shared) == read_rows(alone)
