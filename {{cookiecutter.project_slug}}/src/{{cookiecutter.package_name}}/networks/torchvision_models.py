"""torchvision's classification models by name, adapted to the number of classes, the channels and small images."""

from functools import partial, update_wrapper
from typing import Any

from torch import nn
from torchvision import models

from . import register

SMALL_IMAGE = 64  # pixels; up to here a stem that divides the size by 4 leaves too little
STEMS = {  # class -> its first convolution and the pooling behind it
    models.ResNet: ("conv1", "maxpool"),
    models.DenseNet: ("features.conv0", "features.pool0"),
    models.ShuffleNetV2: ("conv1.0", "maxpool"),
    models.MobileNetV2: ("features.0.0", None),
    models.MobileNetV3: ("features.0.0", None),
    models.EfficientNet: ("features.0.0", None),
    models.RegNet: ("stem.0", None),
}
AUXILIARY_HEADS = {"googlenet", "inception_v3"}  # they return more than logits in training


def _adapt_channels(network: nn.Module, channels: int) -> None:
    first = next(module for module in network.modules() if isinstance(module, nn.Conv2d))
    if first.in_channels == channels:
        return
    # The mean over the colours, scaled so that the sum over the channels stays.
    kernel = first.weight.detach().mean(1, keepdim=True) * first.in_channels / channels
    first.weight = nn.Parameter(kernel.repeat(1, channels, 1, 1))
    first.in_channels = channels


def _adapt_stem(network: nn.Module) -> None:
    convolution, pooling = STEMS.get(type(network), (None, None))
    if convolution:
        network.get_submodule(convolution).stride = (1, 1)  # type: ignore[assignment]
    if pooling:
        network.set_submodule(pooling, nn.Identity())


def _adapt_head(network: nn.Module, num_classes: int) -> None:
    name, old = [(n, m) for n, m in network.named_modules() if isinstance(m, (nn.Linear, nn.Conv2d))][-1]
    if isinstance(old, nn.Linear):
        network.set_submodule(name, nn.Linear(old.in_features, num_classes))
    else:
        network.set_submodule(name, nn.Conv2d(old.in_channels, num_classes, kernel_size=1))


def _build(
    model: str, *, num_classes: int, channels: int, image_size: tuple[int, int], weights: str | None = None
) -> nn.Module:
    """Build one of torchvision's models.

    Args:
        model: torchvision's name of it.
        num_classes: number of logits.
        channels: channels of the images.
        image_size: height and width in pixels.
        weights: pretrained weights by torchvision's name, such as DEFAULT; they bring their own normalisation.
    """
    options: dict[str, Any] = {"image_size": image_size[0]} if model.startswith("vit_") else {}
    network: nn.Module = models.get_model(model, weights=weights, **options)
    _adapt_channels(network, channels)
    if min(image_size) <= SMALL_IMAGE:
        _adapt_stem(network)
    _adapt_head(network, num_classes)
    if weights is not None and channels == 3:
        transform = models.get_model_weights(model)[weights].transforms()
        network.normalization = (list(transform.mean), list(transform.std))  # type: ignore[assignment]
    return network


for _model in set(models.list_models(module=models)) - AUXILIARY_HEADS:
    _builder = update_wrapper(partial(_build, _model), _build)
    _builder.__name__ = _model
    register(_builder)
