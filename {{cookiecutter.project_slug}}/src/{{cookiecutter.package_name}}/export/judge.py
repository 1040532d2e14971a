"""Whether a lossy model is good enough, and what is needed to make it so."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .graph import Graph, Options
from .verification import Run, VerificationError, check_split

if TYPE_CHECKING:  # keeps the fresh process, in which formats are loaded, from loading Lightning
    from ..data.datamodule import ImageDataModule

NUM_CALIBRATION_IMAGES = 512


class Judge:
    """Compares lossy models with the float one on the validation split, and keeps what was tried."""

    def __init__(self, graph: Graph, data: "ImageDataModule", options: Options) -> None:
        self.tried: list[dict[str, Any]] = []
        self._graph, self._data, self._options = graph, data, options

    def calibration(self) -> Iterator[Tensor]:
        """Batches uint8 [N, C, H, W] from all over the training split, not augmented; the last one is filled up."""
        size = 64 if self._options.batch == "dynamic" else self._options.batch
        images = self._data.split("train")
        chosen = np.linspace(0, len(images) - 1, min(NUM_CALIBRATION_IMAGES, len(images))).astype(int)
        for start in range(0, len(chosen), size):
            yield torch.stack([images[index][0] for index in np.resize(chosen[start : start + size], size)])

    def __call__(self, what: str, run: Run) -> dict[str, Any]:
        """Accuracy and agreement of a candidate, which is said at once, since trying them takes long."""
        in_batch = partial(self._options.in_batch, run)
        found = check_split(in_batch, self._graph, self._data.val_dataloader(), self._options, name="val")
        self.tried.append({"what": what, "accepted": self.accepts(found)} | found)
        verdict = "accepted" if self.accepts(found) else "refused"
        print(f"{self._options.name}, {what}: {self._numbers(found)}: {verdict}")
        return found

    def accepts(self, found: dict[str, Any]) -> bool:
        """Whether both limits hold."""
        drop = found["accuracy"]["model"] - found["accuracy"]["exported"]
        return bool(
            drop <= self._options.max_accuracy_drop + 1e-9 and found["agreement"] >= self._options.min_agreement
        )

    def require(self, found: dict[str, Any]) -> None:
        """Raise an error where a limit is not kept."""
        if not self.accepts(found):
            raise VerificationError(
                f"{self._options.name} has {self._numbers(found)}, which --max_accuracy_drop "
                f"{self._options.max_accuracy_drop} and --min_agreement {self._options.min_agreement} do not allow; "
                "quantization-aware training may help (README)."
            )

    @staticmethod
    def _numbers(found: dict[str, Any]) -> str:
        accuracy = found["accuracy"]
        return (
            f"validation accuracy {accuracy['model']:.4f} -> {accuracy['exported']:.4f}, "
            f"agreement {found['agreement']:.4f}"
        )
