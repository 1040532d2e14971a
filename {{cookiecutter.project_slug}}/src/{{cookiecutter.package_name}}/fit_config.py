"""What a run of `fit` is built from: options, callbacks that are always on, and the run folder."""

import json
import os
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import Namespace
from lightning import LightningModule, Trainer
from lightning.fabric.plugins.environments.cluster_environment import ClusterEnvironment
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.fabric.plugins.environments.torchelastic import TorchElasticEnvironment
from lightning.pytorch.accelerators import CPUAccelerator
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI, SaveConfigCallback
from lightning.pytorch.strategies import ParallelStrategy
from lightning.pytorch.utilities import rank_zero_only
from lightning.pytorch.utilities.seed import isolate_rng

from .callbacks import CALLBACKS
from .checkpointing import CONFIG, AtomicCheckpointIO, BestCheckpoint, KeepConfig, LastCheckpoint
from .checkpoints import read_checkpoint, require_file
from .classifier import ImageClassifier
from .data.datamodule import ImageDataModule
from .loggers import MetricsCsv, run_arguments
from .memory import OutOfMemory, largest_batch_size
from .networks import build_network
from .runs import RUNS, discard_if_empty, new_run
from .strategies import check_strategy

DEFAULTS = Path("configs/default.yaml")
SPEC = "spec.json"
RUN_FOLDER = "FIT_RUN_FOLDER"  # tells the processes that a strategy starts which folder the first one made

# Who starts processes, and the variable that has their number on this node. torchrun may run under SLURM.
LAUNCHERS: dict[str, tuple[type[ClusterEnvironment], str]] = {
    "torchrun": (TorchElasticEnvironment, "LOCAL_WORLD_SIZE"),
    "SLURM": (SLURMEnvironment, "SLURM_NTASKS_PER_NODE"),
}


