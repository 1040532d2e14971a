"""Each variant in a process of its own, with as many threads as asked."""

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..export.graph import OUTPUTS, Scores
from ..export.verification import VerificationError, fresh_process
from . import worker
from .variants import Variant

NUM_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
MOST_IMAGES = 64  # in a call that is not timed


class Runtime:
    """A variant in a process that is told the format's name and the bundle's folder alone."""

    def __init__(self, variant: Variant, threads: int) -> None:
        self.variant = variant
        self._told = (variant.model["format"], variant.folder, threads)
        self._executor = fresh_process()
        with _environment(dict.fromkeys(NUM_THREADS, str(threads))):
            self.ready: Future[dict[str, str]] = self._executor.submit(worker.prepare, *self._told)

    def ask(self, question: Callable[..., Any], *args: Any) -> Any:
        """What a function of the worker returns, or a VerificationError that says why there is nothing."""
        try:
            future = self._executor.submit(question, *self._told, *args)
        except BrokenProcessPool as error:
            raise VerificationError("its process has died") from error
        if failure := self.ready.exception() or future.exception():  # runtimes raise what they like
            raise VerificationError(self._reason(failure)) from failure
        return future.result()

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, ModuleNotFoundError):
            return f"{error.name} is not installed here: python -m pip install '.[{self.variant.model['format']}]'"
        if isinstance(error, VerificationError):
            return str(error)
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]

    def scores(self, images: NDArray[np.uint8]) -> Scores:
        """Of any number of images, in calls of the size that the variant takes."""
        size = self.variant.batch or MOST_IMAGES
        parts = [self._part(images[start : start + size]) for start in range(0, len(images), size)]
        return {name: np.concatenate([part[name] for part in parts]) for name in OUTPUTS}

    def _part(self, images: NDArray[np.uint8]) -> Scores:
        filled = np.resize(images, (self.variant.batch or len(images), *images.shape[1:]))
        found: Scores = self.ask(worker.scores, filled)
        return {name: values[: len(images)] for name, values in found.items()}

    def close(self) -> None:
        self._executor.shutdown()


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Variables that processes started in the block have before they import anything."""
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
