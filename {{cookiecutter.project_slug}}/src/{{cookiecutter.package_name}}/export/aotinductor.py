"""Compiled by AOTInductor for this machine's CPU; C++ programs load it too."""

import json
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch._inductor import aoti_compile_and_package, aoti_load_package
from torch._inductor.cpp_builder import get_cpp_compiler
from torch._inductor.exc import InvalidCxxCompiler
from torch._inductor.runtime.cache_dir_utils import cache_dir

from .graph import INPUT, Graph, Options, Scores
from .judge import Judge
from .program import capture, quiet, rewrite, scored
from .verification import VerificationError, reason

PACKAGES: tuple[str, ...] = ()
PRECISIONS: dict[int, tuple[str, ...]] = {32: ()}
FILE, INPUT_KEY, MAX_BATCH = "model.pt2", "input", 1024


def obstacle() -> str | None:
    """Why it can't be written here."""
    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return "it needs a C++ compiler, g++ or the one that CXX names"
    return None


def remark() -> str:
    """Where the file runs, and what it takes."""
    machine = f"{platform.system()} and {platform.machine()} with {torch.backends.cpu.get_cpu_capability()}"
    return f"Runs on {machine} only. Where the batch is dynamic, at most {MAX_BATCH} images at once."


def write(graph: Graph, folder: Path, options: Options, judge: Judge | None = None) -> None:
    """Write one package with compiled code and weights, which also holds classes, task and preprocessing."""
    program = capture(graph, graph.example(options), options, most=MAX_BATCH)
    _, *size = graph.shapes(options.axis)[INPUT]
    batches = [1, MAX_BATCH] if options.batch == "dynamic" else [options.batch, options.batch]
    settings = {
        "aot_inductor.metadata": graph.metadata() | {INPUT_KEY: json.dumps({"batches": batches, "size": size})},
        "aot_inductor.enable_line_tables": False,  # debug information, which names source files
        "cpp.dynamic_threads": True,  # else as many as there are here and now
    }
    try:
        with quiet(), torch.no_grad():
            aoti_compile_and_package(program, package_path=str(folder / FILE), inductor_configs=settings)
    except RuntimeError as error:
        raise VerificationError(f"AOTInductor can't compile the network: {reason(error)}") from error
    rewrite(folder / FILE, _without_places)


def _without_places(name: str, content: bytes) -> bytes | None:
    """No sources; and in the library, whose checks name theirs, as many dots."""
    if name.endswith((".cpp", ".data/serialization_id")):
        return None
    for place in (cache_dir(), str(Path(torch.__file__).parents[1])):
        content = content.replace(f"{place}/".encode(), b"." * len(place.encode()) + b"/")
    return content


def load(folder: Path, threads: int | None = None) -> Callable[[NDArray[np.uint8]], Scores]:
    """What turns images uint8 [N, C, H, W] into scores."""
    if threads:
        torch.set_num_threads(threads)
    with quiet():
        model = aoti_load_package(str(folder / FILE))
    taken = json.loads(model.get_metadata()[INPUT_KEY])
    least, most = taken["batches"]
    score = scored(model)

    def checked(images: NDArray[np.uint8]) -> Scores:
        # The compiled code believes whatever comes: another shape or type gives wrong scores, not an error.
        if images.dtype != np.uint8 or list(images.shape[1:]) != taken["size"] or not least <= len(images) <= most:
            expected = f"uint8 [{least} to {most}, {', '.join(map(str, taken['size']))}]"
            raise ValueError(f"images must be {expected}, got {images.dtype} {list(images.shape)}.")
        return score(images)

    return checked
