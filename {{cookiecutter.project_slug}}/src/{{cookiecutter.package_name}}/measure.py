"""What an optimisation may change of a classifier, measured: accuracy, size, work and time."""

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from lightning import Trainer
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from .classifier import ImageClassifier
from .data.datamodule import ImageDataModule


@torch.no_grad()
def validation_accuracy(trainer: Trainer, classifier: ImageClassifier) -> float:
    """Share in [0, 1] of right answers on the whole validation split, each image of all processes once."""
    data: ImageDataModule = trainer.datamodule  # type: ignore[attr-defined]
    device = trainer.strategy.root_device
    metric = classifier.task.metrics(len(classifier.spec.classes))["accuracy"].to(device)
    with evaluating(classifier.to(device)):
        for images, labels in data.val_dataloader():
            metric.update(classifier.probabilities(classifier(images.to(device))), labels.to(device).long())
    return float(metric.compute())


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """In evaluation mode; afterwards each module is in the mode that it was in."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes.items():
            part.training = mode


def milliseconds(calls: dict[str, Callable[[], object]], *, rounds: int = 20, warm_up: int = 3) -> dict[str, float]:
    """Median time of each call, all measured in turn so that a busy machine slows all of them."""
    seen: dict[str, list[float]] = {name: [] for name in calls}
    for number in range(warm_up + rounds):
        for name, call in calls.items():
            start = _now()
            call()
            if number >= warm_up:
                seen[name].append(1000 * (_now() - start))
    return {name: statistics.median(times) for name, times in seen.items()}


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


@torch.inference_mode()
def costs(classifier: ImageClassifier) -> dict[str, float]:
    """Of the classifier in evaluation: parameters, multiply-accumulates for an image, megabytes of its weights."""
    network = copy.deepcopy(classifier).eval()
    with FlopCounterMode(display=False) as counter:
        network(example_images(network, 1))
    return {
        "parameters": sum(parameter.numel() for parameter in network.network.parameters()),
        "MACs": counter.get_total_flops() / 2,
        "megabytes": _num_bytes(network.network) / 1e6,
    }


def _num_bytes(module: nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in module.state_dict().values())


@torch.inference_mode()
def latencies(classifiers: dict[str, ImageClassifier], *, batch_size: int = 1) -> dict[str, float]:
    """Milliseconds that PyTorch takes for a batch with each of them, in evaluation, on the device where they are."""
    modules = {name: copy.deepcopy(classifier).eval() for name, classifier in classifiers.items()}
    batches = {name: example_images(module, batch_size) for name, module in modules.items()}
    return milliseconds({name: lambda name=name: modules[name](batches[name]) for name in modules})  # type: ignore[misc]


@torch.inference_mode()
def head_of(classifier: ImageClassifier) -> str:
    """Name of the network's layer that runs last: it gives the logits."""
    names: list[str] = []
    handles = [
        module.register_forward_hook(lambda *_, name=name: names.append(name))
        for name, module in classifier.network.named_modules()
        if isinstance(module, (nn.Conv2d, nn.Linear))
    ]
    with evaluating(classifier):
        classifier(example_images(classifier, 1))
    for handle in handles:
        handle.remove()
    return names[-1]


def example_images(classifier: ImageClassifier, batch_size: int) -> torch.Tensor:
    """Grey images uint8 [N, C, H, W] on the classifier's device."""
    decoding = classifier.spec.decoding
    shape = (batch_size, decoding.channels, *decoding.image_size)
    return torch.full(shape, 128, dtype=torch.uint8, device=classifier.device)
