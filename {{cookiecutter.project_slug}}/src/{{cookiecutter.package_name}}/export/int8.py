"""An ONNX file in int8: what onnxruntime is fast with on CPUs."""

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor

from .graph import INPUT
from .verification import VerificationError

if TYPE_CHECKING:  # keeps the fresh process, in which formats are loaded, from loading Lightning
    from ..data.datamodule import ImageDataModule

NUM_CALIBRATION_IMAGES = 512
LAYERS = {"Conv", "Gemm", "MatMul"}
# Other types of activations and weights are slower than float there, or less accurate.
PRESET = {
    "quant_format": QuantFormat.QDQ,
    "per_channel": True,
    "activation_type": QuantType.QUInt8,
    "weight_type": QuantType.QInt8,
}


def calibration_batches(data: "ImageDataModule", *, batch_size: int) -> Iterator[Tensor]:
    """From all over the training split, uint8 [batch_size, C, H, W], not augmented; the last one is filled up."""
    images = data.split("train")
    chosen = np.linspace(0, len(images) - 1, min(NUM_CALIBRATION_IMAGES, len(images))).astype(int)
    for start in range(0, len(chosen), batch_size):
        indices = np.resize(chosen[start : start + batch_size], batch_size)
        yield torch.stack([images[index][0] for index in indices])


class _Calibration(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, batches: Iterable[Tensor]) -> None:
        self._batches = iter(batches)

    def get_next(self) -> dict[str, NDArray[np.uint8]] | None:
        images = next(self._batches, None)
        return None if images is None else {INPUT: images.numpy()}


def _kept_in_float(model: onnx.ModelProto) -> list[str]:
    """Nodes before the first layer, which normalise, and from the last one on, which give the scores."""
    layers = [number for number, node in enumerate(model.graph.node) if node.op_type in LAYERS]
    if len(layers) < 2:
        raise VerificationError("int8 needs at least two layers, since the last one stays in float.")
    return [node.name for number, node in enumerate(model.graph.node) if not layers[0] <= number < layers[-1]]


def to_int8(file: Path, batches: Iterable[Tensor]) -> None:
    """Replace a float ONNX file by its int8 form; ranges are those that the batches of pixels reach inside of it."""
    with tempfile.TemporaryDirectory() as folder:
        prepared, quantized = Path(folder, "prepared.onnx"), Path(folder, "int8.onnx")
        quant_pre_process(file, prepared, skip_symbolic_shape=True)
        kept = _kept_in_float(onnx.load(prepared))
        quantize_static(prepared, quantized, _Calibration(batches), nodes_to_exclude=kept, **PRESET)
        _check(onnx.load(quantized))
        file.write_bytes(quantized.read_bytes())


def _check(model: onnx.ModelProto) -> None:
    kinds = {node.op_type for node in model.graph.node}
    num_int8 = sum(
        tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) > 1 for tensor in model.graph.initializer
    )
    if not {"QuantizeLinear", "DequantizeLinear"} <= kinds or not num_int8:
        raise VerificationError("the ONNX file came out without int8 weights or without quantized activations.")
