"""A checkpoint alone is enough: in another folder, without configurations, with or without its data."""

import shutil
from pathlib import Path

import pytest
from projects import SHORT, Project, bake_project, draw_folder, numbers, read_json, read_rows

DATA = {
    "digits": (),
    "folder": ("--data.source", "folder", "--data.root", "images", "--data.augmentation", "{}"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = bake_project(tmp_path_factory.mktemp("here"))
    draw_folder(project.folder / "images")
    return project


@pytest.fixture(scope="module", params=sorted(DATA))
def run_folder(request: pytest.FixtureRequest, project: Project) -> Path:
    return project.fit(*SHORT, *DATA[request.param])


def test_a_checkpoint_gives_the_same_numbers_in_any_folder(project: Project, run_folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    images = draw_folder(tmp_path / "some", images_per_class=3)
    shutil.copy(run_folder / "checkpoints" / "best.ckpt", there / "model.ckpt")
    project.run("test")
    project.run("predict", images)
    project.run("test", "--ckpt_path", "model.ckpt", "--output", "scores", cwd=there)
    project.run("predict", images, "--ckpt_path", "model.ckpt", cwd=there)
    project.run("export", "--ckpt_path", "model.ckpt", "--output", "bundle", cwd=there)
    assert numbers(there / "scores") == numbers(run_folder / "test")
    assert read_rows(there / "predictions.csv") == read_rows(project.folder / "predictions.csv") != []
    checked = read_json(there / "bundle" / "model.json")["checks"]["test_split"]
    expected = numbers(run_folder / "test")
    assert checked["images"] == expected["images"]
    assert checked["accuracy"]["exported"] == pytest.approx(expected["test/accuracy"], abs=1e-6)


def test_without_its_data_a_checkpoint_can_be_exported_but_not_tested(tmp_path: Path) -> None:
    project = bake_project(tmp_path)
    images = draw_folder(project.folder / "images", images_per_class=12)
    project.fit(*SHORT, *DATA["folder"])
    images.rename(tmp_path / "elsewhere")
    refused = project.run("test", code=2)
    (line,) = refused.stderr.splitlines()
    assert f"root {images} does not exist" in line
    project.run("export", "--output", "bundle")
    checks = read_json(project.folder / "bundle" / "model.json")["checks"]
    assert checks["test_split"] is None
    assert "--root" in checks["missing"]
    project.run("test", "--root", tmp_path / "elsewhere")
