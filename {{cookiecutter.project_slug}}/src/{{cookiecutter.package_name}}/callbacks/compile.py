"""Compiles the network in place, shows on one batch that it computes the same, and what that costs and gains."""

import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import ParallelStrategy
from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, _dynamo
from torch._dynamo.exc import TorchDynamoException
from torch._dynamo.utils import CompilationMetrics, get_compilation_metrics, graph_break_reasons, guard_failures

from ..classifier import ImageClassifier
from ..measure import evaluating, local_gradients, milliseconds
from ..report import Change
from ..runs import write_json

# Shares of the norm, of logits and of a gradient. Gradients differ by more: where two values are nearly equal, rounding
# decides which of them a max pooling takes. In 16 bits eager rounds after each operation, a compiled kernel at its end.
TOLERANCES = {"32-true": (1e-3, 0.05), "64-true": (1e-3, 0.05)}
COARSE_TOLERANCES = (0.05, 0.25)
NOISE = 1e-3  # share of the largest gradient's norm below which there is rounding only, as for a bias before batch norm
LOGITS = "logits"
Named = dict[str, Tensor]
Stance = Literal["default", "force_eager", "eager_on_recompile"]


class Compile(Callback):
    """Compile the network, check it on a batch before training goes on, and report what that costs and gains.

    Nothing is compiled before the first training batch. A batch that is smaller than the others runs in the graph
    that is there or, where that does not fit, without one, so that no epoch ends in compiling.

    Args:
        mode: default, reduce-overhead (CUDA graphs, for small batches) or max-autotune (long warm-up).
        dynamic: a graph for all batch sizes; without, for that of whole batches, which is faster on a CPU.
        backend: torch.compile's; aot_eager needs neither C++ compiler nor Triton, and gains no time.
        on_failure: where the backend does not work, stop (error) or train without it (eager).
    """

    def __init__(
        self,
        mode: Literal["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"] = "default",
        dynamic: bool = False,
        backend: str = "inductor",
        on_failure: Literal["error", "eager"] = "error",
    ) -> None:
        self.options: dict[str, Any] = {"mode": mode, "dynamic": dynamic, "backend": backend}
        self.on_failure = on_failure
        self.result: dict[str, Any] = self.options | {"compiled": False, "reason": "no whole batch came"}
        self._undo = ExitStack()
        self._since = 0
        self._waits = False  # for the first whole batch
        self._stance: Stance = "default"

    @property
    def changes(self) -> list[Change]:
        times = self.result.get("eager_ms"), self.result.get("compiled_ms")
        return [Change("forward and backward", *times, "ms")] if any(times) else []

    def state_dict(self) -> dict[str, Any]:
        return self.result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self._waits:  # or it does not work here
            self.result = state_dict

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        backend, known = self.options["backend"], _dynamo.list_backends(exclude_tags=())
        if backend not in known:
            raise ValueError(f"compile.backend must be one of {', '.join(known)}, got {backend!r}.")
        _dynamo.reset()  # the limit of graphs counts those of all networks of a class that this process has had
        # By default torch leaves out hooks that come after the first call.
        self._undo.enter_context(_dynamo.config.patch(skip_nnmodule_hook_guards=False))
        assert isinstance(pl_module, ImageClassifier)
        pl_module.network.compile(**self.options)
        self._undo.callback(setattr, pl_module.network, "_compiled_call_impl", None)
        try:
            _try(self.options, trainer.strategy.root_device)
        except TorchDynamoException as error:
            return self._fail(error)
        self._waits = True
        return self._set_stance("force_eager")  # other callbacks may still change the network, and run it

    def _fail(self, error: TorchDynamoException) -> None:
        self._restore()
        reason = " ".join(str(error).split("\n\n")[0].split())
        said = f"compile.backend {self.options['backend']} does not work here: {reason}"
        if self.on_failure == "error":
            raise RuntimeError(f"{said} (compile.on_failure eager trains without it)") from error
        rank_zero_warn(f"training goes on without compiling, {said}")
        self.result = self.options | {"compiled": False, "reason": reason}

    def _set_stance(self, stance: Stance) -> None:
        if stance != self._stance:
            torch.compiler.set_stance(stance)
            self._stance = stance

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        whole = _is_whole(batch, trainer.train_dataloader)
        if self._waits and whole:
            self._waits = False
            self._set_stance("default")
            try:
                self._check(trainer, pl_module, batch)
            except TorchDynamoException as error:
                self._fail(error)
        self._choose(whole)

    def on_validation_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._choose(_is_whole(batch, trainer.val_dataloaders))

    def _choose(self, whole: bool) -> None:
        waits = self._waits and not self.result["compiled"]  # a resumed run may validate before that batch
        self._set_stance("force_eager" if waits else "default" if whole else "eager_on_recompile")

    def _check(self, trainer: Trainer, pl_module: LightningModule, batch: Any) -> None:
        assert isinstance(pl_module, ImageClassifier)
        strategy = trainer.strategy
        alone = strategy.block_backward_sync() if isinstance(strategy, ParallelStrategy) else nullcontext()
        step = partial(_step, trainer, pl_module, batch)
        with isolate_rng(), alone:
            expected = _eagerly(step)
            again = _eagerly(step, seed=1)
            if drawn := not torch.allclose(expected[LOGITS], again[LOGITS], equal_nan=True):
                with evaluating(pl_module.network):
                    self._compare(trainer, _eagerly(step), step())
                _dynamo.reset()  # that graph is not one of the run's
            self._since = time.time_ns() // 1000
            found: Named = {}
            warm_up = milliseconds({"first": lambda: found.update(step())}, rounds=1, warm_up=0)["first"]
            if not drawn:
                self._compare(trainer, expected, found)
            self._measure(step, warm_up / 1000)
        self.result["compared_in"] = "evaluation, since the network draws" if drawn else "training"

    def _compare(self, trainer: Trainer, expected: Named, found: Named) -> None:
        finite = all(bool(tensor.isfinite().all()) for tensor in expected.values())
        tolerances = TOLERANCES.get(str(trainer.precision), COARSE_TOLERANCES)
        worst = _largest_difference(expected, found, tolerances) if finite else None
        self.result["largest_difference"] = worst or "unknown, since without compiling the values are not finite"
        agrees = worst is None or worst["relative"] <= worst["tolerance"]
        if not trainer.strategy.reduce_boolean_decision(agrees):  # all processes stop, or none
            raise RuntimeError(
                f"the compiled network does not compute what it did before: {worst}; "
                "train without compile, or try another compile.backend or mode."
            )

    def _measure(self, step: Callable[[], Named], warm_up_seconds: float) -> None:
        times = milliseconds({"eager": partial(_eagerly, step), "compiled": step}, rounds=10, warm_up=1)
        self.result |= {
            "compiled": True,
            "reason": None,
            "warm_up_seconds": warm_up_seconds,
            "eager_ms": times["eager"],
            "compiled_ms": times["compiled"],
            "speed_up": times["eager"] / times["compiled"],
        }

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._restore()
        if self.result["compiled"] and not self._waits:
            metrics = [entry for entry in get_compilation_metrics() if (entry.start_time_us or 0) >= self._since]
            self.result |= _graphs(metrics) | self._paid_off(metrics)
            if self.result["graph_breaks"] or self.result["recompiles"]:
                rank_zero_warn("the network was not compiled as one graph, or more than once: see compile.json")
        if trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            write_json(Path(trainer.default_root_dir) / "compile.json", self.result)

    def _paid_off(self, metrics: list[CompilationMetrics]) -> dict[str, Any]:
        seconds = sum(entry.duration_us or 0 for entry in metrics) / 1e6
        gain = (self.result["eager_ms"] - self.result["compiled_ms"]) / 1000
        steps = math.ceil(seconds / gain) if gain > 0 else "never, since a compiled step is not faster"
        return {"compile_seconds": seconds, "paid_off_after_steps": steps}

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._restore()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._restore()

    def _restore(self) -> None:
        self._set_stance("default")
        self._undo.close()


