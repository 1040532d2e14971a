"""The `export` command."""

from pathlib import Path
from typing import Literal

from ..checkpoints import find_checkpoint, load_classifier
from ..data.datamodule import ImageDataModule
from ..data.spec import DataSpec
from . import open_format
from .bundle import UNREACHABLE, replacing, write_bundle
from .graph import Graph, Options


def export(
    ckpt_path: Path | None = None,
    *,
    format: str = "onnx",
    output: Path | None = None,
    opset: int = 20,
    batch: Literal["dynamic"] | int = "dynamic",
    atol: float = 1e-4,
    rtol: float = 1e-4,
    quantize: Literal[32, 8] = 32,
    max_accuracy_drop: float = 0.02,
    root: str | None = None,
    force: bool = False,
    num_workers: int | Literal["auto"] = "auto",
) -> None:
    """Write a bundle for deployment: the model, what its consumers must know, and the proof that it is the same model.

    Args:
        ckpt_path: checkpoint; without it the best one of the newest finished run below runs/.
        format: kind of model file, the name of a file in the export folder of this package.
        output: the bundle's folder; by default beside the checkpoint, named after it and the format.
        opset: ONNX operator set of the file, from 18 to 25.
        batch: dynamic, or the fixed number of images that every call takes.
        atol: allowed absolute difference of logits and probabilities from the model's.
        rtol: allowed difference relative to the model's value, added to atol.
        quantize: bits of the weights; 8 is int8, with ranges from training images.
        max_accuracy_drop: how far int8 may fall below the model on the validation split, absolute, in [0, 1].
        root: where the data is now, if it has moved since training.
        force: replace an existing bundle, once the new one is verified.
        num_workers: processes that decode the test images.
    """
    if batch != "dynamic" and batch < 1:
        raise ValueError(f"batch must be dynamic or at least 1, got {batch}.")
    if quantize < 32 and not hasattr(open_format(format), "quantize"):
        raise ValueError(f"format {format} can't be written with quantize {quantize}.")
    if not 18 <= opset <= 25:  # what torch.onnx writes itself; to others it converts, or only says that it does
        raise ValueError(f"opset must be from 18 to 25, got {opset}.")
    options = Options(format, opset, batch, atol, rtol, quantize, max_accuracy_drop)
    checkpoint = find_checkpoint(ckpt_path)
    output = output or checkpoint.with_name(f"{checkpoint.stem}-{options.name}")
    with replacing(output, force=force) as folder:
        graph = Graph(load_classifier(checkpoint))
        data = _reachable(graph.spec, root, batch, num_workers, quantize)
        checks = write_bundle(folder, graph, options, checkpoint, data)["checks"]
    print(f"bundle: {output} is verified; test split: {checks['test_split']}")


def _reachable(
    spec: DataSpec,
    root: str | None,
    batch: Literal["dynamic"] | int,
    num_workers: int | Literal["auto"],
    quantize: int,
) -> ImageDataModule | None:
    batch_size = 64 if batch == "dynamic" else batch
    try:
        data = ImageDataModule.from_spec(spec, root=root, batch_size=batch_size, num_workers=num_workers)
        data.test_dataloader()
    except (OSError, ValueError) as error:
        if root is not None or quantize < 32:  # int8 needs training images
            raise
        print(f"{UNREACHABLE} ({error})")
        return None
    return data
