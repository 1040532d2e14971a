"""Where the time of a training step goes: part by part under Lightning's own names, and traced by operator."""

import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.profilers import PassThroughProfiler
from matplotlib.figure import Figure
from torch.profiler import ProfilerActivity, profile, schedule

from ..report import Change
from ..runs import write_json
from ..spans import CALLBACKS, LOGGING, REST, Spans, installed

ADVICE = {
    "waiting for data": "raise data.num_workers, or store smaller images",
    "copying to the device": "raise data.batch_size, for fewer and larger copies",
    "augmentation": "leave out what data.augmentation does not need",
    "forward and backward": "try trainer.precision bf16-mixed, compiling, a smaller network or smaller images",
    "optimizer": "raise data.batch_size or trainer.accumulate_grad_batches, for fewer optimizer steps",
    LOGGING: "raise trainer.log_every_n_steps, and log less in training_step",
    CALLBACKS: "leave out callbacks that work in every step; trace.json has their names",
    REST: "raise data.batch_size, for fewer steps",
}


class Profiling(Callback):
    """Tell where the time of a training step goes and what would shorten it, in profile/ of the run folder.

    Some steps are timed part by part; then, after a warm-up, as many are traced by torch.profiler, which slows them
    down and whose trace includes a validation that falls in between. Nothing is done in other steps. Of several
    processes the first is looked at.

    Args:
        skip: steps before, at least 0.
        record: steps that are timed, and steps that are traced, at least 1.
        warm_up: steps in which the tracer gets going, at least 1.
        memory_snapshot: also write profile/memory.pickle, for https://pytorch.org/memory_viz; needs CUDA.
    """

    def __init__(self, skip: int = 5, record: int = 5, warm_up: int = 2, memory_snapshot: bool = False) -> None:
        for name, value, least in (("skip", skip, 0), ("record", record, 1), ("warm_up", warm_up, 1)):
            if value < least:
                raise ValueError(f"profiling.{name} must be at least {least}, got {value}.")
        self.skip, self.record, self.warm_up = skip, record, warm_up
        self.memory_snapshot = memory_snapshot
        self.summary: dict[str, Any] = {}
        self._schedule: Generator[None] | None = None
        self._num_images = 0
        self._timed, self._traced = Spans(), Spans()

    def state_dict(self) -> dict[str, Any]:
        return {"summary": self.summary}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.summary = state_dict["summary"]

    @property
    def changes(self) -> list[Change]:
        times = self.summary.get("step_ms"), self.summary.get("traced_step_ms")
        return [Change("step while traced", *times, "ms")] if any(times) else []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        device = trainer.strategy.root_device
        if not isinstance(trainer.profiler, PassThroughProfiler):  # type: ignore[attr-defined]
            raise ValueError("profiling and trainer.profiler exclude each other: leave one out.")
        if self.memory_snapshot and device.type != "cuda":
            raise ValueError(f"profiling.memory_snapshot needs a CUDA device, got {device}.")

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero and not self.summary and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self._schedule = self._steps(trainer, pl_module)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self._schedule is not None:
            self._num_images = len(batch[0])
            next(self._schedule, None)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._end(trainer)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._end(trainer)

    def _end(self, trainer: Trainer) -> None:
        if self._schedule is not None:
            self._schedule.close()
            self._write(trainer)

    def _steps(self, trainer: Trainer, pl_module: LightningModule) -> Generator[None]:
        """What is done in which step: each `yield` is one."""
        for _ in range(self.skip):
            yield
        device, folder = trainer.strategy.root_device, _folder(trainer)
        self._timed = Spans(device)
        with installed(self._timed, trainer, pl_module):
            yield from self._record(self._timed)
        with _memory_history(folder) if self.memory_snapshot else nullcontext(), self._tracer(device, folder) as tracer:
            for _ in range(self.warm_up):
                yield
                tracer.step()
            self._traced = Spans()
            with installed(self._traced, trainer, pl_module):
                yield from self._record(self._traced, tracer)
        self._write(trainer)

    def _record(self, spans: Spans, tracer: profile | None = None) -> Iterator[None]:
        for number in range(self.record):
            if tracer and number:
                tracer.step()  # not after the last, which would count what writing the trace takes
            spans.num_steps += 1
            spans.num_images += self._num_images
            yield

    def _tracer(self, device: torch.device, folder: Path) -> profile:
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # or it writes its own log to stderr
        on_cuda = device.type == "cuda"
        sort_by = "self_device_time_total" if on_cuda else "self_cpu_time_total"
        return profile(
            activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_cuda else [])],
            schedule=schedule(wait=0, warmup=self.warm_up, active=self.record, repeat=1),
            on_trace_ready=lambda tracer: _save_trace(tracer, folder, sort_by),
            record_shapes=True,
            profile_memory=True,
        )

    def _write(self, trainer: Trainer) -> None:
        self._schedule = None
        timed, traced = self._timed, self._traced
        seconds = sum(timed.seconds.values())
        shares = {part: value / seconds for part, value in timed.seconds.items()} if seconds else {}
        self.summary = {
            "timed_steps": timed.num_steps,
            "step_ms": timed.step_ms(),
            "shares": shares,
            "images_per_second": timed.num_images * trainer.world_size / seconds if seconds else None,
            "peak_memory_mb": _peak_memory_mb(trainer.strategy.root_device),
            "bottleneck": _bottleneck(shares) if shares else None,
            "traced_steps": traced.num_steps,
            "traced_step_ms": traced.step_ms(),
            "incomplete": None
            if traced.num_steps == self.record
            else f"the run ended before {self.record} traced steps",
        }
        write_json(_folder(trainer) / "summary.json", self.summary)
        if shares:
            _draw(self.summary, _folder(trainer) / "step.png")


