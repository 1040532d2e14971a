"""A full disk ends an export in an error that says so, also where a library would end the process or not say it."""

from pathlib import Path

import pytest
from smoke.checkpoints import load_classifier
from smoke.export import open_format
from smoke.export.graph import Graph, Options


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(("name", "file"), [("openvino", "model.bin"), ("torch_export", "model.pt2")])
def test_a_full_disk_is_named(name: str, file: str, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / file).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        open_format(name).write(Graph(load_classifier(checkpoint)), tmp_path, Options(name))
