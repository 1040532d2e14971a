"""Several processes: each with the whole network (DataParallel), or with a share of it (FullyShard)."""

import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from lightning import Trainer
from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, ModelParallelStrategy, ParallelStrategy, Strategy
from lightning.pytorch.utilities import rank_zero_info
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.constants import default_pg_timeout
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm

from .blocks import compute_twice, find_blocks, find_large
from .runs import put_in_place


class DataParallel(DDPStrategy):
    """Every process trains the whole network with images of its own; gradients are averaged.

    Args:
        find_unused_parameters: look in every step for parameters without a gradient, which is slower.
        static_graph: trust that every step uses the same parameters in the same order, which is faster.
        sync_batchnorm: on GPUs, batch norm takes the statistics of all processes' images.
        timeout: how long a process waits for another one that does not answer.
    """

    def __init__(
        self,
        find_unused_parameters: bool = False,
        static_graph: bool = False,
        sync_batchnorm: bool = True,
        timeout: timedelta = default_pg_timeout,
    ) -> None:
        super().__init__(
            find_unused_parameters=find_unused_parameters,
            static_graph=static_graph,
            gradient_as_bucket_view=True,
            broadcast_buffers=False,  # share_buffers does
            timeout=timeout,
        )
        self.sync_batchnorm = sync_batchnorm

    def setup_environment(self) -> None:
        super().setup_environment()
        if self.sync_batchnorm:
            synchronise_batch_norm(self)

    def on_exception(self, exception: BaseException) -> None:
        if "Expected to have finished reduction" not in str(exception) or self.lightning_module is None:
            return
        parameters = self.lightning_module.named_parameters()
        unused = [name for name, parameter in parameters if parameter.requires_grad and parameter.grad is None]
        exception.args = (
            f"the loss does not depend on {', '.join(unused) or 'some parameters'}, so that processes would wait for "
            "their gradients for ever: use them, freeze them (requires_grad False), or set "
            "trainer.strategy.init_args.find_unused_parameters true.",
        )


class FullyShard(ModelParallelStrategy):
    """Every process holds a share of all weights, gradients and optimizer states (FSDP2), and trains on its own images.

    A part of the network that is wrapped by itself is gathered when it computes; the rest is gathered as one.

    Args:
        wrap: block wraps the members of sequences and lists that have parts of their own, such as residual blocks;
            size wraps the smallest parts of at least `min_num_params`.
        min_num_params: parameters, for wrap size.
        cpu_offload: keep weights and optimizer states on the CPU.
        activation_checkpointing: compute what the blocks need in the backward pass a second time, to save memory.
        save_distributed_checkpoint: checkpoints are folders to which each process writes its share.
        sync_batchnorm: on GPUs, batch norm takes the statistics of all processes' images.
        timeout: how long a process waits for another one that does not answer.
    """

    def __init__(
        self,
        wrap: Literal["block", "size"] = "block",
        min_num_params: int = 1_000_000,
        cpu_offload: bool = False,
        activation_checkpointing: bool = False,
        save_distributed_checkpoint: bool = False,
        sync_batchnorm: bool = True,
        timeout: timedelta = default_pg_timeout,
    ) -> None:
        super().__init__(
            tensor_parallel_size=1,
            save_distributed_checkpoint=save_distributed_checkpoint,
            process_group_backend="cpu:gloo,cuda:nccl" if cpu_offload and torch.cuda.is_available() else None,
            timeout=timeout,
        )
        self.find = find_blocks if wrap == "block" else partial(find_large, min_num_params=min_num_params)
        self.offload_policy = CPUOffloadPolicy(pin_memory=torch.cuda.is_available()) if cpu_offload else OffloadPolicy()
        self.activation_checkpointing = activation_checkpointing
        self.sync_batchnorm = sync_batchnorm

    def setup(self, trainer: Trainer) -> None:
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if reason := getattr(callback, "NOT_SHARDED", None):
                raise ValueError(f"{type(callback).__name__.lower()} does not go with FullyShard: {reason}.")
        super().setup(trainer)

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_processes * self.num_nodes  # Lightning's "auto" is the number of nodes
        super().setup_environment()
        if self.sync_batchnorm:
            synchronise_batch_norm(self)

    def model_to_device(self) -> None:
        super().model_to_device()
        if isinstance(self.offload_policy, CPUOffloadPolicy):  # back to where FSDP expects them
            assert self.model is not None
            self.model._apply(lambda tensor: tensor.cpu() if isinstance(tensor, DTensor) else tensor)

    def shard(self, network: nn.Module) -> None:
        """Wrap the parts, then the rest; a second time nothing happens."""
        if hasattr(network, "unshard"):
            return
        if self.activation_checkpointing:
            compute_twice(find_blocks(network))
        network.to(memory_format=torch.contiguous_format)  # torch 2.14 can't shard channels_last
        mesh = self.device_mesh["data_parallel"]
        for part in (*self.find(network), network):
            fully_shard(part, mesh=mesh, offload_policy=self.offload_policy)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any | None = None) -> None:
        if not self._save_distributed_checkpoint:
            super().save_checkpoint(checkpoint, filepath, storage_options)
            return
        path = Path(self.broadcast(filepath))
        aside = path.with_name(f"{path.name}.part")
        if self.is_global_zero:
            shutil.rmtree(aside, ignore_errors=True)
        self.barrier()
        try:
            with naming(path, "written"):
                super().save_checkpoint(checkpoint, aside)
        except OSError:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        self.barrier()
        if self.is_global_zero:
            put_in_place(aside, path)
        self.barrier()

    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        with naming(Path(checkpoint_path), "read"):
            return super().load_checkpoint(checkpoint_path, weights_only)


