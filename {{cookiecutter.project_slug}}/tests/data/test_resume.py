import pytest
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from PIL import Image

from {{cookiecutter.package_name}}.data.augmentation import Augmentation
from {{cookiecutter.package_name}}.data.sources import Samples

NUM_BATCHES = 4


class Recorder(LightningModule):
    """Learns a little and keeps every batch as it came."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3 * 8 * 8, 2)
        self.batches = []

    def training_step(self, batch, batch_idx):
        self.batches.append((self.current_epoch, batch_idx, *(part.tolist() for part in batch)))
        return torch.nn.functional.cross_entropy(self.layer(batch[0].flatten(1).float() / 255), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


def fit(data, folder, checkpoint=None):
    model = Recorder()
    keep = {"save_top_k": -1, "auto_insert_metric_name": False}
    steps = ModelCheckpoint(folder, "step={step}", every_n_train_steps=1, **keep)
    ends = ModelCheckpoint(folder, "end={epoch}", monitor="epoch", save_on_train_epoch_end=True, **keep)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "limit_val_batches": 0}
    trainer = Trainer(accelerator="cpu", max_epochs=3, callbacks=[steps, ends], **quiet)
    trainer.fit(model, data, ckpt_path=checkpoint, weights_only=True)
    return model.batches


@pytest.fixture(params=[0, 2])
def data(request, build, noise, tmp_path):
    """Makes the same data module again and again: in memory, or from files with workers."""
    train = noise("train", count=31)
    if request.param:
        paths = [tmp_path / f"{number}.png" for number in range(31)]
        for path, image in zip(paths, train.images, strict=True):
            Image.fromarray(image).save(path)
        train = Samples(train.keys, paths, train.labels)
    splits = {"train": train, "val": train, "test": train}
    options = {"in_memory": not request.param, "num_workers": request.param, "batch_size": 8}
    return lambda: build(splits, augmentation=Augmentation(2, True), **options)


def test_the_next_batch_after_a_resume_is_the_one_that_was_due(data, tmp_path):
    whole = fit(data(), tmp_path / "whole")
    assert len({str(batch[2:]) for batch in whole}) == len(whole) == 3 * NUM_BATCHES
    for name, step in (("step=1", 1), ("step=4", 4), ("step=6", 6), ("end=0", 4), ("end=1", 8)):
        resumed = fit(data(), tmp_path / "resumed", tmp_path / "whole" / f"{name}.ckpt")
        assert resumed == whole[step:], name
