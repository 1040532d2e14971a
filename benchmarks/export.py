"""What int8 and channel pruning gain in deployment, as ratios measured side by side: python benchmarks/export.py."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from callbacks import PACKAGE, STRUCTURED, Row, best, fit, print_table

SHORT = ("--model.network", "resnet18", "--trainer.max_epochs", "4")
FLOAT_FORMATS = ("onnx", "openvino", "executorch", "tensorrt", "torch_export", "aotinductor", "torchscript")


def export(run: Path, *options: str) -> None:
    """Write bundles beside the run's checkpoint, in a process of its own."""
    command = [sys.executable, "-m", PACKAGE, "export", "--ckpt_path", str(best(run)), *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def bundle(run: Path, name: str) -> Path:
    return best(run).with_name(f"best-{name}")


def described(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "model.json").read_text("utf-8"))
    return content


def calls(folder: Path, batch_size: int) -> Callable[[], Any]:
    """A call of the exported model on one thread."""
    import numpy as np
    from measured.export import open_format

    model = described(folder)
    shape = (batch_size, *model["input"]["shape"][1:])
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    return partial(open_format(model["format"]).load(folder, 1), images)


def speed_ups(reference: Path, folders: dict[str, Path], batch_size: int) -> dict[str, float]:
    """How many times as fast as the reference each bundle is."""
    from measured.measure import milliseconds

    measured = {name: calls(folder, batch_size) for name, folder in {"reference": reference, **folders}.items()}
    times = milliseconds(measured, rounds=400 if batch_size == 1 else 60)
    return {name: times["reference"] / times[name] for name in folders}


def lost(folder: Path, accuracy: float) -> float:
    """Accuracy on the test split below another one, in [0, 1]."""
    return accuracy - float(described(folder)["checks"]["test_split"]["accuracy"]["exported"])


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("model.*") if file.suffix != ".json")


def resnet18() -> Iterator[Row]:
    """int8 of resnet18 on the digits, and of one that lost half of its channels, against its float32 ONNX file."""
    whole = fit(*SHORT)
    pruned = fit(*SHORT, *STRUCTURED, "--pruning.max_accuracy_drop", "1", "--init_from", str(best(whole)))
    export(whole, "--format", "onnx,openvino", "--quantize", "32,8")
    export(pruned, "--quantize", "8")
    reference = bundle(whole, "onnx")
    folders = {
        "onnxruntime": bundle(whole, "onnx-int8"),
        "OpenVINO": bundle(whole, "openvino-int8"),
        "half of the channels": bundle(pruned, "onnx-int8"),
    }
    found = {batch_size: speed_ups(reference, folders, batch_size) for batch_size in (1, 64)}
    least = {"onnxruntime": {1: 2.3, 64: 1.4}, "OpenVINO": {64: 3.2}, "half of the channels": {1: 5.0}}
    for name, batch_size in ((name, batch_size) for name in folders for batch_size in found):
        limit = f">= {least[name][batch_size]}" if batch_size in least[name] else ""
        yield f"resnet18, int8, {name}: speed-up at batch {batch_size}", f"{found[batch_size][name]:.2f}", limit
    accuracy = described(reference)["checks"]["test_split"]["accuracy"]["model"]
    most = {"onnxruntime": "<= 0.005", "half of the channels": "<= 0.015"}
    for name, folder in folders.items():
        yield f"resnet18, int8, {name}: accuracy lost", f"{lost(folder, accuracy):.4f}", most.get(name, "")
    share = size(folders["onnxruntime"]) / size(reference)
    yield "resnet18, int8, onnxruntime: size over float32", f"{share:.3f}", "<= 0.27"


def formats() -> Iterator[Row]:
    """Every format in float32, of SimpleCNN: how far its scores are from the model's over the test split."""
    run = fit("--trainer.max_epochs", "3")
    export(run, "--format", ",".join(FLOAT_FORMATS))
    for name in FLOAT_FORMATS:
        differences = described(bundle(run, name))["checks"]["test_split"]["largest_difference"]
        yield f"SimpleCNN, {name}: largest difference of a score", f"{max(differences.values()):.1e}", "<= 1e-4"
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        export(run, "--force")
        seconds.append(time.perf_counter() - start)
    yield (
        "SimpleCNN, the whole export command with its checks, in seconds",
        f"{statistics.median(seconds):.1f}",
        "<= 20",
    )


if __name__ == "__main__":
    print_table({"resnet18": resnet18, "formats": formats}, sys.argv[1:])
