"""The `fit` command: start a run, or go on with one, and say what comes next."""

import os
from pathlib import Path

from lightning import Trainer
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only
from torch.distributed import DistError

from .checkpointing import CONFIG, best_checkpoint
from .checkpoints import read_checkpoint
from .cli import program_name
from .data.spec import DataSpec
from .fit_config import DEFAULTS, RUN_FOLDER, SPEC, FitCLI, is_first_process
from .report import failures, report
from .runs import can_go_on, finish, is_finished, newest_run, put_back, read_result, write_json


def fit(args: list[str]) -> None:
    """Train a network; all options are in configs/default.yaml and --help."""
    args = [part for arg in args for part in (arg.split("=", 1) if arg.startswith("--resume=") else [arg])]
    if "--resume" in args:
        return _resume(args)
    if not DEFAULTS.is_file() and not {"-h", "--help"} & set(args):
        raise FileNotFoundError(f"no {DEFAULTS} in {Path.cwd()}: run fit in a project's folder.")
    return _run(FitCLI(args))


def _resume(args: list[str]) -> None:
    before, after = args[: args.index("--resume")], args[args.index("--resume") + 1 :]
    named = after[:1] if not after or not after[0].startswith("-") else []
    run = Path(named[0]) if named else newest_run(finished=False)
    if not (run / CONFIG).is_file():
        raise FileNotFoundError(f"{run} is no run folder: it has no {CONFIG}.")
    if is_finished(run):
        raise ValueError(
            f"{run} is finished after {read_result(run)['epochs']} epochs, nothing to resume; to train on, start from "
            "its weights: --init_from."
        )
    put_back(run / "checkpoints")
    checkpoint_path = run / "checkpoints" / "last.ckpt"
    if not checkpoint_path.exists():
        raise FileNotFoundError(f"{checkpoint_path} does not exist: the run was stopped before its first checkpoint.")
    checkpoint = read_checkpoint(checkpoint_path)
    options = ["--config", str(run / CONFIG), *before, *after[len(named) :]]
    cli = FitCLI(options, resumed=run, checkpoint=checkpoint)
    if cli.model.spec != DataSpec.from_dict(checkpoint["hyper_parameters"]["spec"]):
        raise ValueError(f"the data is no longer what {run} was trained on (compare {run / SPEC}).")
    rank_zero_info(f"resuming {run} at epoch {checkpoint['epoch']}, step {checkpoint['global_step']}")
    _run(cli, checkpoint_path)


def _run(cli: FitCLI, checkpoint_path: Path | None = None) -> None:
    run = cli.run_folder
    if run is None:
        cli.trainer.fit(cli.model, cli.datamodule)
        return
    if is_first_process():
        write_json(run / SPEC, cli.model.spec.as_dict())
    os.environ[RUN_FOLDER] = str(run)
    try:
        cli.trainer.fit(cli.model, cli.datamodule, ckpt_path=checkpoint_path, weights_only=True)
    except SystemExit as stop:  # how Lightning ends on KeyboardInterrupt
        if isinstance(stop.__context__, KeyboardInterrupt):
            raise type(stop.__context__)(_what_next(run)) from None
        raise
    except OSError as error:
        raise OSError(f"{error}; {_what_next(run)}") from error
    except RuntimeError as error:
        if not isinstance(error, DistError) and "/gloo/" not in str(error):  # gloo's errors have no class of their own
            raise
        raise RuntimeError(f"another process of this run, or its node, is lost: {error}; {_what_next(run)}") from error
    finally:
        del os.environ[RUN_FOLDER]
    _finish(cli.trainer, run)


def _what_next(run: Path) -> str:
    if not run.is_dir():  # a launcher's other processes aren't told the folder
        return f"go on with: {program_name()} fit --resume"
    if not can_go_on(run):
        return f"{run} has no checkpoint yet, start anew."
    return f"go on with: {program_name()} fit --resume {run}"


@rank_zero_only
def _finish(trainer: Trainer, run: Path) -> None:
    best = best_checkpoint(trainer)
    path, score = best.final_path, None if best.best_model_score is None else float(best.best_model_score)
    if not path.exists():
        raise ValueError(f"no checkpoint was written in {run}: trainer.max_epochs or max_steps left nothing to do.")
    report(trainer, run)
    if failed := failures(trainer):
        raise RuntimeError(failed)
    finish(
        run,
        {
            "best_checkpoint": os.path.relpath(path, run),
            "monitor": best.monitor,
            "score": score,
            "epochs": trainer.current_epoch,
            "steps": trainer.global_step,
            "precision": trainer.precision,
        },
    )
    program = program_name()
    print(f"best checkpoint: {path} ({best.monitor} {score})")
    print(f"next: {program} test; {program} predict IMAGES; {program} export")
