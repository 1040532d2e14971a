"""TorchScript, which torch deprecates, for programs that can't load anything newer."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from .graph import Graph, Options, Scores
from .judge import Judge
from .program import capture, quiet, rewrite, scored

PACKAGES: tuple[str, ...] = ()
PRECISIONS: dict[int, tuple[str, ...]] = {32: ()}
OPT_IN = True
FILE = "model.pt"


def write(graph: Graph, folder: Path, options: Options, judge: Judge | None = None) -> None:
    """Write one file that also holds classes, task and preprocessing."""
    example = graph.example(options)
    capture(graph, example, options)  # refuses branches on values, which tracing would follow once and then forget
    with quiet():
        traced = torch.jit.freeze(torch.jit.trace(graph, (example,), check_trace=False))
        torch.jit.save(traced, folder / FILE, _extra_files=graph.metadata())
    rewrite(folder / FILE, lambda name, content: None if name.endswith(".debug_pkl") else content)


def load(folder: Path, threads: int | None = None) -> Callable[[NDArray[np.uint8]], Scores]:
    """What turns images uint8 [N, C, H, W] into scores."""
    if threads:
        torch.set_num_threads(threads)
    with quiet():
        return scored(torch.jit.load(folder / FILE))
