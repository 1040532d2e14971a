"""What an optimisation may change of a classifier, measured: accuracy, size, work and time."""

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from lightning import Trainer
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils.flop_counter import FlopCounterMode

from .classifier import ImageClassifier
from .data.datamodule import ImageDataModule
from .data.datasets import counted


@torch.no_grad()
def validation_accuracy(trainer: Trainer, classifier: ImageClassifier) -> float:
    """Share in [0, 1] of right answers on the whole validation split, each image of all processes once."""
    data: ImageDataModule = trainer.datamodule  # type: ignore[attr-defined]
    device = trainer.strategy.root_device
    metric = classifier.task.metrics(len(classifier.spec.classes))["accuracy"].to(device)
    with evaluating(classifier.to(device)):
        for images, labels in data.val_dataloader():
            logits = classifier(images.to(device))  # filler too: under FSDP, all processes compute together
            if (kept := counted(labels)).any():
                metric.update(classifier.probabilities(logits[kept]), labels[kept].to(device).long())
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


def local_gradients(loss: Tensor, module: nn.Module) -> dict[str, Tensor]:
    """What this process holds of the weights' gradients; neither `.grad` nor DistributedDataParallel takes notice."""
    for part in module.modules():
        if isinstance(part, FSDPModule):
            part.reshard()  # or its weights are what was gathered
    weights = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    if not any(isinstance(weight, DTensor) for weight in weights.values()):
        found = torch.autograd.grad(loss, list(weights.values()), materialize_grads=True)
        return dict(zip(weights, found, strict=True))
    before = [weight.grad for weight in weights.values()]
    module.zero_grad()
    loss.backward()  # autograd.grad knows no shares
    shares = {
        name: torch.zeros_like(weight) if weight.grad is None else weight.grad for name, weight in weights.items()
    }
    for weight, gradient in zip(weights.values(), before, strict=True):
        weight.grad = gradient
    return {name: share.to_local() if isinstance(share, DTensor) else share for name, share in shares.items()}


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
