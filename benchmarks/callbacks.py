"""What the callbacks gain and cost, as ratios measured side by side: python benchmarks/callbacks.py [PART ...]."""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).parents[1]
sys.path.insert(0, str(TEMPLATE / "tests"))

from baking import bake, copy_template  # noqa: E402

PACKAGE = "measured"
QUIET = ("--trainer.enable_progress_bar", "false", "--trainer.enable_model_summary", "false")
Row = tuple[str, str, str]  # what, measured, at least or at most
STRUCTURED = ("-c", "configs/pruning.yaml", "--pruning.kind", "structured", "--pruning.target_sparsity", "0.5")


def fit(*options: str) -> Path:
    """Train in a process of its own; returns the run's folder."""
    before = set(Path("runs").glob("*/*"))
    command = [sys.executable, "-m", PACKAGE, "fit", *QUIET, *options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (run,) = set(Path("runs").glob("*/*")) - before
    return run


def best(run: Path) -> Path:
    return run / "checkpoints" / "best.ckpt"


def accuracy_on_test(run: Path) -> float:
    subprocess.run(
        [sys.executable, "-m", PACKAGE, "test", "--ckpt_path", str(best(run))], check=True, stdout=subprocess.DEVNULL
    )
    return float(json.loads((run / "test" / "metrics.json").read_text("utf-8"))["test/accuracy"])


def onnx_calls(run: Path, batch_size: int) -> Callable[[], Any]:
    """A call of the exported file on one thread."""
    import numpy as np
    import onnxruntime

    bundle = best(run).with_name("best-onnx")
    if not bundle.exists():
        command = [sys.executable, "-m", PACKAGE, "export", "--ckpt_path", str(best(run))]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(bundle / "model.onnx", options, providers=["CPUExecutionProvider"])
    images = np.zeros((batch_size, *session.get_inputs()[0].shape[1:]), np.uint8)
    return partial(session.run, None, {"images": images})


def pruned_channels(
    network: str, epochs: int, seeds: range, least: tuple[float, float], most: float, width: int | None = None
) -> Iterator[Row]:
    """Half of the channels removed from a trained network, fine-tuned as long as it was trained."""
    from measured.measure import milliseconds

    accuracies: dict[str, list[float]] = {"whole": [], "pruned": []}
    given = ("--model.network", network, *(("--model.network_args", f"{{width: {width}}}") if width else ()))
    network = f"{network} of width {width}" if width else network
    for seed in seeds:
        options = (*given, "--trainer.max_epochs", str(epochs), "--seed_everything", str(seed))
        whole = fit(*options)
        pruned = fit(*options, *STRUCTURED, "--pruning.max_accuracy_drop", "1", "--init_from", str(best(whole)))
        accuracies["whole"].append(accuracy_on_test(whole))
        accuracies["pruned"].append(accuracy_on_test(pruned))
    for batch_size, limit in zip((1, 64), least, strict=True):
        calls = {"whole": onnx_calls(whole, batch_size), "pruned": onnx_calls(pruned, batch_size)}
        times = milliseconds(calls, rounds=300)
        speed_up = times["whole"] / times["pruned"]
        yield f"{network}, half of the channels: speed-up in ONNX, batch {batch_size}", f"{speed_up:.2f}", f">= {limit}"
    whole_mean, pruned_mean = (statistics.mean(values) for values in accuracies.values())
    what = f"{network}, half of the channels: test accuracy {whole_mean:.4f} -> {pruned_mean:.4f}, points lost"
    yield f"{what} (mean of {len(seeds)} seeds)", f"{100 * (whole_mean - pruned_mean):.2f}", f"<= {most}"


def compiled_step() -> Iterator[Row]:
    """Forward, loss and backward of SimpleCNN at batch 128 on the CPU: eager, channels last, compiled."""
    import torch
    from measured.measure import milliseconds
    from measured.networks import build_network

    torch.set_num_threads(1)
    images, labels = torch.randn(128, 3, 32, 32), torch.randint(10, (128,))

    def step(network: torch.nn.Module, batch: torch.Tensor) -> None:
        network.zero_grad()
        torch.autograd.backward(torch.nn.functional.cross_entropy(network(batch), labels))

    def network() -> torch.nn.Module:
        built: torch.nn.Module = build_network("SimpleCNN", num_classes=10, channels=3, image_size=(32, 32))
        return built.train()

    last = torch.channels_last
    compiled = network().to(memory_format=last)
    compiled.compile(dynamic=False)
    calls = {
        "eager": partial(step, network(), images),
        "channels_last": partial(step, network().to(memory_format=last), images.to(memory_format=last)),
        "compiled": partial(step, compiled, images.to(memory_format=last)),
    }
    times = milliseconds(calls, rounds=50, warm_up=5)
    yield (
        "SimpleCNN, batch 128: compiled step against eager NCHW",
        f"{times['eager'] / times['compiled']:.2f}",
        ">= 1.3",
    )
    yield "the same against eager channels_last", f"{times['channels_last'] / times['compiled']:.2f}", ""


def hook_costs() -> Iterator[Row]:
    """Time in the callbacks' hooks of a step over the time of a step, SimpleCNN at batch 128."""
    for key, options in HOOKS.items():
        shares = [share_in_hooks(key, options) for _ in range(5)]
        yield f"{key}: share of a step spent in its hooks, in percent", f"{100 * statistics.median(shares):.2f}", "<= 1"


HOOKS = {
    "amp": ("--amp.precision", "bf16-mixed"),
    "compile": ("--compile.backend", "inductor"),
    "profiling": (),
}
WATCHED = """
import sys, time, json
from measured import callbacks, cli
key, *options = sys.argv[1:]
kind, spent, steps = callbacks.CALLBACKS[key], [], []

def timed(name):
    hook = getattr(kind, name)
    def wrapper(*args, **kwargs):
        start = time.perf_counter()
        try:
            return hook(*args, **kwargs)
        finally:
            spent.append((time.perf_counter(), time.perf_counter() - start))
    setattr(kind, name, wrapper)

for name in ("on_train_batch_start", "on_before_backward", "on_after_backward", "on_before_optimizer_step",
             "on_before_zero_grad", "on_train_batch_end"):
    if name in vars(kind):
        timed(name)

from measured.classifier import ImageClassifier
start = ImageClassifier.on_train_batch_start
def marked(self, batch, batch_idx):
    steps.append(time.perf_counter())
    return start(self, batch, batch_idx)
ImageClassifier.on_train_batch_start = marked
assert cli.main(["fit", *options]) == 0
begin, end = steps[-100], steps[-1]
print("share", sum(seconds for moment, seconds in spent if begin < moment < end) / (end - begin))
"""


def share_in_hooks(key: str, options: tuple[str, ...]) -> float:
    """Over the last 99 steps of a run, after all windows and warm-ups."""
    length = ("--trainer.max_epochs", "16", "--trainer.check_val_every_n_epoch", "99", "--data.batch_size", "128")
    command = [sys.executable, "watched.py", key, *QUIET, "-c", f"configs/{key}.yaml", *options, *length]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout.rpartition("share ")[2])


