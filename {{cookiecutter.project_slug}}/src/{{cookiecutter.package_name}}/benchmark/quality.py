"""What the variants answer on the test split, beside the answers of the model itself."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from ..export.graph import Graph, Options
from ..export.verification import ANSWERS, Batches, VerificationError, reference
from ..tasks import TASKS
from .rows import Row
from .runtime import Runtime


@dataclass(frozen=True)
class Quality:
    """Of the model in float32, as PyTorch computes it.

    Accuracy is a share in [0, 1], of all labels where an image has several. `confusion` counts images [class, answer]
    or, with several labels, [class, absent or present, answered absent or present].
    """

    images: int
    accuracy: float
    confusion: NDArray[np.int64]

    def as_dict(self) -> dict[str, Any]:
        return {"images": self.images, "accuracy": self.accuracy, "confusion": self.confusion.tolist()}


def score_test_split(rows: Sequence[Row], runtimes: dict[str, Runtime], graph: Graph, batches: Batches) -> Quality:
    """Fill in each row's accuracy and agreement with the model; each image is decoded once."""
    totals, right, agrees = Counter[str](), Counter[str](), Counter[str]()
    answers, confusion = ANSWERS[graph.spec.task], TASKS[graph.spec.task].confusion(len(graph.spec.classes))
    for images, labels in tqdm(batches, desc="test split", unit="batch", leave=False):
        truth, model = labels.numpy().astype(int), answers(reference(graph, images, Options())["logits"]).astype(int)
        confusion.update(torch.from_numpy(model), torch.from_numpy(truth))
        totals.update(images=len(images), answers=model.size, right=int((model == truth).sum()))
        for row in (row for row in rows if "accuracy" not in row.missing):
            try:
                found = answers(runtimes[row.name].scores(images.numpy())["logits"])
            except VerificationError as error:
                row.miss(str(error), "accuracy", "agreement")
                continue
            right[row.name] += int((found == truth).sum())
            agrees[row.name] += int((found == model).sum())
    for row in (row for row in rows if "accuracy" not in row.missing):
        row.accuracy, row.agreement = (counts[row.name] / totals["answers"] for counts in (right, agrees))
    return Quality(totals["images"], totals["right"] / totals["answers"], confusion.compute().numpy())
