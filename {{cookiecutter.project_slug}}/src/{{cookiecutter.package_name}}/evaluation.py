"""The `validate` and `test` commands: the metrics of a checkpoint on a split that it was not trained on."""

from pathlib import Path
from typing import Any, Literal

from lightning import Trainer
from lightning.pytorch.utilities import rank_zero_only

from .callbacks import CALLBACKS
from .checkpoints import find_checkpoint, load_classifier
from .data.datamodule import ImageDataModule
from .runs import write_json
from .strategies import DataParallel, FullyShard

STRATEGIES = {"ddp": DataParallel, "fsdp": FullyShard}


def checking_trainer(accelerator: str, devices: int, strategy: str = "ddp", **options: Any) -> Trainer:
    """A Trainer that trains nothing and writes nothing of its own; the data module gives each process its images."""
    return Trainer(
        accelerator=accelerator,
        devices=devices,
        strategy=STRATEGIES[strategy]() if devices > 1 else "auto",
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        **options,
    )


def evaluate(
    split: Literal["val", "test"],
    ckpt_path: Path | None = None,
    root: str | None = None,
    batch_size: int = 64,
    num_workers: int | Literal["auto"] = "auto",
    accelerator: str = "auto",
    devices: int = 1,
    strategy: Literal["ddp", "fsdp"] = "ddp",
    output: Path | None = None,
) -> None:
    """Score a checkpoint; every image is counted once, whatever the number of devices.

    Args:
        split: val or test.
        ckpt_path: checkpoint; without it the best one of the newest finished run below runs/.
        root: where the data is now, if it has moved since training.
        batch_size: images per batch and device.
        num_workers: processes that decode images.
        accelerator: auto, cpu, cuda or mps.
        devices: number of devices.
        strategy: ddp gives each device the whole network, fsdp a share of it.
        output: folder for metrics.json and pictures; by default in the checkpoint's run folder, if it is in one.
    """
    path = find_checkpoint(ckpt_path)
    classifier = load_classifier(path)
    data = ImageDataModule.from_spec(classifier.spec, root=root, batch_size=batch_size, num_workers=num_workers)
    num_images = len(data.split(split))  # before any word of Lightning's, if the data can't be reached
    output = output or _folder_in_run(path, split)
    callbacks = [CALLBACKS["pictures"]()] if output and "pictures" in CALLBACKS else []
    trainer = checking_trainer(accelerator, devices, strategy, callbacks=callbacks, default_root_dir=output)
    run = {"val": trainer.validate, "test": trainer.test}[split]
    (metrics,) = run(classifier, data)
    _report({"checkpoint": str(path), "split": split, "images": num_images, **metrics}, output)


def _folder_in_run(checkpoint: Path, split: str) -> Path | None:
    run = checkpoint.parent.parent
    return run / split if (run / "config.yaml").is_file() else None


@rank_zero_only
def _report(result: dict[str, object], output: Path | None) -> None:
    print(f"{result['images']} images, each counted once")
    if output is None:
        return
    write_json(output / "metrics.json", result)
    print(f"written: {output}/")
