"""Parts of a network that are sharded by themselves, or computed twice to save memory."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

LISTS = (nn.Sequential, nn.ModuleList)


def find_blocks(network: nn.Module) -> list[nn.Module]:
    """Members of sequences and lists that have parts of their own, unless they are lists of such themselves."""
    found = []
    for child in network.children():
        holds_blocks = type(child) in LISTS and any(list(part.children()) for part in child.children())
        is_block = type(network) in LISTS and list(child.children()) and not holds_blocks
        found += [child] if is_block else find_blocks(child)
    return found


def find_large(network: nn.Module, min_num_params: int) -> list[nn.Module]:
    """The smallest parts with so many parameters, not counting those of parts inside of them.

    Nothing that may not be called as a module: lists, and single layers outside of sequences, whose weights an
    attention takes without them.
    """
    found, wrapped = [], set[nn.Parameter]()
    in_sequences = {part for module in network.modules() if isinstance(module, nn.Sequential) for part in module}
    for module in reversed(list(network.modules())[1:]):  # inner ones first
        if type(module).forward is nn.Module.forward or not (module in in_sequences or list(module.children())):
            continue
        own = [parameter for parameter in module.parameters() if parameter not in wrapped]
        if sum(parameter.numel() for parameter in own) >= min_num_params:
            found.append(module)
            wrapped |= set(own)
    return found


def compute_twice(blocks: list[nn.Module]) -> None:
    """Keep nothing of what the blocks compute in the forward pass; the backward pass computes it again."""
    for block in blocks:
        contexts = partial(_contexts, block)
        block.forward = partial(checkpoint, block.forward, use_reentrant=False, context_fn=contexts)


@contextmanager
def _statistics_kept(block: nn.Module) -> Iterator[None]:
    """The second pass over a batch must not count it twice."""
    norms = [module for module in block.modules() if isinstance(module, _BatchNorm) and module.track_running_stats]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:  # the pass ends with an exception as soon as nothing more is needed
        for norm, kept in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = kept


def _contexts(block: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Of the first and of the second pass."""
    return nullcontext(), _statistics_kept(block)