def _folder(trainer: Trainer) -> Path:
    return Path(trainer.default_root_dir) / "profile"


@contextmanager
def _memory_history(folder: Path) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    torch.cuda.memory._record_memory_history(max_entries=100_000)
    try:
        yield
    finally:
        torch.cuda.memory._dump_snapshot(str(folder / "memory.pickle"))
        torch.cuda.memory._record_memory_history(enabled=None)


def _save_trace(tracer: profile, folder: Path, sort_by: str) -> None:
    folder.mkdir(exist_ok=True)
    aside = folder / "trace.json.part"
    tracer.export_chrome_trace(str(aside))
    aside.replace(folder / "trace.json")
    table = tracer.key_averages(group_by_input_shape=True).table(sort_by=sort_by, row_limit=50)
    (folder / "operators.txt").write_text(table, encoding="utf-8")


def _peak_memory_mb(device: torch.device) -> float | None:
    """Of tensors on a CUDA device, elsewhere of the whole process; None on Windows."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e6
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6


def _bottleneck(shares: dict[str, float]) -> str:
    merged = {"forward and backward": shares["forward"] + shares["backward"], **shares}
    part = max(ADVICE, key=lambda name: merged[name])
    return f"{part} takes {merged[part]:.0%} of a step: {ADVICE[part]}."


def _draw(summary: dict[str, Any], path: Path) -> None:
    figure = Figure(figsize=(8, 4), layout="constrained")
    axis = figure.subplots()
    parts = list(summary["shares"])
    bars = axis.barh(parts, [summary["step_ms"] * share for share in summary["shares"].values()])
    axis.bar_label(bars, [f"{share:.1%}" for share in summary["shares"].values()], padding=3)
    axis.margins(x=0.15)  # room for the last label
    axis.invert_yaxis()
    axis.set_xlabel(f"ms of {summary['step_ms']:.3g} ms for a step, {summary['images_per_second']:.0f} images/s")
    figure.savefig(path, dpi=120)