def _is_whole(batch: Any, loader: Any) -> bool:
    return len(batch[0]) >= min(loader.batch_size, len(loader.sampler))


def _try(options: dict[str, Any], device: torch.device) -> None:
    compiled = torch.compile(torch.sin, **options)
    compiled(torch.ones(8, device=device, requires_grad=True)).sum().backward()


def _step(trainer: Trainer, pl_module: ImageClassifier, batch: tuple[Tensor, Tensor], seed: int = 0) -> Named:
    """Logits and gradients of the batch; buffers such as running means, and .grad, are afterwards what they were."""
    images, labels = batch
    buffers = {name: buffer.clone() for name, buffer in pl_module.network.named_buffers()}
    model: Any = trainer.strategy.model
    torch.manual_seed(seed)
    with trainer.precision_plugin.train_step_context():
        logits = model(images)
        loss = pl_module.task.loss(logits, labels, pl_module.class_weights, pl_module.hparams["label_smoothing"])
    gradients = local_gradients(loss, pl_module.network)
    for name, buffer in pl_module.network.named_buffers():
        buffer.copy_(buffers[name])
    # Cloned, since a CUDA graph's next run overwrites them.
    return {LOGITS: logits.detach().clone()} | {f"the gradient of {n}": g.clone() for n, g in gradients.items()}


def _eagerly(step: Callable[..., Named], **options: int) -> Named:
    with torch.compiler.set_stance("force_eager"):
        return step(**options)


def _largest_difference(expected: Named, found: Named, tolerances: tuple[float, float]) -> dict[str, Any]:
    """The one that comes nearest to its tolerance, or is farthest beyond."""
    norms = {name: float(tensor.double().norm()) for name, tensor in expected.items()}
    floor = NOISE * max(norm for name, norm in norms.items() if name != LOGITS)
    differences = []
    for name, tensor in expected.items():
        difference = (found[name].double() - tensor.double()).norm().nan_to_num(nan=math.inf)
        relative = float(difference) / max(norms[name], floor, 1e-30)
        differences.append({"of": name, "relative": relative, "tolerance": tolerances[name != LOGITS]})
    return max(differences, key=lambda entry: entry["relative"] / entry["tolerance"])


def _graphs(metrics: list[CompilationMetrics]) -> dict[str, Any]:
    """How many there are, what Python runs in between, and what made more than one each for training and validation."""
    breaks = [
        _at(r.user_stack[-1].filename, r.user_stack[-1].lineno, r.reason) for r in graph_break_reasons if r.graph_break
    ]
    breaks += [
        _at(e.co_filename, e.co_firstlineno, f"all of {e.co_name}: {e.fail_reason}") for e in metrics if e.fail_reason
    ]
    recompiles = [
        _at(code.co_filename, code.co_firstlineno, reason.partition(": ")[2])
        for code, reasons in guard_failures.items()
        for reason in reasons
        if "grad_mode" not in reason  # by which training and validation differ
    ]
    return {
        "graphs": sum(bool(entry.graph_op_count) for entry in metrics),
        "graph_breaks": dict(Counter(breaks)),
        "recompiles": dict(Counter(recompiles)),
    }


def _at(file: str | None, line: int | None, reason: str) -> str:
    return f"{file}:{line}: {' '.join(reason.splitlines()[0].split())}"
