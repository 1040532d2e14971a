"""OPTIMIZERS and SCHEDULES by name: groups without decay for norms and biases, warm-up and decay per step."""

import math
from collections.abc import Callable
from typing import Any

from torch import nn, optim
from torch.optim.lr_scheduler import LambdaLR

FUSED_DEVICES = {"cpu", "cuda", "mps"}


def _adamw(groups: list[dict[str, Any]], learning_rate: float, momentum: float, fused: bool) -> optim.Optimizer:
    return optim.AdamW(groups, lr=learning_rate, betas=(momentum, 0.999), fused=fused)


def _sgd(groups: list[dict[str, Any]], learning_rate: float, momentum: float, fused: bool) -> optim.Optimizer:
    return optim.SGD(groups, lr=learning_rate, momentum=momentum, nesterov=momentum > 0, fused=fused)


OPTIMIZERS: dict[str, Callable[[list[dict[str, Any]], float, float, bool], optim.Optimizer]] = {
    "adamw": _adamw,
    "sgd": _sgd,
}
SCHEDULES: dict[str, Callable[[float], float]] = {  # share of the steps after warm-up in [0, 1] -> factor
    "cosine": lambda share: 0.5 * (1 + math.cos(math.pi * share)),
    "linear": lambda share: 1 - share,
    "constant": lambda share: 1.0,
}


def parameter_groups(network: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices and kernels decay; vectors and scalars (norms, biases) do not."""
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]


def build_schedule(optimizer: optim.Optimizer, name: str, *, num_steps: float, warmup_share: float) -> LambdaLR:
    """Linear warm-up over `warmup_share` of `num_steps`, then the named decay."""
    if not math.isfinite(num_steps) and (name != "constant" or warmup_share):
        raise ValueError(f"schedule {name!r} needs an end: set trainer.max_epochs or trainer.max_steps.")
    warmup = int(num_steps * warmup_share) if warmup_share else 0

    def factor(step: int) -> float:
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return SCHEDULES[name](min(1.0, (step - warmup) / max(1, num_steps - warmup)))

    return LambdaLR(optimizer, factor)
