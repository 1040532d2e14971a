"""Which precision a device computes natively, and which modules stay in float32 all the same."""

from collections.abc import Callable
from fnmatch import fnmatchcase
from types import MethodType
from typing import Any

import torch
from lightning import Trainer
from lightning.pytorch.plugins import MixedPrecision
from torch import Tensor, nn

FLOAT32 = "32-true"
CPU_BFLOAT16 = ("amx_bf16", "avx512_bf16")


def native_precision(device: torch.device) -> tuple[str, str]:
    """The lowest precision that the device computes natively, and why."""
    return NATIVE[device.type](device) if device.type in NATIVE else (FLOAT32, f"{device.type} is not known to gain")


def _cuda(device: torch.device) -> tuple[str, str]:
    capability = torch.cuda.get_device_capability(device)
    name = "CUDA capability {}.{}".format(*capability)
    if torch.cuda.is_bf16_supported(including_emulation=False):
        return "bf16-mixed", f"{name} computes bfloat16"
    if capability >= (7, 0):
        return "16-mixed", f"{name} computes float16 and only emulates bfloat16"
    return FLOAT32, f"{name} is not faster in 16 bits"


def _cpu(device: torch.device) -> tuple[str, str]:
    flags = [flag for flag in CPU_BFLOAT16 if torch.cpu.get_capabilities().get(flag)]
    if flags:
        return "bf16-mixed", f"this CPU computes bfloat16 ({', '.join(flags)})"
    return FLOAT32, f"this CPU has no {' or '.join(CPU_BFLOAT16)}"


NATIVE: dict[str, Callable[[torch.device], tuple[str, str]]] = {"cuda": _cuda, "cpu": _cpu}


def set_precision(trainer: Trainer, asked: str | None) -> str:
    """Change the trainer's precision to what was asked for; returns why."""
    device = trainer.strategy.root_device
    if asked is None:
        return "as the trainer was told"
    precision, reason = native_precision(device) if asked == "auto" else (asked, "as amp.precision says")
    if precision == trainer.precision:
        return reason
    if trainer.precision != FLOAT32:
        raise ValueError(
            f"amp.precision {asked} ({precision} here) contradicts trainer.precision {trainer.precision}: leave that "
            "out, or set amp.precision to null."
        )
    if precision == "16-mixed" and device.type == "cpu":
        raise ValueError("amp.precision 16-mixed needs a GPU: use bf16-mixed, or auto to choose by the hardware.")
    trainer.strategy.precision_plugin = MixedPrecision(precision, device.type)  # type: ignore[arg-type]
    return reason


def keep_float32(network: nn.Module, patterns: list[str], device: torch.device) -> dict[str, nn.Module]:
    """Let the modules whose names fit compute in float32 under autocast; each gets a `forward` of its own."""
    modules = {name: module for name, module in network.named_modules() if name}
    found: dict[str, nn.Module] = {}
    for pattern in patterns:
        fitting = {name: module for name, module in modules.items() if fnmatchcase(name, pattern)}
        if not fitting:
            raise ValueError(f"amp.keep_fp32 {pattern!r} fits no module; there are {', '.join(modules)}.")
        found |= fitting

    def forward(self: nn.Module, *args: Any, **options: Any) -> Any:
        with torch.autocast(device.type, enabled=False):
            return type(self).forward(self, *map(_float, args), **options)

    for module in found.values():
        module.forward = MethodType(forward, module)
    return found


def _float(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.is_floating_point() else value
