"""The `predict` command: image files and folders to a CSV file with labels and scores."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import BasePredictionWriter
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor
from torch.utils.data import Dataset

from .checkpoints import find_checkpoint, load_classifier
from .classifier import ImageClassifier
from .data.datamodule import ImageDataModule
from .data.decoding import Decoding
from .data.files import image_files
from .evaluation import checking_trainer

THRESHOLD = 0.5  # multi-label: a label is predicted from this probability on


class _Files(Dataset[tuple[Tensor, int]]):
    """Decoded images and their numbers from 1 on; a broken file is black and has its number negated."""

    def __init__(self, paths: list[Path], decoding: Decoding) -> None:
        self.paths = paths
        self.decoding = decoding

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        try:
            return self.decoding.decode(self.paths[index]), index + 1
        except ValueError:
            return torch.zeros(self.decoding.channels, *self.decoding.image_size, dtype=torch.uint8), -index - 1


class _Gather(BasePredictionWriter):
    """Brings the rows of all processes together, by their number."""

    def __init__(self) -> None:
        super().__init__("epoch")
        self.rows: dict[int, Tensor] = {}

    def write_on_epoch_end(
        self, trainer: Trainer, pl_module: LightningModule, predictions: Any, batch_indices: Any
    ) -> None:
        mine = [(numbers.cpu(), probabilities.cpu()) for numbers, probabilities in predictions]
        parts = [mine]
        if trainer.world_size > 1:
            parts = [[] for _ in range(trainer.world_size)]
            torch.distributed.all_gather_object(parts, mine)
        for numbers, probabilities in (batch for part in parts for batch in part):
            self.rows.update(zip(numbers.tolist(), probabilities, strict=True))


def predict(
    paths: list[Path],
    ckpt_path: Path | None = None,
    output: Path = Path("predictions.csv"),
    top_k: int = 5,
    on_broken: Literal["error", "skip"] = "error",
    batch_size: int = 64,
    num_workers: int | Literal["auto"] = "auto",
    accelerator: str = "auto",
    devices: int = 1,
    strategy: Literal["ddp", "fsdp"] = "ddp",
) -> None:
    """Classify image files; one row per file, in the order given.

    Args:
        paths: image files, and folders that are searched for them.
        ckpt_path: checkpoint; without it the best one of the newest finished run below runs/.
        output: the CSV file; a file that is none of this command's is not overwritten.
        top_k: classes with their scores per row, at least 1.
        on_broken: error ends with exit code 1 if a file can't be decoded; its row says why in both cases.
        batch_size: images per batch and device.
        num_workers: processes that decode images.
        accelerator: auto, cpu, cuda or mps.
        devices: number of devices.
        strategy: ddp gives each device the whole network, fsdp a share of it.
    """
    if top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}.")
    if missing := [path for path in paths if not path.exists()]:
        raise FileNotFoundError(f"{len(missing)} of the paths do not exist, the first: {missing[0]}")
    _refuse_foreign(output)
    files = [file for path in paths for file in image_files(path)]
    classifier = load_classifier(find_checkpoint(ckpt_path))
    dataset = _Files(files, classifier.spec.decoding)
    data = ImageDataModule.from_spec(classifier.spec, batch_size=batch_size, num_workers=num_workers)
    gather = _Gather()
    data.predict_dataset = dataset
    # A device without a file would have nothing to gather, and the others would wait for it.
    trainer = checking_trainer(accelerator, min(devices, len(files)), strategy, callbacks=[gather])
    trainer.predict(classifier, data, return_predictions=False)
    _write(output, list(_rows(dataset, gather.rows, classifier, min(top_k, len(classifier.spec.classes)))), on_broken)


def _refuse_foreign(output: Path) -> None:
    if output.is_dir():
        raise ValueError(f"output {output} is a folder, expected a file.")
    if output.is_file():
        with output.open(encoding="utf-8", errors="replace") as file:
            if not file.readline().startswith("path,label,score,"):
                raise ValueError(f"output {output} exists and holds no predictions; it is not overwritten.")
    elif not output.parent.is_dir():
        raise FileNotFoundError(f"output {output}: the folder {output.parent} does not exist.")


def _rows(
    dataset: _Files, probabilities: dict[int, Tensor], classifier: ImageClassifier, top_k: int
) -> Iterator[dict[str, str]]:
    classes = classifier.spec.classes
    for number, path in enumerate(dataset.paths, 1):
        if number not in probabilities:
            yield {"path": str(path), "error": _why_broken(path, dataset.decoding)}
            continue
        scores, top = probabilities[number].topk(top_k)
        best = {"label": classes[top[0]], "score": f"{scores[0]:.6f}"}
        if classifier.spec.task == "multilabel":
            best["label"] = "|".join(c for c, p in zip(classes, probabilities[number], strict=True) if p >= THRESHOLD)
        ranked = {
            f"{key}_{rank}": value
            for rank, (score, index) in enumerate(zip(scores, top, strict=True), 1)
            for key, value in (("label", classes[index]), ("score", f"{score:.6f}"))
        }
        yield {"path": str(path), **best, "error": "", **ranked}


def _why_broken(path: Path, decoding: Decoding) -> str:
    try:
        decoding.decode(path)
    except ValueError as error:
        return str(error)
    return "could not be decoded, but can now"


@rank_zero_only
def _write(output: Path, rows: list[dict[str, str]], on_broken: str) -> None:
    columns = list(dict.fromkeys(["path", "label", "score", "error", *(key for row in rows for key in row)]))
    aside = output.with_name(output.name + ".part")
    # A file name that is no UTF-8 keeps its bytes.
    with aside.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)
    aside.replace(output)
    broken = [row for row in rows if row["error"]]
    print(f"written: {output} ({len(rows)} rows, {len(broken)} of them broken files)", flush=True)
    if broken and on_broken == "error":
        raise RuntimeError(f"{len(broken)} of {len(rows)} files could not be decoded, the first: {broken[0]['error']}")
