"""Networks whose channels were removed: rebuilt from the shapes of their stored weights."""

import torch
from torch import Tensor, nn


def _convolution(module: nn.Conv2d) -> None:
    depthwise = module.groups > 1 and module.groups == module.in_channels == module.out_channels
    module.out_channels = len(module.weight)
    module.groups = module.out_channels if depthwise else module.groups
    module.in_channels = module.weight.shape[1] * module.groups


def _linear(module: nn.Linear) -> None:
    module.out_features, module.in_features = module.weight.shape


def _batch_norm(module: nn.BatchNorm2d) -> None:
    module.num_features = len(module.weight)


def _layer_norm(module: nn.LayerNorm) -> None:
    module.normalized_shape = tuple(module.weight.shape)


def _group_norm(module: nn.GroupNorm) -> None:
    module.num_channels = len(module.weight)


SIZES = {  # what else says the size, by the kind of module
    nn.Conv2d: _convolution,
    nn.Linear: _linear,
    nn.BatchNorm2d: _batch_norm,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _group_norm,
}


def take_shapes(network: nn.Module, stored: dict[str, Tensor]) -> None:
    """Give the network the shapes of stored weights, by name, where these are smaller; their values are not taken."""
    for path, module in network.named_modules():
        prefix = f"{path}." if path else ""
        names = [name for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))]
        smaller = [name for name in names if _is_smaller(stored.get(prefix + name), getattr(module, name))]
        for name in smaller:
            _resize(module, name, stored[prefix + name].shape)
        for kind in SIZES if smaller else ():
            if isinstance(module, kind):
                SIZES[kind](module)  # type: ignore[operator]


def _is_smaller(stored: Tensor | None, tensor: Tensor) -> bool:
    if stored is None or stored.shape == tensor.shape or stored.ndim != tensor.ndim:
        return False
    return all(new <= old for new, old in zip(stored.shape, tensor.shape, strict=True))


def _resize(module: nn.Module, name: str, shape: torch.Size) -> None:
    old = getattr(module, name)
    new = old.new_empty(shape)
    if new.ndim == 4:
        new = new.contiguous(memory_format=torch.channels_last)
    setattr(module, name, nn.Parameter(new, old.requires_grad) if isinstance(old, nn.Parameter) else new)