PARTS: dict[str, Callable[[], Iterator[Row]]] = {
    # onnxruntime's convolutions work on 16 channels at a time where there is AVX512: 8 cost what 16 cost.
    "simple_cnn": partial(pruned_channels, "SimpleCNN", 15, range(5), (1.3, 1.3), 0.7, width=32),
    "simple_cnn_16": partial(pruned_channels, "SimpleCNN", 15, range(5), (1.3, 1.3), 0.7, width=16),
    "resnet18": partial(pruned_channels, "resnet18", 4, range(3), (3.0, 3.5), 1.0),
    "compile": compiled_step,
    "hooks": hook_costs,
}


@contextmanager
def project() -> Iterator[None]:
    """Work in a project that was baked just now."""
    with tempfile.TemporaryDirectory() as folder:
        answers = {"project_slug": PACKAGE, "logger": "csv", "dataset": "digits"}
        baked = bake(copy_template(Path(folder, "template")), Path(folder, "baked"), answers)
        (baked / "watched.py").write_text(WATCHED, "utf-8")
        os.environ["PYTHONPATH"] = str(baked / "src")
        sys.path.insert(0, str(baked / "src"))
        with chdir(baked):
            yield


def print_table(parts: dict[str, Callable[[], Iterator[Row]]], names: list[str]) -> None:
    """Measure the named parts, or all, in a project of their own."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "lightning", "onnxruntime", "torch-pruning"))
    print(f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {packages}\n")
    print("| what | measured | asked |\n|---|---|---|", flush=True)
    with project():
        for name in names or parts:
            for row in parts[name]():
                print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    print_table(PARTS, sys.argv[1:])
