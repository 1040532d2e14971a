"""Random draws as a function of seed, epoch, step and rank, so that a resumed run repeats them."""

import hashlib

from lightning import Trainer


def step_seed(trainer: Trainer, seed: int) -> int:
    """Seed in [0, 2**63) for the training batch that is due or running.

    Nothing about random numbers has to be saved: whoever resumes in the middle of an epoch draws what was due.
    """
    batch_idx = trainer.fit_loop.epoch_loop.batch_progress.current.ready
    key = f"{seed}/{trainer.current_epoch}/{batch_idx}/{trainer.global_rank}"
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8]) >> 1
