"""OpenVINO's model.xml and model.bin in float32, float16 or int8."""

import logging
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from .graph import INPUT, OUTPUTS, Graph, Options, Scores
from .judge import Judge
from .program import quiet
from .verification import VerificationError

PACKAGES = ("openvino", "onnx", "onnxruntime", "onnxscript")
PRECISIONS: dict[int, tuple[str, ...]] = {32: (), 16: (), 8: ("nncf",)}
FILE, WEIGHTS = "model.xml", "model.bin"
Item = tuple[NDArray[np.uint8], NDArray[np.float32]]
EXACT = {"INFERENCE_PRECISION_HINT": "f32"}  # else bfloat16, where the CPU has it


def _openvino() -> ModuleType:
    """The package, without the one by which it would send statistics over the network."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    import openvino

    return openvino


@cache
def _core() -> Any:
    """One for good: a thread where another was deleted may have no stack left for signals, and die of the next one."""
    return _openvino().Core()


def write(graph: Graph, folder: Path, options: Options, judge: Judge | None = None) -> None:
    """Write two files that also hold classes, task, preprocessing and the precision to compute in."""
    from . import onnx  # not needed to load them

    with tempfile.TemporaryDirectory() as aside:
        onnx.write_float(graph, Path(aside, onnx.FILE), options)
        model = _core().read_model(Path(aside, onnx.FILE))
        if options.quantize == 8:
            assert judge is not None
            model = _quantized(graph, model, judge, options)
        for key, value in {**graph.metadata(), **EXACT}.items():
            model.set_rt_info(value, ["model_info", key])
        _openvino().save_model(model, Path(aside, FILE), compress_to_fp16=options.quantize == 16)
        for name in (FILE, WEIGHTS):  # on a full disk it would not say so
            shutil.copyfile(Path(aside, name), folder / name)


def _quantized(graph: Graph, model: Any, judge: Judge, options: Options) -> Any:
    """By NNCF, which takes layers back to float, the worst first, until accuracy drops no further than allowed."""
    with quiet():
        import nncf

    batches = [(batch.numpy(), graph.scores(batch)["logits"]) for batch in judge.calibration()]

    def score(compiled: Any, given: Iterable[Item]) -> tuple[float, list[float]]:
        run = _run(compiled)
        nearness = [-float(np.square(run(images)["logits"] - logits).mean()) for images, logits in given]
        if len(nearness) <= len(batches):  # by this layers are ranked: accuracy is too coarse
            return sum(nearness), nearness
        found = judge(f"candidate {len(judge.tried)}" if judge.tried else "in float", run)
        return found["accuracy"]["exported"], nearness

    logging.getLogger("nncf").setLevel(logging.ERROR)
    restorer = nncf.AdvancedAccuracyRestorerParameters(ranking_subset_size=len(batches))
    with patch.multiple(_openvino(), Core=_core, compile_model=_core().compile_model):  # each would make a core
        found = nncf.quantize_with_accuracy_control(
            model,
            nncf.Dataset(batches, lambda item: {INPUT: item[0]}),
            nncf.Dataset([*batches, batches[0]]),  # one more than layers are ranked by, which tells the calls apart
            score,
            max_drop=options.max_accuracy_drop,
            drop_type=nncf.DropType.ABSOLUTE,
            advanced_accuracy_restorer_parameters=restorer,
        )
    if not any(node.get_type_name() == "FakeQuantize" for node in found.get_ops()):
        raise VerificationError("int8 for OpenVINO came out without a quantized layer: none could keep the accuracy.")
    return found


def _run(compiled: Any) -> Callable[[Any], Scores]:
    def score(images: Any) -> Scores:
        found = compiled({INPUT: np.asarray(images)})
        return {name: found[name] for name in OUTPUTS}

    return score


def load(folder: Path, threads: int | None = None) -> Callable[[NDArray[np.uint8]], Scores]:
    """What turns images uint8 [N, C, H, W] into scores."""
    settings = EXACT | ({"INFERENCE_NUM_THREADS": threads} if threads else {})
    return _run(_core().compile_model(folder / FILE, "CPU", settings))
