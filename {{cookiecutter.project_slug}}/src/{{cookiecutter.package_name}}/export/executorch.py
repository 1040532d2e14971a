"""ExecuTorch's .pte in float32 or int8, run by XNNPACK, as on phones."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .graph import Graph, Options, Scores
from .judge import Judge
from .program import capture, quiet, scored
from .verification import VerificationError, reason

PACKAGES = ("executorch",)
PRECISIONS: dict[int, tuple[str, ...]] = {32: (), 8: ("torchao",)}
FILE, MAX_BATCH = "model.pte", 64


def remark() -> str:
    """What it takes."""
    return f"Where the batch is dynamic, at most {MAX_BATCH} images at once: memory for them is planned in the file."


def write(graph: Graph, folder: Path, options: Options, judge: Judge | None = None) -> None:
    """Write one file, whose constant methods give classes, task and preprocessing."""
    with quiet():
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
        from executorch.exir import to_edge_transform_and_lower
    # With a smaller example the largest batch would silently become 15.
    example = graph.example(options, dynamic=MAX_BATCH)
    program = capture(graph, example, options, most=MAX_BATCH, strict=True)
    if options.quantize == 8:
        assert judge is not None
        program = capture(_quantized(program.module(), judge), example, options, most=MAX_BATCH, strict=True)
    try:
        with quiet():
            edge = to_edge_transform_and_lower(
                program, partitioner=[XnnpackPartitioner()], constant_methods=graph.metadata()
            )
            content = edge.to_executorch().buffer
    except Exception as error:  # it raises nothing narrower
        raise VerificationError(f"ExecuTorch can't take the network: {reason(error)}") from error
    (folder / FILE).write_bytes(content)


def _quantized(module: torch.fx.GraphModule, judge: Judge) -> torch.fx.GraphModule:
    with quiet():
        from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        quantizer = xnnpack_quantizer.XNNPACKQuantizer()
        quantizer.set_global(xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True))
        prepared = prepare_pt2e(module, quantizer)
        with torch.no_grad():
            for images in judge.calibration():
                prepared(images)
        converted = convert_pt2e(prepared)
    if not any(str(node.target).startswith("quantized_decomposed.quantize") for node in converted.graph.nodes):
        raise VerificationError("int8 for ExecuTorch came out without a quantized layer.")
    return converted


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """The runtime's C++ code logs to the file descriptor."""
    kept = os.dup(2)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def load(folder: Path, threads: int | None = None) -> Callable[[NDArray[np.uint8]], Scores]:
    """What turns images uint8 [N, C, H, W] into scores."""
    with quiet(), _without_stderr():
        from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
        from executorch.runtime import Runtime

        if threads:
            _unsafe_reset_threadpool(threads)
        method = Runtime.get().load_program(folder / FILE).load_method("forward")

    def run(images: Tensor) -> list[Tensor]:
        return method.execute([images])

    return scored(run)
