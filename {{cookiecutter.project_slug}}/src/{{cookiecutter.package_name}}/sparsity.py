"""What pruning removes: single weights, by masks, or whole channels, along the dependency graph of torch-pruning."""

import copy
import warnings
from collections.abc import Iterable

import torch
import torch_pruning
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn

from .classifier import ImageClassifier
from .measure import example_images, head_of
from .shapes import take_shapes

TOLERANCE = 0.05  # share of the channels; layers lose them in multiples of round_to
LAYERS = (nn.Conv2d, nn.Linear)
# What torch-pruning, or the network behind it, ends with where channels can't be followed.
FAILURES = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


def prunable_weights(network: nn.Module) -> dict[str, Tensor]:
    """Weights of all convolutions and linear layers by name; the head's too, in small networks it holds most."""
    layers = {path: module for path, module in network.named_modules() if isinstance(module, LAYERS)}
    return {f"{path}.weight": module.weight for path, module in layers.items()}


@torch.no_grad()
def smallest_masked(weights: dict[str, Tensor], share: float) -> dict[str, Tensor]:
    """Masks that are False at this share in [0, 1] of all values, the smallest by magnitude; of equal ones the first.

    Found on the CPU, so that all processes find the same.
    """
    values = torch.cat([weight.abs().flatten() for weight in weights.values()]).float().cpu()
    number = round(share * len(values))
    border = values.kthvalue(max(number, 1)).values
    below, equal = values < border, values == border
    kept = ~(below | (equal & (equal.cumsum(0) <= number - below.sum())))
    parts = kept.split([weight.numel() for weight in weights.values()])
    return {
        name: part.view(weight.shape).to(weight.device)
        for (name, weight), part in zip(weights.items(), parts, strict=True)
    }


@torch.no_grad()
def apply_masks(weights: dict[str, Tensor], masks: dict[str, Tensor]) -> None:
    """Set to zero, in place, what a mask does not keep."""
    for name, mask in masks.items():
        weights[name].mul_(mask)


def num_nonzero(tensors: Iterable[Tensor]) -> int:
    """How many values are not zero."""
    return sum(int(tensor.count_nonzero()) for tensor in tensors)


def remove_channels(classifier: ImageClassifier, *, share: float, round_to: int) -> None:
    """Remove about `share` in (0, 1) of the channels: of each group that belongs together those of the least norm.

    Fang et al. 2023, DepGraph. Afterwards the network is what any checkpoint of it is rebuilt to.
    """
    images = _random_images(classifier)
    pruned = _nearest(classifier.network, images, share, round_to, head_of(classifier))
    stored = pruned.state_dict()
    with isolate_rng():
        fresh = ImageClassifier(**classifier.hparams).network.eval()
    for network in (fresh, classifier.network):
        take_shapes(network, stored)
        network.load_state_dict(stored)
    with torch.no_grad():
        if not torch.allclose(fresh(images), pruned(images), rtol=1e-3, atol=1e-4):
            raise RuntimeError(f"{type(fresh).__name__} can't be rebuilt from its pruned weights: its logits differ.")


def removed_share(before: nn.Module, after: nn.Module, *, head: str) -> float:
    """Share in [0, 1] of the channels, the outputs of all layers but the head, that `after` has no more."""
    return 1 - _num_channels(after, head) / _num_channels(before, head)


def _num_channels(network: nn.Module, head: str) -> int:
    layers = {name: module for name, module in network.named_modules() if isinstance(module, LAYERS)}
    return sum(len(module.weight) for name, module in layers.items() if name != head)


def _random_images(classifier: ImageClassifier) -> Tensor:
    shape = example_images(classifier, 2).shape
    pixels = torch.randint(256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return classifier.normalize(pixels.to(classifier.device))


def _nearest(network: nn.Module, images: Tensor, share: float, round_to: int, head: str) -> nn.Module:
    reachable = []
    # What is kept is rounded down, so another share asked for may come closer.
    for ratio in sorted({share, *(tenth / 10 for tenth in range(1, 10))}, key=lambda ratio: abs(ratio - share)):
        pruned = _pruned(network, images, ratio, round_to, head)
        reachable.append(removed_share(network, pruned, head=head))
        if abs(reachable[-1] - share) <= TOLERANCE:
            return pruned
    nearest = min(filter(None, reachable), key=lambda reached: abs(reached - share), default=0.0)
    raise ValueError(
        f"target_sparsity {share} can't be reached: with round_to {round_to} the nearest is {nearest:.2f}; "
        "take a smaller round_to, or that share."
    )


def _pruned(network: nn.Module, images: Tensor, ratio: float, round_to: int, head: str) -> nn.Module:
    pruned = copy.deepcopy(network).eval().requires_grad_(True)  # channels are followed by their gradients
    shape = pruned(images).shape
    importance = torch_pruning.importance.GroupMagnitudeImportance(p=2)
    options = {"pruning_ratio": ratio, "ignored_layers": [pruned.get_submodule(head)], "round_to": round_to}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # parameters outside of layers: whether they went well shows below
            torch_pruning.pruner.BasePruner(pruned, images, importance, **options).step()
        if pruned(images).shape != shape:
            raise ValueError("it has another number of logits")
    except FAILURES as error:
        raise ValueError(
            f"channels of {type(network).__name__} can't be removed ({type(error).__name__}: {error}); "
            "take kind: unstructured, or another network."
        ) from error
    return pruned
