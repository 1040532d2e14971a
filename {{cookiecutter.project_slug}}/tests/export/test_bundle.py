"""A bundle is complete and true, or it is not there."""

import hashlib
import json
from pathlib import Path

import pytest

from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.export.bundle import replacing, write_bundle
from {{cookiecutter.package_name}}.export.graph import Graph, Options


def test_labels_and_hashes_are_those_of_the_model(exported):
    model = json.loads((exported.folder / "model.json").read_text("utf-8"))
    files = {file.relative_to(exported.folder).as_posix() for file in exported.folder.rglob("*") if file.is_file()}
    assert model["classes"] == exported.graph.spec.classes
    assert (exported.folder / "labels.txt").read_text("utf-8").split("\n")[:-1] == exported.graph.spec.classes
    assert set(model["files"]) == files - {"model.json"}
    for name, digest in model["files"].items():
        assert hashlib.sha256((exported.folder / name).read_bytes()).hexdigest() == digest


def test_without_the_data_its_checks_are_null_with_a_reason(exported):
    checks = json.loads((exported.folder / "model.json").read_text("utf-8"))["checks"]
    assert checks["test_split"] is None and checks["contents"]["without_test_images"] is None
    assert "--root" in checks["missing"]


def test_a_class_that_would_take_two_lines_is_refused(make_classifier, checkpoint: Path, tmp_path: Path):
    graph = Graph(make_classifier())
    graph.spec.classes[0] = "two\nlines"
    with pytest.raises(ValueError, match=r"two\\nlines"):
        write_bundle(tmp_path, graph, Options(), checkpoint, None)


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_nothing_and_keeps_the_old_bundle(failure, tmp_path: Path):
    old = tmp_path / "bundle"
    old.mkdir()
    (old / "model.json").write_text('{"files": {}}')
    for output in (old, tmp_path / "new" / "bundle"):
        with pytest.raises(failure), replacing(output, force=True) as folder:
            (folder / "model.json").write_text("new")
            raise failure
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    assert (old / "model.json").read_text() == '{"files": {}}'


def test_force_replaces_a_bundle_where_a_link_leads_and_nothing_else(tmp_path: Path):
    bundle, link = tmp_path / "bundle", tmp_path / "link"
    link.symlink_to(bundle)
    for content in ('{"files": {}}', '{"files": {"labels.txt": ""}}'):
        with replacing(link, force=True) as folder:
            (folder / "model.json").write_text(content)
        assert link.is_symlink() and (bundle / "model.json").read_text() == content
    (bundle / "model.json").rename(bundle / "thesis.txt")
    with pytest.raises(FileExistsError, match="--force replaces it if"), replacing(link, force=True):
        pass


@pytest.mark.parametrize("content", ['{"files": {"labels.txt": ""}}', '{"class_name": "Sequential"}', "[]", "7", ""])
def test_force_deletes_no_file_that_the_bundle_does_not_list(content: str, tmp_path: Path):
    (tmp_path / "model.json").write_text(content)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"holds .*notes/thesis\.txt"), replacing(tmp_path, force=True):
        pass
    assert (tmp_path / "notes" / "thesis.txt").read_text() == "mine"


def test_the_command_proves_the_checkpoint_on_its_test_split(checkpoint: Path, tmp_path: Path, capsys):
    command = ["export", "--ckpt_path", str(checkpoint), "--output", str(tmp_path / "bundle")]
    assert main([*command, "--num_workers", "0"]) == 0
    split = json.loads((tmp_path / "bundle" / "model.json").read_text("utf-8"))["checks"]["test_split"]
    assert split["images"] > 0 and split["accuracy"]["exported"] == split["accuracy"]["model"]
    assert main(command) == 2
    assert "--force" in capsys.readouterr().err


def test_a_wrong_root_is_a_mistake_and_a_strict_tolerance_a_failure(checkpoint: Path, tmp_path: Path, capsys):
    command = ["export", "--ckpt_path", str(checkpoint), "--output", str(tmp_path / "bundle"), "--num_workers", "0"]
    assert main([*command, "--root", str(tmp_path / "nowhere")]) == 2
    assert "nowhere" in capsys.readouterr().err
    assert main([*command, "--atol", "0", "--rtol", "0"]) == 1
    assert list(tmp_path.iterdir()) == []
