"""What the formats that begin with torch.export share: the program, and files without traces of this machine."""

import contextlib
import io
import logging
import warnings
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.export import Dim, ExportedProgram

from .graph import OUTPUTS, Options, Scores
from .verification import VerificationError, reason


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what torch and its exporters write for their own developers; what fails raises an error."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def capture(
    graph: torch.nn.Module, example: Tensor, options: Options, *, most: int | None = None, strict: bool = False
) -> ExportedProgram:
    """The graph's operations, for any batch (up to `most`) if that is asked for; they name no file of this machine."""
    shapes = ({0: Dim("batch", min=1, max=most)},) if options.batch == "dynamic" else None
    try:
        with quiet(), torch.no_grad():
            program = torch.export.export(graph, (example,), dynamic_shapes=shapes, strict=strict)
    except (RuntimeError, ValueError) as error:
        raise VerificationError(f"the network can't be exported by torch.export: {reason(error)}") from error
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)
    return program


def scored(run: Callable[[Tensor], Sequence[Tensor]]) -> Callable[[NDArray[np.uint8]], Scores]:
    """The same for arrays, with names for what comes out of it."""

    @torch.inference_mode()
    def score(images: NDArray[np.uint8]) -> Scores:
        outputs = run(torch.from_numpy(np.ascontiguousarray(images)))
        return {name: output.numpy() for name, output in zip(OUTPUTS, outputs, strict=True)}

    return score


def rewrite(file: Path, change: Callable[[str, bytes], bytes | None]) -> None:
    """Put other contents into one of torch's archives, or leave out what is None: debug entries name source files."""
    with zipfile.ZipFile(file) as archive:
        entries = {name: change(name, archive.read(name)) for name in archive.namelist()}
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in entries.items():
            if content is not None:
                archive.writestr(zipfile.ZipInfo(name), content)
