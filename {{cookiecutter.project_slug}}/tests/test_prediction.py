"""predict: one row per file, in the order given, broken files included."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from {{cookiecutter.package_name}}.checkpoints import load_classifier
from {{cookiecutter.package_name}}.cli import main


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Three images of odd sizes, the middle one broken."""
    generator = np.random.default_rng(0)
    paths = [tmp_path / name for name in ("z.png", "broken.png", "a.png")]
    for path, size in zip(paths, ((20, 30), (9, 9), (40, 7)), strict=True):
        Image.fromarray(generator.integers(0, 255, (*size, 3), dtype=np.uint8)).save(path)
    paths[1].write_bytes(paths[1].read_bytes()[:60])
    return paths


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_rows_keep_the_order_and_hold_the_model_s_own_scores(
    checkpoint: Path, project: Path, files: list[Path]
) -> None:
    asked = [str(path) for path in files]
    assert main(["predict", *asked, "--ckpt_path", str(checkpoint), "--on_broken", "skip", "--batch_size", "2"]) == 0
    rows = rows_of(project / "predictions.csv")
    assert [row["path"] for row in rows] == asked
    classifier = load_classifier(checkpoint)
    for path, row in zip(files[::2], rows[::2], strict=True):
        image = classifier.spec.decoding.decode(path)
        with torch.inference_mode():
            probabilities = classifier.probabilities(classifier(image[None]))[0]
        assert row["label"] == row["label_1"] == classifier.spec.classes[probabilities.argmax()]
        assert float(row["score"]) == pytest.approx(float(probabilities.max()), abs=1e-5)
    assert rows[1]["label"] == "" and "broken.png" in rows[1]["error"]


def test_a_broken_file_ends_with_exit_code_1_after_all_rows_are_written(
    checkpoint: Path, project: Path, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", *map(str, files), "--ckpt_path", str(checkpoint)]) == 1
    assert "broken.png" in capsys.readouterr().err
    assert len(rows_of(project / "predictions.csv")) == len(files)


def test_a_file_that_holds_no_predictions_is_not_overwritten(
    checkpoint: Path, project: Path, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "labels.csv").write_text("path,label\n", encoding="utf-8")
    command = ["predict", str(files[0]), "--ckpt_path", str(checkpoint), "--output"]
    assert main([*command, "labels.csv"]) == 2
    assert "not overwritten" in capsys.readouterr().err
    assert main([*command, "new.csv"]) == main([*command, "new.csv"]) == 0


def test_a_folder_is_searched_for_images(checkpoint: Path, project: Path, files: list[Path]) -> None:
    (files[0].parent / ".hidden.png").write_bytes(b"")
    (files[0].parent / "notes.txt").write_text("none", encoding="utf-8")
    folder = str(files[0].parent)
    assert main(["predict", folder, "--ckpt_path", str(checkpoint), "--on_broken", "skip"]) == 0
    assert [Path(row["path"]).name for row in rows_of(project / "predictions.csv")] == ["a.png", "broken.png", "z.png"]
