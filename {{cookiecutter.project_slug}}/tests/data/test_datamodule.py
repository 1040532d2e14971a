import logging
import warnings

import numpy as np
import pytest
import torch
from lightning import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from PIL import Image

from {{cookiecutter.package_name}}.data.augmentation import Augmentation
from {{cookiecutter.package_name}}.data.sources import Samples
from {{cookiecutter.package_name}}.data.spec import Splits

SPLITS = ("train", "val", "test")
QUIET = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False, "enable_progress_bar": False}


class Model(BoringModel):
    """Takes images and remembers the ones it is tested on."""

    def training_step(self, batch, batch_idx):
        self.batch = batch
        return self.layer(batch[0].flatten(1)[:, :32].float()).mean()

    validation_step = test_step = training_step


def samples(*labels, prefix="a"):
    keys = [f"{prefix}/{number}.png" for number in range(len(labels))]
    return Samples(keys, np.zeros((len(labels), 8, 8, 3), np.uint8), list(labels))


def everywhere(part):
    return dict.fromkeys(SPLITS, part)


def keys(data):
    return {name: set(data.split(name).samples.keys) for name in SPLITS}


def test_batches_are_uint8_images_with_int64_labels(build):
    images, labels = next(iter(build(batch_size=5).train_dataloader()))
    assert (images.shape, images.dtype) == ((5, 3, 8, 8), torch.uint8)
    assert (labels.shape, labels.dtype) == ((5,), torch.int64)


def test_multilabel_labels_are_ones_and_zeros(build):
    data = build(everywhere(samples(("cat", "dog"), (), ("dog",))), task="multilabel")
    assert data.split("val").labels.tolist() == [[1, 1], [0, 0], [0, 1]]
    assert data.split("val").labels.dtype == torch.float32
    assert data.spec.class_counts == [1, 2]


@pytest.mark.parametrize("task", ["multiclass", "multilabel"])
def test_one_class_is_too_few(task, build):
    with pytest.raises(ValueError, match=r"at least two classes, found \['cat'\]"):
        build(everywhere(samples(("cat",), ("cat",))), task=task, classes=["cat"])._inspect()


@pytest.mark.parametrize("labels", [(), ("cat", "dog")])
def test_multiclass_needs_one_label_per_image(labels, build):
    with pytest.raises(ValueError, match=r"a/0.png has the labels .* only task multilabel takes that"):
        build(everywhere(samples(labels))).split("val")


def test_statistics_are_those_of_the_training_images_unless_given(build):
    data = build()
    levels = torch.stack([image for image, _ in data.split("train")]).double() / 255
    assert data.spec.mean == pytest.approx(levels.mean((0, 2, 3)).tolist(), abs=1e-12)
    assert data.spec.std == pytest.approx(levels.std((0, 2, 3), correction=0).tolist(), abs=1e-12)
    assert build(mean=[0.5] * 3).spec.mean == [0.5] * 3


def test_a_constant_channel_has_a_usable_deviation(build):
    assert build(everywhere(samples(("cat",), ("dog",)))).spec.std == [1.0] * 3


def test_splits_are_the_same_and_disjoint_in_fit_then_test_and_from_the_checkpoint(build):
    data, trainer = build(), Trainer(**QUIET, max_epochs=1)
    before = keys(data)
    trainer.fit(Model(), data)
    trainer.test(Model(), data, verbose=False)
    torch.rand(3)
    assert keys(data) == keys(build(spec=data.spec)) == before
    assert sum(map(len, before.values())) == len(set.union(*before.values())) == 40


def test_classes_keep_their_numbers_whatever_a_split_holds(build):
    val, test = samples(("dog",), prefix="val"), samples(("dog",), ("cat",), prefix="test")
    data = build({"train": samples(("cat",), ("dog",), prefix="train"), "val": val, "test": test})
    assert [data.split(name).labels.tolist() for name in SPLITS] == [[0, 1], [1], [1, 0]]


