"""Pictures are drawn into the run folder."""

import shutil
from pathlib import Path

from PIL import Image

from {{cookiecutter.package_name}}.cli import main


def test_a_run_and_a_test_leave_their_confusion_matrix(run: Path, tmp_path: Path) -> None:
    assert (run / "pictures" / "val_confusion_matrix.png").is_file()
    copied = shutil.copytree(run, tmp_path / "run")
    assert main(["test", "--ckpt_path", str(copied / "checkpoints" / "best.ckpt")]) == 0
    with Image.open(copied / "test" / "pictures" / "test_confusion_matrix.png") as picture:
        assert min(picture.size) > 100
