"""ONNX in float32, float16 or int8, run by onnxruntime."""

import contextlib
import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx_ir.passes.common import ClearMetadataAndDocStringPass

from .graph import INPUT, OUTPUTS, Graph, Options, Scores
from .int8 import to_accepted_int8
from .judge import Judge
from .program import capture
from .verification import Run, VerificationError, reason

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
PRECISIONS: dict[int, tuple[str, ...]] = {32: (), 16: (), 8: ()}
FILE = "model.onnx"


def _translate(graph: Graph, options: Options) -> torch.onnx.ONNXProgram:
    captured = capture(graph, graph.example(options), options)  # torch.onnx would drop limits of the batch
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # whole graphs, where it fails
            program = torch.onnx.export(
                captured,
                input_names=[INPUT],
                output_names=OUTPUTS,
                opset_version=options.opset,
                dynamic_shapes=({0: "batch"},) if options.batch == "dynamic" else None,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        raise VerificationError(f"the network can't be exported to ONNX: {reason(error)}") from error
    assert program is not None
    return program


def _header(file: Path) -> dict[str, object]:
    model = onnx.load(file, load_external_data=False)
    values = (*model.graph.input, *model.graph.output)
    return {
        "opset": max(entry.version for entry in model.opset_import if not entry.domain),
        "dtype": onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type).name,
        "shapes": {v.name: [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in values},
    }


def write(graph: Graph, folder: Path, options: Options, judge: Judge | None = None) -> None:
    """Write one file (below 2 GB) that also holds classes, task and preprocessing."""
    write_float(graph.half_network() if options.quantize == 16 else graph, folder / FILE, options)
    if options.quantize == 8:
        assert judge is not None
        to_accepted_int8(folder / FILE, judge, run_file)


def write_float(graph: Graph, file: Path, options: Options) -> None:
    """Write the graph as it is, in one file."""
    program = _translate(graph, options)
    ClearMetadataAndDocStringPass()(program.model)  # each node names source files of this machine
    program.model.metadata_props.update(graph.metadata())
    program.save(file)
    expected = {"opset": options.opset, "dtype": "uint8", "shapes": graph.shapes(options.axis)}
    if (header := _header(file)) != expected:
        raise VerificationError(f"the ONNX file came out with {header}, not {expected}.")


def run_file(file: Path, threads: int | None = None) -> Run:
    """What onnxruntime makes of images uint8 [N, C, H, W] with a file."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads or 0
    session = onnxruntime.InferenceSession(file, settings, providers=["CPUExecutionProvider"])
    return lambda images: dict(zip(OUTPUTS, session.run(list(OUTPUTS), {INPUT: np.asarray(images)}), strict=True))


def load(folder: Path, threads: int | None = None) -> Callable[[NDArray[np.uint8]], Scores]:
    """What turns images uint8 [N, C, H, W] into scores."""
    run = run_file(folder / FILE, threads)
    return lambda images: run(torch.from_numpy(images))
