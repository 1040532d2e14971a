"""Which checkpoint a command uses, and the classifier in it."""

import pickle
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.utilities import rank_zero_only

from .classifier import ImageClassifier
from .runs import newest_run, read_result


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
    if ckpt_path.is_dir():
        raise ValueError(f"ckpt_path must be a file, {ckpt_path} is a folder.")
    if not ckpt_path.is_file():
        raise FileNotFoundError(f"ckpt_path {ckpt_path} does not exist.")
    rank_zero_only(print)(f"checkpoint: {ckpt_path}", flush=True)
    return ckpt_path


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The checkpoint's plain values, on the CPU; a ValueError where the file is none of ours."""
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError, RuntimeError, OSError) as error:
        reason = str(error).split(".")[0] or "it is empty"
        raise ValueError(f"{path} is no checkpoint that can be read safely: {reason}.") from error
    if not isinstance(checkpoint, dict) or "spec" not in checkpoint.get("hyper_parameters", {}):
        raise ValueError(f"{path} holds no ImageClassifier: its hyper_parameters have no 'spec'.")
    return checkpoint


def load_classifier(path: Path) -> ImageClassifier:
    """The classifier of a checkpoint, on the CPU and in eval mode."""
    checkpoint = read_checkpoint(path)
    classifier = ImageClassifier(**checkpoint["hyper_parameters"])
    classifier.on_load_checkpoint(checkpoint)
    classifier.load_state_dict(checkpoint["state_dict"])
    return classifier.eval()