def test_an_unknown_class_is_named(build, noise):
    train, other = noise("train"), samples(("cow",), prefix="val")
    with pytest.raises(ValueError, match=r"class 'cow' of val/0.png is unknown"):
        build({"train": train, "val": other, "test": train}).split("train")
    spec = build().spec
    with pytest.raises(ValueError, match=r"classes \['cow'\] .* are unknown"):
        build({"train": other}, classes=("cow", "dog"), spec=spec).split("test")


def test_a_class_left_without_training_images_is_named_with_the_salt(build, noise):
    splits, train = Splits(val_share=0.3, test_share=0.0, salt="pepper"), noise("train")
    rare = next(key for key in map(str, range(99)) if splits.place(key) == "val")
    offered = Samples([*train.keys, rare], [*train.images, train.images[0]], [*train.labels, ("cow",)])
    with pytest.raises(ValueError, match=r"no training images of the classes \['cow'\] with splits.salt 'pepper'"):
        build({"train": offered}, classes=("cat", "cow", "dog"), splits=splits).split("train")


def test_a_split_without_images_is_named(build):
    with pytest.raises(ValueError, match=r"the val split .* has 0 images"):
        build(splits=Splits(val_share=0.0)).val_dataloader()


@pytest.fixture
def broken_files(tmp_path):
    """Samples of 12 image files; numbers 3 and 7 are cut off."""
    paths = [tmp_path / f"{number}.png" for number in range(12)]
    for number, path in enumerate(paths):
        Image.effect_noise((8, 8), number).save(path)
        if number in (3, 7):
            path.write_bytes(path.read_bytes()[:-40])
    labels = [(("cat", "dog")[number % 2],) for number in range(12)]
    return everywhere(Samples([path.name for path in paths], paths, labels))


def test_broken_files_are_named_before_training(build, broken_files):
    with pytest.raises(ValueError, match=r"2 broken images .*3.png can't be decoded"):
        build(broken_files, in_memory=False).split("train")


def test_skipped_files_are_listed_and_stay_skipped(build, broken_files, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("lightning.pytorch"), "propagate", True)
    data = build(broken_files, in_memory=False, on_broken="skip")
    assert data.spec.skipped == ["3.png", "7.png"]
    assert "2 broken images are left out" in caplog.text
    assert "7.png" in caplog.text
    assert "test: 10 images, {'cat': 6, 'dog': 4}" in caplog.text
    assert len(build(broken_files, in_memory=False, spec=data.spec).split("test")) == 10


def test_a_file_that_breaks_later_is_one_sentence_from_a_worker(build, broken_files):
    data = build(broken_files, in_memory=False, on_broken="skip", num_workers=1)
    data.split("test").samples.images[0].write_bytes(b"")
    with pytest.raises(ValueError, match=r"^\S+0.png can't be decoded: [^\n]+$"):
        list(data.test_dataloader())


@pytest.mark.parametrize("num_workers", [0, 1])
def test_loader_options_are_valid_together(num_workers, build):
    data = build(num_workers=num_workers, persistent_workers=True, prefetch_factor=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # pinned memory without CUDA warns
        assert sum(len(labels) for _, labels in data.val_dataloader()) == len(data.split("val"))


def test_images_in_memory_need_no_workers_and_come_by_whole_batches(build):
    loader = build(num_workers="auto").test_dataloader()
    assert loader.num_workers == 0
    images, labels = loader.dataset.__getitems__([0, 1])
    assert torch.equal(images[1], loader.dataset[1][0])
    assert torch.equal(labels[1], loader.dataset[1][1])


def test_only_training_batches_are_augmented(build):
    data, model = build(augmentation=Augmentation(3, True), batch_size=40), Model()
    trainer = Trainer(**QUIET, max_epochs=1, limit_val_batches=0)
    trainer.fit(model, data)
    originals = {tuple(image.flatten().tolist()) for image in data.split("train").pixels}
    assert not all(tuple(image.flatten().tolist()) in originals for image in model.batch[0])
    trainer.test(model, data, verbose=False)
    assert torch.equal(model.batch[0], data.split("test").pixels)