@contextmanager
def naming(path: Path, what: str) -> Iterator[None]:
    """Say of a sharded checkpoint why it can't be read or written: to Python, torch's own exception is no Exception."""
    try:
        yield
    except CheckpointException as error:
        cause = next(iter(error.failures.values()))[0]
        raise OSError(f"{path} can't be {what}: {str(cause) or type(cause).__name__}") from error


def check_strategy(strategy: Strategy) -> None:
    """Refuse those whose evaluation would count images twice or wait for ever, or whose results stay elsewhere."""
    if isinstance(strategy, FSDPStrategy) or type(strategy) is ModelParallelStrategy:
        raise ValueError(
            f"trainer.strategy {type(strategy).__name__} is not supported: -c configs/fsdp.yaml shards with FullyShard."
        )
    if isinstance(strategy, DDPStrategy) and strategy._start_method != "popen":  # they train copies of the callbacks
        raise ValueError(
            f"trainer.strategy ddp_{strategy._start_method} is not supported: -c configs/ddp.yaml starts processes "
            "that run the whole command."
        )


def synchronise_batch_norm(strategy: ParallelStrategy) -> None:
    """For training, before callbacks change any module; where there are no GPUs, say that it is not."""
    classifier = strategy.lightning_module
    assert classifier is not None
    if not classifier.trainer.training or not any(isinstance(module, _BatchNorm) for module in classifier.modules()):
        return
    if strategy.root_device.type == "cuda":
        nn.SyncBatchNorm.convert_sync_batchnorm(classifier)
    else:
        rank_zero_info("batch norm is not synchronised, only GPUs can: each process normalises its own images")


def share_buffers(network: nn.Module) -> None:
    """Give all processes the buffers of the first one, such as batch norm's statistics, so that they score one model.

    DistributedDataParallel does that before it trains, which leaves validations with statistics of their own.
    """
    kinds: dict[torch.dtype, list[Tensor]] = defaultdict(list)
    for buffer in network.buffers():
        kinds[buffer.dtype].append(buffer)
    for buffers in kinds.values():
        whole = torch.cat([buffer.flatten() for buffer in buffers])
        torch.distributed.broadcast(whole, 0)
        for buffer, part in zip(buffers, whole.split([buffer.numel() for buffer in buffers]), strict=True):
            buffer.copy_(part.view_as(buffer))