class SaveConfig(SaveConfigCallback):
    """Writes config.yaml, and tells the loggers the whole configuration."""

    def save_config(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        config = yaml.safe_load(self.parser.dump(self.config))
        for logger in trainer.loggers:
            logger.log_hyperparams({"config": config})


class FitCLI(LightningCLI):
    """Everything for one run: in a new folder, or going on in the folder `resumed` from that checkpoint."""

    model: ImageClassifier
    datamodule: ImageDataModule

    def __init__(
        self, args: list[str], *, resumed: Path | None = None, checkpoint: dict[str, Any] | None = None
    ) -> None:
        self.resumed = resumed
        self.checkpoint = checkpoint or {"global_step": 0}
        self.run_folder: Path | None = None
        super().__init__(
            ImageClassifier,
            ImageDataModule,
            args=args,
            run=False,
            subclass_mode_model=True,
            auto_configure_optimizers=False,
            load_from_checkpoint_support=False,
            seed_everything_default=0,
            save_config_callback=None if resumed else SaveConfig,
            save_config_kwargs={"overwrite": True},
            trainer_defaults={"use_distributed_sampler": False},
            parser_kwargs={
                "prog": "fit",
                "description": "Train a network in a new folder runs/<name>/<date-time>/. "
                "fit --resume [FOLDER] goes on with the newest unfinished run, or that one; options must be as before.",
                "default_config_files": [] if resumed else [str(DEFAULTS)],
                "allow_abbrev": False,
                "exit_on_error": False,
            },
        )

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--name", type=str, default="default", help="folder of the run below runs/")
        parser.add_argument("--init_from", type=str | None, default=None, help="checkpoint whose weights to start from")
        parser.add_argument(
            "--find_batch_size",
            type=int | None,
            default=None,
            help="train with the largest data.batch_size that fits into memory, a power of two up to this number",
        )
        parser.add_lightning_class_args(BestCheckpoint, "best_checkpoint")
        parser.add_lightning_class_args(LastCheckpoint, "last_checkpoint")
        parser.add_lightning_class_args(EarlyStopping, "early_stopping")
        parser.add_lightning_class_args(LearningRateMonitor, "learning_rate_monitor")
        for key, callback in CALLBACKS.items():
            summary = (callback.__doc__ or key).splitlines()[0]
            parser.add_argument(f"--{key}", type=callback | None, default=None, help=summary)
        parser.link_arguments("data", "model.init_args.spec", compute_fn=_spec, apply_on="instantiate")
        parser.link_arguments("seed_everything", "model.init_args.seed")
        parser.link_arguments("seed_everything", "data.seed")

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        self.config = parser.parse_args(args)

    def before_instantiate_classes(self) -> None:
        if self.resumed:
            self._refuse_changes(self.resumed)
        _try_network(self.config.model.init_args, self.config.data.decoding)
        if self.config.trainer.fast_dev_run:
            return
        self.run_folder = self.resumed or _run_folder(self.config.name)
        for logger in _as_list(self.config.trainer.logger):
            for key, value in run_arguments(logger, self.run_folder).items():
                logger.init_args[key] = value
        saved = self.run_folder / SPEC
        if saved.is_file():  # of this run, from before a stop or from another process
            values = json.loads(saved.read_text(encoding="utf-8"))
            self.config.data.mean, self.config.data.std = values["mean"], values["std"]

    def _refuse_changes(self, run: Path) -> None:
        before, now = (
            {key: value for key, value in vars(config.as_flat()).items() if key != "config"}
            for config in (self.parser.parse_string(self.checkpoint[CONFIG]), self.config)
        )
        keys = [key for key in dict.fromkeys((*before, *now)) if before.get(key) != now.get(key)]
        if keys:
            raise ValueError(
                f"{run} can't go on with other options ("
                + "; ".join(f"{key}: {before.get(key)} before, {now.get(key)} now" for key in keys)
                + f"): change them back, or start anew from the weights: --init_from {run}/checkpoints/last.ckpt."
            )

    def instantiate_classes(self) -> None:
        try:
            super().instantiate_classes()
            if self.config.init_from:
                _start_from(self.model, Path(self.config.init_from))
            if self.config.find_batch_size is not None and not self.config.trainer.fast_dev_run:
                self._find_batch_size()
        except BaseException:
            if self.run_folder is not None and not self.resumed:
                discard_if_empty(self.run_folder)
            raise

    def _find_batch_size(self) -> None:
        if isinstance(strategy := self.trainer.strategy, ParallelStrategy):
            raise ValueError(
                f"find_batch_size looks with one process, not with trainer.strategy {type(strategy).__name__}: find it "
                "with --trainer.strategy auto --trainer.devices 1, then set data.batch_size."
            )
        callbacks = [self.config_init[key] for key in CALLBACKS if self.config_init[key] is not None]
        trainer = {**self.config_init.trainer, "callbacks": callbacks}
        found = largest_batch_size(trainer, self.model, self.datamodule, self.config.find_batch_size)
        self.datamodule.batch_size = self.config.data.batch_size = found
        self.config.find_batch_size = None  # a resumed run doesn't look again

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        optional = [self.config_init[key] for key in CALLBACKS if self.config_init[key] is not None]
        config = {**self.config_init.trainer, **kwargs}
        if self.run_folder is not None:
            csv = MetricsCsv(self.run_folder, self.checkpoint["global_step"])
            config |= {"default_root_dir": str(self.run_folder), "logger": [csv, *_as_list(config["logger"])]}
            optional += [KeepConfig(), OutOfMemory()]
        config["callbacks"] = [*(config["callbacks"] or []), *optional]
        config["plugins"] = [*_as_list(config["plugins"]), AtomicCheckpointIO()]
        self.config_init.trainer = Namespace(config)  # type: ignore[no-untyped-call]
        trainer = super().instantiate_trainer()
        check_strategy(trainer.strategy)
        refuse_other_processes(trainer)
        _refuse_float16_on_cpu(trainer, config["precision"])
        if trainer.limit_val_batches == 0 and any(stop.strict for stop in trainer.early_stopping_callbacks):
            raise ValueError(
                "trainer.limit_val_batches 0 leaves early_stopping nothing: set early_stopping.strict false."
            )
        return trainer


def _try_network(model: Namespace, decoding: Namespace) -> None:
    """Refuse a network that can't be built before hours may go into reading images."""
    if "network" in model:
        size = {"channels": decoding.channels, "image_size": decoding.image_size}
        with isolate_rng():
            build_network(model.network, num_classes=2, **size, **(model.network_args or {}))


def refuse_other_processes(trainer: Trainer) -> None:
    """Where a launcher starts processes, it must be one per device: others would idle, or train for themselves."""
    launcher = next((name for name, (environment, _) in LAUNCHERS.items() if environment.detect()), None)
    if launcher is None:
        return
    environment, per_node = LAUNCHERS[launcher]
    started = environment().world_size(), int(os.environ.get(per_node, trainer.num_devices))
    if started != (trainer.num_devices * trainer.num_nodes, trainer.num_devices):
        raise ValueError(
            f"{launcher} started {started[0]} processes, {started[1]} of them on this node, but trainer.devices is "
            f"{trainer.num_devices} and trainer.num_nodes {trainer.num_nodes}: each device needs one process."
        )


def _refuse_float16_on_cpu(trainer: Trainer, asked: str | int | None) -> None:
    """On a CPU, Lightning 2.6 takes bfloat16 where 16-mixed was asked for, and 16-true trains to NaN."""
    if str(asked).startswith("16") and isinstance(trainer.accelerator, CPUAccelerator):
        raise ValueError(f"trainer.precision {asked} needs a GPU: on a CPU use bf16-mixed or 32-true.")


def _spec(data: ImageDataModule) -> dict[str, Any]:
    return data.spec.as_dict()


def _as_list(value: Any) -> list[Any]:
    if value in (None, True, False):
        return []
    return value if isinstance(value, list) else [value]


def is_first_process() -> bool:
    """Whether this process is the one that writes."""
    return bool(rank_zero_only.rank == 0)  # type: ignore[attr-defined]


def _run_folder(name: str) -> Path:
    if is_first_process():
        return new_run(name)
    # Only the first process writes. One that a launcher such as torchrun has started isn't told the folder.
    return Path(os.environ.get(RUN_FOLDER, RUNS / name / "of the first process"))


def _start_from(model: ImageClassifier, path: Path) -> None:
    require_file("init_from", path)
    checkpoint = read_checkpoint(path)
    classes = checkpoint["hyper_parameters"]["spec"]["classes"]
    if classes != model.spec.classes:
        raise ValueError(
            f"init_from {path} knows the classes {_some(classes)}, the data has {_some(model.spec.classes)}."
        )
    with isolate_rng():
        origin = ImageClassifier(**checkpoint["hyper_parameters"])
    try:
        model.network.load_state_dict(origin.network.state_dict())  # it may differ by removed channels alone
        model.on_load_checkpoint(checkpoint)
        model.load_state_dict(checkpoint["state_dict"])
    except RuntimeError as error:
        raise ValueError(f"init_from {path} does not fit the network: {error}") from error
    model.initialised_from = path  # type: ignore[assignment]


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
