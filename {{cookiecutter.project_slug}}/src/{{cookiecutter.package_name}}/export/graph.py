"""What is exported, whatever the format: pixels to scores."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

if TYPE_CHECKING:  # keeps the fresh process, in which formats are loaded, from loading Lightning
    from ..classifier import ImageClassifier

INPUT, OUTPUTS = "images", ("logits", "probabilities")
Scores = dict[str, NDArray[np.float32]]
PRECISIONS = {32: "float32", 16: "float16", 8: "int8"}


@dataclass(frozen=True)
class Options:
    """What was asked for; the `export` command explains it."""

    format: str = "onnx"
    opset: int = 20
    batch: Literal["dynamic"] | int = "dynamic"
    atol: float = 1e-4
    rtol: float = 1e-4
    quantize: int = 32
    max_accuracy_drop: float = 0.02
    min_agreement: float = 0.9

    @property
    def is_lossy(self) -> bool:
        return self.quantize < 32

    @property
    def precision(self) -> str:
        return PRECISIONS[self.quantize]

    @property
    def name(self) -> str:
        return f"{self.format}-{self.precision}" if self.is_lossy else self.format

    @property
    def axis(self) -> str | int:
        return "batch" if self.batch == "dynamic" else self.batch

    @property
    def sizes(self) -> tuple[int, ...]:
        return (1, 2, 7, 64) if self.batch == "dynamic" else (self.batch,)

    def in_batch(self, run: Callable[[Tensor], Scores], images: Tensor) -> Scores:
        """Run at most a fixed batch, filled up by repeating images."""
        size = len(images) if self.batch == "dynamic" else self.batch
        scores = run(images[torch.arange(size) % len(images)])
        return scores if self.batch == "dynamic" else {name: values[: len(images)] for name, values in scores.items()}


class Graph(nn.Module):
    """uint8 images [N, C, H, W] to logits and probabilities, float32 [N, K]; a copy, in evaluation mode."""

    def __init__(self, classifier: "ImageClassifier") -> None:
        super().__init__()
        self.spec = classifier.spec
        self.normalize, self.network = copy.deepcopy((classifier.normalize, classifier.network))
        self._probabilities = classifier.probabilities
        self._dtype = torch.float32
        self.float().cpu().eval().requires_grad_(False)
        self.to(memory_format=torch.contiguous_format)  # some backends can't take weights in channels_last

    def shapes(self, batch: str | int) -> dict[str, list[Any]]:
        decoding, output = self.spec.decoding, [batch, len(self.spec.classes)]
        return {INPUT: [batch, decoding.channels, *decoding.image_size]} | dict.fromkeys(OUTPUTS, output)

    def example(self, options: Options, *, dynamic: int = 2) -> Tensor:
        """A batch of black images, of that size where any will do: real ones would be stored in the file."""
        batch = dynamic if options.batch == "dynamic" else options.batch  # 1 could be taken for a constant
        return torch.zeros(self.shapes(batch)[INPUT], dtype=torch.uint8)

    def preprocessing(self) -> dict[str, list[float]]:
        return {name: buffer.flatten().tolist() for name, buffer in self.normalize.named_buffers()}

    def metadata(self) -> dict[str, str]:
        """What a file says of itself."""
        return {
            "classes": json.dumps(self.spec.classes, ensure_ascii=False),
            "task": self.spec.task,
            "preprocessing": json.dumps(self.preprocessing()),
        }

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.network(self.normalize(images).to(self._dtype)).float()
        return logits, self._probabilities(logits)

    def half_network(self) -> "Graph":
        """A copy whose network computes in float16; it normalises, and gives its scores, in float32."""
        half = copy.deepcopy(self)
        half._dtype = torch.float16
        half.network.half()
        return half

    @torch.inference_mode()
    def scores(self, images: Tensor) -> Scores:
        return {name: scores.numpy() for name, scores in zip(OUTPUTS, self(images), strict=True)}
