"""Which checkpoint a command uses, and the classifier in it."""

import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_only
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

from .classifier import ImageClassifier
from .cli import program_name
from .runs import newest_run, read_result
from .strategies import naming

META = "meta.pt"  # in a sharded checkpoint, all but weights and optimizer states


def find_checkpoint(ckpt_path: Path | None) -> Path:
    """The given checkpoint, or the best one of the newest finished run; says which on stdout.

    Raises:
        FileNotFoundError: there is none, or it is no file.
    """
    if ckpt_path is None:
        try:
            run = newest_run(finished=True)
        except FileNotFoundError as error:
            raise FileNotFoundError(f"no --ckpt_path given and {error}") from None
        ckpt_path = run / read_result(run)["best_checkpoint"]
    require_file("ckpt_path", ckpt_path)
    rank_zero_only(print)(f"checkpoint: {ckpt_path}", flush=True)
    return ckpt_path


def require_file(name: str, path: Path) -> None:
    """Of the argument with this name; an error says what else the path is, and what to do about shards."""
    if (path / META).is_file():
        raise ValueError(
            f"{name} {path} is sharded; make a file of it: {program_name()} consolidate --ckpt_path {path}"
        )
    if path.is_dir():
        raise ValueError(f"{name} must be a file, {path} is a folder.")
    if not path.is_file():
        raise FileNotFoundError(f"{name} {path} does not exist.")


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Plain values, on the CPU, of a sharded checkpoint all but weights; a ValueError where it is none of ours."""
    try:
        checkpoint = torch.load(path / META if path.is_dir() else path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError, RuntimeError, OSError) as error:
        reason = str(error).split(".")[0] or "it is empty"
        raise ValueError(f"{path} is no checkpoint that can be read safely: {reason}.") from error
    if not isinstance(checkpoint, dict) or "spec" not in checkpoint.get("hyper_parameters", {}):
        raise ValueError(f"{path} holds no ImageClassifier: its hyper_parameters have no 'spec'.")
    return checkpoint


def consolidate(ckpt_path: Path, output: Path | None = None) -> None:
    """Make one file of a sharded checkpoint, for all but `fit --resume`, which goes on from the shards themselves.

    Args:
        ckpt_path: the folder to which each process wrote its share.
        output: the file, by default beside the folder.
    """
    output = output or ckpt_path.with_name(f"{ckpt_path.stem}-whole.ckpt")
    if not (ckpt_path / META).is_file():
        raise ValueError(f"ckpt_path {ckpt_path} is no sharded checkpoint: it has no {META}.")
    if output.exists():
        raise FileExistsError(f"output {output} exists.")
    if not output.parent.is_dir():
        raise FileNotFoundError(f"output {output}: the folder {output.parent} does not exist.")
    checkpoint = read_checkpoint(ckpt_path)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}-") as aside:
        whole = Path(aside, "whole.ckpt")
        try:
            with naming(ckpt_path, "read"):
                dcp_to_torch_save(ckpt_path, whole)
            state = torch.load(whole, map_location="cpu", weights_only=True, mmap=True)["state_dict"]
            torch.save(checkpoint | {"state_dict": state}, whole.with_name("new.ckpt"))
        except RuntimeError as error:  # torch.save has no OSError to tell
            free = shutil.disk_usage(aside).free / 1e9
            raise OSError(f"output {output} can't be written, {free:.1f} GB are free there: {error}") from error
        whole.with_name("new.ckpt").replace(output)
    print(f"written: {output}")


def load_classifier(path: Path) -> ImageClassifier:
    """The classifier of a checkpoint, on the CPU and in eval mode."""
    checkpoint = read_checkpoint(path)
    classifier = ImageClassifier(**checkpoint["hyper_parameters"])
    classifier.on_load_checkpoint(checkpoint)
    classifier.load_state_dict(checkpoint["state_dict"])
    return classifier.eval()
