"""What a checkpoint keeps of the data, in plain values."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from .decoding import Decoding
from .sources import SPLITS, Samples


@dataclass(frozen=True)
class Splits:
    """Which training images make up the splits that the source does not have.

    A hash of each image's key decides, so that images that are added later move no earlier one.

    Args:
        val_share: share in [0, 1) for validation.
        test_share: share in [0, 1) for the test.
        salt: any text; another one gives another choice.
    """

    val_share: float = 0.15
    test_share: float = 0.15
    salt: str = ""

    def __post_init__(self) -> None:
        if min(self.val_share, self.test_share) < 0 or self.val_share + self.test_share >= 1:
            raise ValueError(f"val_share and test_share must be in [0, 1) with a sum below 1, got {self}.")

    def place(self, key: str) -> str:
        """Name of the split that an image belongs to."""
        digest = hashlib.sha256((self.salt + key).encode("utf-8", "surrogateescape")).digest()
        fraction = int.from_bytes(digest[:8], "big") / 2**64
        if fraction < self.test_share:
            return "test"
        return "val" if fraction < self.test_share + self.val_share else "train"

    def complete(self, given: dict[str, Samples]) -> dict[str, Samples]:
        """Cut the splits that are missing from the training images."""
        missing = [name for name in SPLITS if name not in given]
        if not missing or "train" in missing:
            return given
        places = [self.place(key) for key in given["train"].keys]
        places = [place if place in missing else "train" for place in places]
        return given | {name: given["train"].where([p == name for p in places]) for name in ("train", *missing)}


@dataclass(frozen=True)
class DataSpec:
    """Everything that a checkpoint keeps of the data.

    `classes` are in index order, `class_counts` their training images; `mean` and `std` are per channel, of training
    images scaled to [0, 1]; `skipped` holds the keys of broken images that were left out.
    """

    task: str
    classes: list[str]
    class_counts: list[int]
    decoding: Decoding
    mean: list[float]
    std: list[float]
    source: str
    root: str | None
    source_args: dict[str, Any]
    splits: Splits
    skipped: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Plain values only, that load with `weights_only=True`."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "DataSpec":
        decoding = values["decoding"] | {"image_size": tuple(values["decoding"]["image_size"])}
        return cls(**values | {"decoding": Decoding(**decoding), "splits": Splits(**values["splits"])})
