"""Runs a training batch once more, leaving no trace, and finds the first module that computes a NaN or infinity."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from lightning import Trainer
from lightning.pytorch.plugins import Precision
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn
from torch.autograd.graph import Node

from .classifier import ImageClassifier
from .measure import local_gradients


@dataclass(frozen=True)
class Finding:
    """A module whose output (in phase forward), or a gradient that it passes on (backward), is not finite."""

    module: str
    phase: str

    def __str__(self) -> str:
        return f"the {'output' if self.phase == 'forward' else 'gradient'} of {self.module}"


@dataclass(frozen=True)
class Batch:
    """A training batch, its number in the epoch, and the seed of its draws."""

    content: Any
    number: int
    seed: int

    def loss(self, classifier: ImageClassifier, precision: Precision) -> Tensor:
        torch.manual_seed(self.seed)
        with precision.train_step_context():
            loss: Tensor = classifier.training_step(self.content, self.number)
        return loss


@contextmanager
def leaving_no_trace(classifier: ImageClassifier) -> Iterator[None]:
    """Random state, buffers and logs stay as they are; what is compiled runs eagerly, so that hooks fire."""
    buffers = [(buffer, buffer.clone()) for buffer in classifier.buffers()]
    log = vars(classifier).pop("log", None)  # where a step is being profiled
    classifier.log = lambda *args, **kwargs: None  # type: ignore[method-assign]
    try:
        with isolate_rng(), torch.compiler.set_stance("force_eager"):
            yield
    finally:
        del classifier.log
        vars(classifier).update({"log": log} if log else {})
        for buffer, before in buffers:
            buffer.copy_(before)


def search(trainer: Trainer, classifier: ImageClassifier, batches: list[Batch], scale: float) -> Finding | None:
    """What was not finite first in a step of these batches, with the loss scaled, in any of the processes."""
    findings = []
    for batch in batches:
        with leaving_no_trace(classifier):
            loss = partial(batch.loss, classifier, trainer.precision_plugin)
            findings.append(first_non_finite(classifier, loss, scale / trainer.accumulate_grad_batches))
    return of_any_process(trainer, next(filter(None, findings), None))


def of_any_process(trainer: Trainer, found: Any) -> Any:
    """What the first process that has found something has found; all must ask."""
    has_found = torch.tensor(float(found is not None), device=trainer.strategy.root_device)
    return trainer.strategy.broadcast(found, int(trainer.strategy.all_gather(has_found).argmax()))


def first_non_finite(classifier: ImageClassifier, loss: Callable[[], Tensor], scale: float = 1.0) -> Finding | None:
    """The first module, in the order of computation, whose output is not finite in `loss()`, or else its gradient."""
    watch = _Watch()
    handles = [
        module.register_forward_hook(partial(watch.output, _label(name, module)))
        for name, module in classifier.named_modules()
    ]
    value = loss()
    for handle in handles:
        handle.remove()
    watch.output("the loss", classifier, (), value)
    local_gradients(value * scale, classifier)
    return watch.first


def _label(name: str, module: nn.Module) -> str:
    return f"{name.removeprefix('network.')} ({type(module).__name__})".strip()


@dataclass
class _Watch:
    """Hooks the nodes of the graph, since a module's full backward hook fails where the next one works in place."""

    first: Finding | None = None
    known: set[Node] = field(default_factory=set)

    def output(self, label: str, module: nn.Module, args: Any, output: Any) -> None:
        tensors = list(_tensors(output))
        self._look(label, "forward", tensors)
        nodes = [tensor.grad_fn for tensor in tensors]
        while nodes:  # down to the nodes of earlier modules
            node = nodes.pop()
            if node is None or node in self.known:
                continue
            self.known.add(node)
            if node.next_functions:  # a weight's own node has none, and outlives the replay
                nodes.extend(inner for inner, _ in node.next_functions)
                node.register_hook(partial(self._passed_on, label))

    def _passed_on(self, label: str, passed: tuple[Tensor | None, ...], taken: tuple[Tensor | None, ...]) -> None:
        self._look(label, "backward", [gradient for gradient in passed if gradient is not None])

    def _look(self, label: str, phase: str, tensors: list[Tensor]) -> None:
        if self.first is None and not all(bool(tensor.isfinite().all()) for tensor in tensors):
            self.first = Finding(label, phase)


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)
