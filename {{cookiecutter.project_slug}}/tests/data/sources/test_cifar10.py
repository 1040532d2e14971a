import pickle

import numpy as np
import pytest
from torchvision.datasets import CIFAR10

from {{cookiecutter.package_name}}.data.sources import open_source


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Two images in CIFAR-10's own files, whose checksums are not compared."""
    monkeypatch.setattr(CIFAR10, "train_list", [["data_batch_1", None]])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", None]])
    monkeypatch.setattr(CIFAR10, "meta", {"filename": "batches.meta", "key": "label_names", "md5": None})
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    batch = {"data": np.arange(2 * 3072, dtype=np.uint8).reshape(2, 3072), "labels": [1, 0]}
    contents = {"data_batch_1": batch, "test_batch": batch, "batches.meta": {"label_names": ["cat", "dog"]}}
    for name, content in contents.items():
        (folder / name).write_bytes(pickle.dumps(content))
    return tmp_path


def test_images_and_class_names_are_read_and_val_is_left_to_be_cut(root):
    source = open_source("cifar10", root, {})
    assert source.classes == ["cat", "dog"]
    assert source.splits["train"].labels == [("dog",), ("cat",)]
    assert {name: len(part.images) for name, part in source.splits.items()} == {"train": 2, "test": 2}
    assert source.splits["train"].images[0].shape == (32, 32, 3)


def test_nothing_is_downloaded_unasked(tmp_path):
    with pytest.raises(ValueError, match=r"no CIFAR-10 in root .*source_args \{download: true\}"):
        open_source("cifar10", tmp_path, {})


def test_a_failing_download_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(CIFAR10, "url", "http://127.0.0.1:9/cifar-10-python.tar.gz")
    with pytest.raises(ValueError, match=f"CIFAR-10 can't be downloaded to root {tmp_path}"):
        open_source("cifar10", tmp_path, {"download": True})
