"""ONNX files in int8: the forms that onnxruntime and TensorRT are fast with."""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, qdq_loss_debug, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from torch import Tensor

from .graph import INPUT
from .judge import Judge
from .verification import Run, VerificationError

LAYERS = {"Conv", "Gemm", "MatMul"}
NUM_RANKING_IMAGES = 16
PAIR = ("QuantizeLinear", "DequantizeLinear")
Preset = dict[str, Any]
# Other types of activations and weights are slower than float there, or less accurate.
CPU: Preset = {
    "quant_format": QuantFormat.QDQ,
    "per_channel": True,
    "activation_type": QuantType.QUInt8,
    "weight_type": QuantType.QInt8,
}
# TensorRT takes zero points of 0 alone, a pair of nodes at each weight, and no quantized bias.
TENSORRT: Preset = CPU | {
    "activation_type": QuantType.QInt8,
    "extra_options": {
        "ActivationSymmetric": True,
        "WeightSymmetric": True,
        "QuantizeBias": False,
        "AddQDQPairToWeight": True,
        "DedicatedQDQPair": True,
    },
}


class _Batches(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, batches: Iterable[Tensor]) -> None:
        self._batches = iter(batches)

    def get_next(self) -> dict[str, NDArray[np.uint8]] | None:
        images = next(self._batches, None)
        return None if images is None else {INPUT: images.numpy()}


def to_int8(file: Path, batches: Iterable[Tensor], preset: Preset = CPU) -> None:
    """Replace a float ONNX file by its int8 form; ranges are those that the batches of pixels reach inside of it."""
    with tempfile.TemporaryDirectory() as folder:
        prepared, quantized = Path(folder, "prepared.onnx"), Path(folder, "int8.onnx")
        quant_pre_process(file, prepared, skip_symbolic_shape=True)
        _quantize(prepared, quantized, batches, preset)
        file.write_bytes(quantized.read_bytes())


def to_accepted_int8(file: Path, judge: Judge, load: Callable[[Path], Run], preset: Preset = CPU) -> None:
    """The same, with layers taken back to float, those around the worst tensor first, until the judge accepts it.

    Tensors are ranked by onnxruntime's quantization debugging: what share of each channel rounding takes away.
    """
    with tempfile.TemporaryDirectory() as folder:
        prepared, quantized = Path(folder, "prepared.onnx"), Path(folder, "int8.onnx")
        quant_pre_process(file, prepared, skip_symbolic_shape=True)
        model = onnx.load(prepared)
        layers, in_float = _layers(model), dict[str, None]()
        while True:
            _quantize(prepared, quantized, judge.calibration(), preset, [*in_float])
            what = ", ".join(name for name in in_float if name in layers) or "no layer but the last"
            found = judge(f"{what} in float", load(quantized))
            if judge.accepts(found):
                break
            worst = _worst_tensor(model, quantized, judge)
            nodes = {node.name: None for node in model.graph.node if worst in (*node.input, *node.output)}
            if nodes.keys() <= in_float.keys() or not layers - {*in_float, *nodes, *_ends(model)}:
                judge.require(found)
            in_float |= nodes
        file.write_bytes(quantized.read_bytes())


def _quantize(
    prepared: Path, quantized: Path, batches: Iterable[Tensor], preset: Preset, in_float: Sequence[str] = ()
) -> None:
    kept = [*_ends(onnx.load(prepared)), *in_float]
    quantize_static(prepared, quantized, _Batches(batches), nodes_to_exclude=kept, **preset)
    _check(onnx.load(quantized))


def _ends(model: onnx.ModelProto) -> list[str]:
    """Nodes before the first layer, which normalise, and from the last one on, which give the scores."""
    layers = [number for number, node in enumerate(model.graph.node) if node.op_type in LAYERS]
    if len(layers) < 2:
        raise VerificationError("int8 needs at least two layers, since the last one stays in float.")
    return [node.name for number, node in enumerate(model.graph.node) if not layers[0] <= number < layers[-1]]


def _check(model: onnx.ModelProto) -> None:
    """Weights are stored in int8, or in float with a pair of nodes that rounds them."""
    stored = {tensor.name for tensor in model.graph.initializer if len(tensor.dims) > 1}
    inputs = {kind: {node.input[0] for node in model.graph.node if node.op_type == kind} for kind in PAIR}
    if not all(names - stored for names in inputs.values()) or not any(names & stored for names in inputs.values()):
        raise VerificationError("the ONNX file came out without int8 weights or without quantized activations.")


def _layers(model: onnx.ModelProto) -> set[str]:
    return {node.name for node in model.graph.node if node.op_type in LAYERS}


def _worst_tensor(model: onnx.ModelProto, quantized: Path, judge: Judge) -> str:
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.value_info
    }
    augmented = quantized.with_suffix(".debug.onnx")
    qdq_loss_debug.modify_model_output_intermediate_tensors(quantized, augmented)
    size = NUM_RANKING_IMAGES if model.graph.input[0].type.tensor_type.shape.dim[0].dim_param else None
    batch = (images[:size] for images in islice(judge.calibration(), 1))
    values = qdq_loss_debug.collect_activations(str(augmented), _Batches(batch))
    pairs = qdq_loss_debug.create_activation_matching(values)
    lost = {name: _lost(pair["pre_qdq"][0], pair["post_qdq"][0], shapes.get(name, [])) for name, pair in pairs.items()}
    return max(lost, key=lambda name: lost[name])


def _lost(before: NDArray[np.float32], after: NDArray[np.float32], shape: list[int]) -> float:
    """Mean over the channels of the share in [0, 1] of a channel's power that rounding takes away.

    A channel far larger than the others makes steps so wide that the others vanish; it would hide that in one sum.
    """
    axis = len(shape) - 1 if len(shape) == 3 else 1  # [N, C, H, W], [N, C] or [N, tokens, C]
    num_channels = shape[axis] if len(shape) > axis else 1
    rows = [value.reshape(-1, *shape[1:]) if shape else value[None] for value in (before, before - after)]
    power, noise = (np.square(np.moveaxis(row, axis, 0).reshape(num_channels, -1)).sum(1) for row in rows)
    return float(np.minimum(noise[power > 0] / power[power > 0], 1).mean())
