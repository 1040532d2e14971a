"""What a project's own build makes works without the project's folder."""

import tarfile
import zipfile
from pathlib import Path

from baking import files_of, run
from projects import Project, bake_project


def test_a_wheel_built_from_the_source_distribution_runs_alone(tmp_path: Path) -> None:
    project = bake_project(tmp_path)
    run("git", "init", "--quiet", cwd=project.folder)  # builds leave out what .gitignore names
    run("hatchling", "build", "--target", "sdist", cwd=project.folder)
    with tarfile.open(next((project.folder / "dist").glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path / "sources", filter="data")
    (sources,) = (tmp_path / "sources").iterdir()
    run("hatchling", "build", "--target", "wheel", cwd=sources)
    with zipfile.ZipFile(next((sources / "dist").glob("*.whl"))) as wheel:
        wheel.extractall(tmp_path / "installed" / "src")
    installed = Project(tmp_path / "installed", project.package)
    assert files_of(installed.package_folder) == files_of(project.package_folder)
    assert {"data/datamodule.py", "data/sources/folder.py"} <= files_of(installed.package_folder)
    assert "no finished run" in installed.run("test", code=2).stderr
