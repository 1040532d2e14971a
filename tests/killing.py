"""Runs of `fit` that get a signal, or a full disk, at an exact moment."""

import os
import signal
import subprocess

from projects import Project

# Strikes when a method is about to be called, or has been, at a step.
SCRIPT = """
import os
import resource
import signal
import sys

from smoke import fit
from smoke.checkpointing import AtomicCheckpointIO, LastCheckpoint
from smoke.classifier import ImageClassifier
from smoke.cli import main

fault, moment, step = sys.argv[1], sys.argv[2], int(sys.argv[3])
LARGEST_FILE = 20_000  # bytes, less than a checkpoint
due = os.environ.get("STRUCK_RANK", "0") == os.environ.get("LOCAL_RANK", "0")


def strike():
    global due
    if due and fault == "FULL":
        resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST_FILE, LARGEST_FILE))
    elif due:
        os.kill(os.getpid(), signal.Signals[fault])
    due = False


def truncate(descriptor):
    os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
    strike()


def before(owner, name, step_of):
    def struck(*args, **kwargs):
        if step_of(*args) >= step:
            strike()
        return original(*args, **kwargs)

    original = getattr(owner, name)
    setattr(owner, name, struck)


def after(owner, name, step_of):
    def struck(*args, **kwargs):
        original(*args, **kwargs)
        if step_of(*args) >= step:
            strike()

    original = getattr(owner, name)
    setattr(owner, name, struck)


def halfway(owner, name, step_of):
    def struck(*args, **kwargs):
        if step_of(*args) >= step:
            os.fsync = truncate
        original(*args, **kwargs)

    original = getattr(owner, name)
    setattr(owner, name, struck)


def of_module(module, *args):
    return module.global_step


def of_trainer(self, trainer, *args):
    return trainer.global_step


MOMENTS = {
    "step": (before, ImageClassifier, "on_after_backward", of_module),
    "writing": (halfway, AtomicCheckpointIO, "save_checkpoint", lambda self, saved, path, *args: saved["global_step"]),
    "unsaved": (before, LastCheckpoint, "_save", of_trainer),
    "written": (after, LastCheckpoint, "_save", of_trainer),
    "published": (after, LastCheckpoint, "_publish", of_trainer),
    "validation": (before, ImageClassifier, "on_validation_batch_end", of_module),
    "epochs": (before, ImageClassifier, "on_train_epoch_start", of_module),
    "end": (before, fit, "_finish", lambda trainer, run: trainer.global_step),
}
how, *where = MOMENTS[moment]
how(*where)
sys.exit(main(["fit", *sys.argv[4:]]))
"""


def strike(
    project: Project, fault: str, moment: str, step: int, *options: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run fit until, at that moment of the step, the signal comes, or the disk is FULL."""
    (project.folder / "struck.py").write_text(SCRIPT, encoding="utf-8")
    path = f"{project.folder / 'src'}{os.pathsep}{project.folder}"
    process = project.start("struck", fault, moment, str(step), *options, env={"PYTHONPATH": path} | (env or {}))
    output, errors = process.communicate()
    return subprocess.CompletedProcess(options, process.returncode, output, errors)


def kill(project: Project, moment: str, step: int, *options: str) -> None:
    """Run fit until it is killed, nothing being written any more."""
    done = strike(project, "SIGKILL", moment, step, *options)
    assert done.returncode == -signal.SIGKILL, f"not killed, {moment} {step}:\n{done.stdout}\n{done.stderr}"
