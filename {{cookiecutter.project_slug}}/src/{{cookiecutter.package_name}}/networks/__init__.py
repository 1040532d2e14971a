"""NETWORKS: name -> how a network is built. Every file of this folder is imported and registers its own."""

import inspect
import pkgutil
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Builder = TypeVar("Builder", bound=Callable[..., nn.Module])

NETWORKS: dict[str, Callable[..., nn.Module]] = {}


def register(builder: Builder) -> Builder:
    """Make a network known by its class or function name.

    The builder takes `num_classes`, `channels`, `image_size` (height, width) and whatever options it adds. Its network
    takes normalised images, float [N, channels, H, W], and returns logits [N, num_classes].
    """
    NETWORKS[builder.__name__] = builder
    return builder


def build_network(
    name: str, *, num_classes: int, channels: int, image_size: tuple[int, int], **options: Any
) -> nn.Module:
    """Build a registered network and try it on two black images.

    Raises:
        ValueError: an unknown name or option, images it can't take, or logits of another shape.
    """
    if name not in NETWORKS:
        raise ValueError(f"network {name!r} is unknown; choose one of {', '.join(sorted(NETWORKS))}.")
    accepted = set(inspect.signature(NETWORKS[name]).parameters) - {"num_classes", "channels", "image_size"}
    if unknown := set(options) - accepted:
        raise ValueError(f"network_args of {name} may hold {sorted(accepted)}, got {sorted(unknown)}.")
    network = NETWORKS[name](num_classes=num_classes, channels=channels, image_size=image_size, **options)
    _try(network, name, torch.zeros(2, channels, *image_size), num_classes)
    return network


@torch.no_grad()
def _try(network: nn.Module, name: str, images: Tensor, num_classes: int) -> None:
    shape = "x".join(map(str, images.shape[1:]))
    try:
        logits = network.eval()(images)
    except RuntimeError as error:
        raise ValueError(f"network {name} can't take images of {shape}: {error}") from error
    if logits.shape != (len(images), num_classes):
        raise ValueError(f"network {name} must return logits [N, {num_classes}], got {list(logits.shape)} for {shape}.")
    network.train()


for _module in pkgutil.iter_modules(__path__):
    import_module(f".{_module.name}", __name__)
