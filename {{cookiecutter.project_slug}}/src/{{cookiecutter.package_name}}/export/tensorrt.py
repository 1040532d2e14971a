"""The ONNX file that TensorRT 10 and 11 build an engine from; the engine too, where tensorrt and a GPU are there."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx.numpy_helper import to_array

from .graph import INPUT, OUTPUTS, Graph, Options, Scores
from .int8 import PAIR, TENSORRT, to_accepted_int8
from .judge import Judge
from .onnx import FILE, run_file, write_float
from .verification import VerificationError

PACKAGES = ("onnx", "onnxruntime", "onnxscript")
PRECISIONS: dict[int, tuple[str, ...]] = {32: (), 16: (), 8: ()}
ENGINE, SCRIPT = "model.plan", "trtexec.sh"
BATCHES = (1, 8, 64)  # the least, the one to be fastest with, the most
# The precision is that of the file. Version 10 would choose one without --stronglyTyped, 11 takes it as given.
LINE = "trtexec --onnx={file} --saveEngine={engine} --stronglyTyped --memPoolSize=workspace:4096{shapes}"
REFUSED = {"ConvInteger", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
TYPES = {"FLOAT", "FLOAT16", "INT8", "INT32", "INT64", "BOOL"}


def write(graph: Graph, folder: Path, options: Options, judge: Judge | None = None) -> None:
    """Write the file and the command that makes an engine of it; make the engine where that is possible."""
    file = folder / FILE
    write_float(graph.half_network() if options.quantize == 16 else graph, file, options)
    if options.quantize == 8:
        assert judge is not None
        to_accepted_int8(file, judge, run_file, TENSORRT)
    if faults := list(_faults(onnx.load(file))):
        raise VerificationError(f"TensorRT would refuse the ONNX file: {'; '.join(faults)}.")
    sizes = dict(zip(("min", "opt", "max"), BATCHES, strict=True)) if options.batch == "dynamic" else {}
    shapes = {name: tuple(graph.shapes(size)[INPUT]) for name, size in sizes.items()}
    (folder / SCRIPT).write_text(_script(shapes), "utf-8")
    if has_engine():
        _build(file, folder / ENGINE, shapes)


def has_engine() -> bool:
    """Whether engines can be built and run here."""
    return find_spec("tensorrt") is not None and torch.cuda.is_available()


def unmeasurable(folder: Path) -> str | None:
    """Why times here would not be those of TensorRT."""
    return None if (folder / ENGINE).is_file() else "it has no engine, which takes tensorrt and a GPU to build"


def remark() -> str:
    """What was not done."""
    if has_engine():
        return ""
    return f"No engine: tensorrt or a GPU was missing, {SCRIPT} builds it; checks ran the ONNX file."


def _script(shapes: dict[str, tuple[int, ...]]) -> str:
    given = "".join(f" --{name}Shapes={INPUT}:{'x'.join(map(str, shape))}" for name, shape in shapes.items())
    return f'#!/bin/sh\ncd "$(dirname "$0")" && {LINE.format(file=FILE, engine=ENGINE, shapes=given)}\n'


def _faults(model: onnx.ModelProto) -> Iterator[str]:
    """What is known without TensorRT."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    kinds = {onnx.TensorProto.DataType.Name(tensor.data_type) for tensor in tensors.values()}
    if kinds - TYPES:
        yield f"weights of type {', '.join(sorted(kinds - TYPES))}"
    for node in model.graph.node:
        if node.op_type in REFUSED:
            yield f"node {node.name} is a {node.op_type}"
        if INPUT in node.input and node.op_type != "Cast":
            yield f"the uint8 input goes into a {node.op_type}"
        if node.op_type in PAIR:
            zero = tensors.get(node.input[2]) if len(node.input) > 2 else None
            if zero is not None and (zero.data_type != onnx.TensorProto.INT8 or to_array(zero).any()):
                yield f"node {node.name} has a zero point that is not an int8 of 0"


def _build(file: Path, engine: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    import tensorrt

    logger = tensorrt.Logger(tensorrt.Logger.WARNING)
    builder = tensorrt.Builder(logger)
    typed = getattr(tensorrt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)  # always so from version 11 on
    network = builder.create_network(0 if typed is None else 1 << int(typed))
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(file)):
        raise VerificationError(f"TensorRT can't read the ONNX file: {parser.get_error(0).desc()}")
    config = builder.create_builder_config()
    if shapes:
        profile = builder.create_optimization_profile()
        profile.set_shape(INPUT, *shapes.values())
        config.add_optimization_profile(profile)
    if (built := builder.build_serialized_network(network, config)) is None:
        raise VerificationError("TensorRT could not build an engine from the ONNX file.")
    engine.write_bytes(bytes(built))


def load(folder: Path, threads: int | None = None) -> Callable[[NDArray[np.uint8]], Scores]:
    """What turns images uint8 [N, C, H, W] into scores: the engine where there is one, else onnxruntime."""
    if not (folder / ENGINE).is_file():
        run = run_file(folder / FILE, threads)
        return lambda images: run(torch.from_numpy(images))
    import tensorrt

    runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.WARNING))
    engine = runtime.deserialize_cuda_engine((folder / ENGINE).read_bytes())
    context = engine.create_execution_context()

    def score(images: NDArray[np.uint8]) -> Scores:
        batch = torch.from_numpy(images).cuda()
        context.set_input_shape(INPUT, tuple(batch.shape))
        found = {name: torch.empty(tuple(context.get_tensor_shape(name)), device="cuda") for name in OUTPUTS}
        tensors: dict[str, Any] = {INPUT: batch, **found}
        for name, tensor in tensors.items():
            context.set_tensor_address(name, tensor.data_ptr())
        stream = torch.cuda.current_stream()
        context.execute_async_v3(stream.cuda_stream)
        stream.synchronize()
        return {name: tensor.cpu().numpy() for name, tensor in found.items()}

    return score
