"""The confusion matrix as a table."""

from collections.abc import Iterator
from html import escape

import numpy as np
from numpy.typing import NDArray

from .markup import cell, heads, line, table
from .quality import Quality

MOST_CLASSES, MOST_MISTAKES = 40, 20
ANSWERS = ("present, found", "present, missed", "absent, claimed", "absent, left out")
Counts = NDArray[np.int64]


def confusion_table(quality: Quality | str, classes: list[str]) -> str:
    """Class against answer; of many classes the most frequent mistakes, of several labels the answers to each."""
    if isinstance(quality, str):
        return f"<p>{escape(quality)}</p>"
    counts, caption = quality.confusion, f"{quality.images:,} test images, accuracy {quality.accuracy:.4f}"
    if counts.ndim == 3:
        return table(caption, f"<tr>{heads(['class', *ANSWERS])}</tr>", _labels(counts, classes), kind="counts")
    if len(classes) > MOST_CLASSES:
        head = f"<tr>{heads(['class', 'answer', 'images'])}</tr>"
        return table(f"{caption}, most frequent mistakes", head, _mistakes(counts, classes), kind="counts")
    above = f'<td></td><th scope="colgroup" colspan="{len(classes)}">answer</th>'
    head = f"<tr>{above}</tr><tr>{heads(['class', *classes])}</tr>"
    return table(caption, head, _matrix(counts, classes), kind="counts matrix")


def _matrix(counts: Counts, classes: list[str]) -> Iterator[str]:
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    for truth, name in enumerate(classes):
        kinds = ["right" if answer == truth else "wrong" for answer in range(len(classes))]
        cells = zip(counts[truth].tolist(), kinds, shares[truth].tolist(), strict=True)
        yield line(name, (cell(f"{count:,}", kind=kind, share=share) for count, kind, share in cells))


def _labels(counts: Counts, classes: list[str]) -> Iterator[str]:
    for name, ((silent, claimed), (missed, found)) in zip(classes, counts.tolist(), strict=True):
        yield line(name, [cell(f"{count:,}") for count in (found, missed, claimed, silent)])


def _mistakes(counts: Counts, classes: list[str]) -> Iterator[str]:
    wrong = counts * (1 - np.eye(len(classes), dtype=int))
    for place in np.argsort(-wrong, axis=None, kind="stable")[: min(MOST_MISTAKES, np.count_nonzero(wrong))].tolist():
        truth, answer = divmod(place, len(classes))
        yield line(classes[truth], [cell(classes[answer], kind="words"), cell(f"{counts[truth, answer]:,}")])
