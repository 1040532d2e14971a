"""Convolutions and linear layers that round as int8 does, while they are trained; their weights keep their names."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

LEVELS = 255  # uint8 activations in [0, 255], int8 weights in [-127, 127]
MOMENTUM = 0.1  # of the ranges, per batch


def _rounded(values: Tensor, steps: Tensor) -> Tensor:
    """Multiples of the step; the gradient passes as if nothing had been rounded (straight-through estimator)."""
    return values + ((values / steps).round() * steps - values).detach()


class ActivationRange(nn.Module):
    """Observes the range of what passes, and rounds it to uint8 levels in it, in training only."""

    low: Tensor
    high: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("low", torch.tensor(torch.inf), persistent=False)
        self.register_buffer("high", torch.tensor(-torch.inf), persistent=False)
        self.rounds = False
        self.observes = False

    def forward(self, values: Tensor) -> Tensor:
        if not (self.training and self.rounds):
            return values
        wide = values.float()
        if self.observes:
            self._observe(wide.detach())
        low, high = self.low.clamp(max=0), self.high.clamp(min=0)
        step = ((high - low) / LEVELS).clamp(min=torch.finfo(torch.float32).tiny)
        zero_point = (-low / step).round()
        inside = wide.clamp(-zero_point * step, (LEVELS - zero_point) * step)
        return _rounded(inside, step).to(values.dtype)

    def _observe(self, values: Tensor) -> None:
        low, high = values.aminmax()
        first = self.low > self.high
        self.low.copy_(torch.where(first, low, self.low.lerp(low, MOMENTUM)))
        self.high.copy_(torch.where(first, high, self.high.lerp(high, MOMENTUM)))

    def round_weight(self, weight: Tensor) -> Tensor:
        """Per output channel and symmetric; a factor per channel, as of a batch norm behind, changes nothing."""
        if not (self.training and self.rounds):
            return weight
        largest = weight.detach().abs().amax(tuple(range(1, weight.ndim)), keepdim=True)
        return _rounded(weight, (largest / (LEVELS // 2)).clamp(min=torch.finfo(torch.float32).tiny))


class _Conv2d(nn.Conv2d):
    range: ActivationRange

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(self.range(input), self.range.round_weight(self.weight), self.bias)


class _Linear(nn.Linear):
    range: ActivationRange

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(self.range(input), self.range.round_weight(self.weight), self.bias)


ROUNDING: dict[type[nn.Module], type[nn.Module]] = {nn.Conv2d: _Conv2d, nn.Linear: _Linear}


def install(network: nn.Module, *, head: str) -> dict[str, ActivationRange]:
    """Let all layers but the head round, in place; returns their ranges by the layers' names."""
    layers = {n: module for n, module in network.named_modules() if type(module) in ROUNDING and n != head}
    if not layers:
        raise ValueError("quantization needs a network of at least two layers, since the last one stays in float.")
    for module in layers.values():
        module.__class__ = ROUNDING[type(module)]
        module.range = ActivationRange().to(module.weight.device)
    return {name: module.range for name, module in layers.items()}


def uninstall(network: nn.Module) -> None:
    """Undo `install`."""
    plain = {rounding: kind for kind, rounding in ROUNDING.items()}
    for module in [module for module in network.modules() if type(module) in plain]:
        module.__class__ = plain[type(module)]
        del module.range
