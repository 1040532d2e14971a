"""torch.export's .pt2 in float32 or float16, run by torch alone."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from .graph import Graph, Options, Scores
from .judge import Judge
from .program import capture, quiet, scored

PACKAGES: tuple[str, ...] = ()
PRECISIONS: dict[int, tuple[str, ...]] = {32: (), 16: ()}
FILE = "model.pt2"


def write(graph: Graph, folder: Path, options: Options, judge: Judge | None = None) -> None:
    """Write one file that also holds classes, task and preprocessing."""
    network = graph.half_network() if options.quantize == 16 else graph
    program = capture(network, graph.example(options), options)
    content = io.BytesIO()  # on a full disk torch would end the process
    with quiet():
        torch.export.save(program, content, extra_files=graph.metadata())
    (folder / FILE).write_bytes(content.getvalue())


def load(folder: Path, threads: int | None = None) -> Callable[[NDArray[np.uint8]], Scores]:
    """What turns images uint8 [N, C, H, W] into scores."""
    if threads:
        torch.set_num_threads(threads)
    return scored(torch.export.load(folder / FILE).module())
