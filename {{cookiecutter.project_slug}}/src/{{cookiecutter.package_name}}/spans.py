"""The parts of a training step, timed by the names that Lightning gives to what it does."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch.profilers import Profiler
from torch.profiler import record_function

LOGGING, CALLBACKS, REST = "logging", "other callbacks", "the training loop"
PARTS = {  # last word of the name that Lightning gives a stretch of time -> part of a step
    "train_dataloader_next": "waiting for data",
    "batch_to_device": "copying to the device",
    "on_after_batch_transfer": "augmentation",
    "training_step": "forward",
    "backward": "backward",
    "optimizer_step": "optimizer",
    "log": LOGGING,
}
LOGGING_CALLBACKS = tuple(f"[Callback]{name}" for name in ("LearningRateMonitor", "TQDMProgressBar", "RichProgressBar"))


class Spans(Profiler):
    """Charges each moment to one part of a step; what is nested in another part counts in the inner one alone.

    Given a device, it waits at each change for what is queued there, so that this counts where it belongs.
    """

    def __init__(self, device: torch.device | None = None) -> None:
        super().__init__()
        self.seconds = dict.fromkeys([*PARTS.values(), CALLBACKS, REST], 0.0)
        self.num_steps = self.num_images = 0
        self._waits = device is not None and device.type != "cpu"
        self._open: list[tuple[str, record_function]] = []
        self._rest = REST  # whose the time is in which nothing is open
        self._in_step = True
        self._since = time.perf_counter()

    def start(self, action_name: str) -> None:
        self._charge()
        hook = action_name.rpartition(".")[2]
        if "validation" in hook or "epoch" in hook:
            self._in_step = False
        elif hook == "train_dataloader_next":
            self._in_step, self._rest = True, REST
        part = self._part(action_name, hook)
        mark = record_function(PARTS.get(hook, action_name))  # shows in the trace
        mark.__enter__()
        self._open.append((part, mark))

    def stop(self, action_name: str) -> None:
        if not self._open:  # began before the recording did
            return
        self._charge()
        self._open.pop()[1].__exit__(None, None, None)
        if action_name.startswith("[LightningModule]") and action_name.endswith(".on_train_batch_end"):
            self._rest = LOGGING  # is what Lightning does before it fetches the next batch

    def finish(self) -> None:
        self._charge()
        self._in_step = False

    def step_ms(self) -> float | None:
        return 1000 * sum(self.seconds.values()) / self.num_steps if self.num_steps else None

    def _part(self, action_name: str, hook: str) -> str:
        if action_name.startswith("[Callback]"):
            return LOGGING if action_name.startswith(LOGGING_CALLBACKS) else CALLBACKS
        return PARTS.get(hook, self._current())

    def _current(self) -> str:
        return self._open[-1][0] if self._open else self._rest

    def _charge(self) -> None:
        if self._waits:
            torch.accelerator.synchronize()
        now = time.perf_counter()
        if self._in_step:
            self.seconds[self._current()] += now - self._since
        self._since = now


@contextmanager
def installed(spans: Spans, trainer: Any, pl_module: Any) -> Iterator[None]:
    """Have Lightning tell the spans what it does, and the module when it logs."""
    before, log = trainer.profiler, pl_module.log

    def timed_log(*args: Any, **options: Any) -> None:
        with spans.profile("log"):
            log(*args, **options)

    trainer.profiler, pl_module.log = spans, timed_log
    try:
        yield
    finally:
        spans.finish()
        trainer.profiler = before
        vars(pl_module).pop("log")
