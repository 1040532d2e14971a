"""Accuracy against latency, with the Pareto front marked."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

from .rows import Row
from .verdict import front, points

INK = "#010203"  # stands for the page's own colour of text
COLOURS: dict[Any, str] = dict.fromkeys(
    ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
)
MARKERS = {"float32": "o", "float16": "^", "int8": "s"}


def _draw(rows: Sequence[Row], size: int, axes: Axes) -> None:
    found = points(rows, size)
    formats = sorted({row.format for row in rows})
    times, accuracies = zip(*(found[name] for name in front(found)), strict=True)
    axes.step(times, accuracies, where="post", color="grey", linestyle="--", linewidth=1, zorder=1)
    axes.scatter(times, accuracies, s=190, facecolors="none", edgecolors="grey", zorder=2)
    for row in (row for row in rows if row.name in found):
        colour, marker = f"C{formats.index(row.format)}", MARKERS.get(row.precision, "D")
        time, accuracy = found[row.name]
        axes.scatter(time, accuracy, color=colour, marker=marker, s=45, alpha=0.85, label=row.name, zorder=3)
    axes.set(xscale="log", title=f"batch {size}", xlabel="milliseconds (median, logarithmic)", ylabel="accuracy")
    axes.set_ylim(top=min(axes.get_ylim()[1], 1.005))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(alpha=0.25)


def _figure(rows: Sequence[Row], sizes: Sequence[int]) -> Figure:
    """One below the other, so that it can be read on a phone."""
    figure = Figure(figsize=(4.8, 3.1 * len(sizes) + 0.12 * len(rows) + 0.4), layout="constrained")
    grid = figure.subplots(len(sizes), squeeze=False).ravel()
    for size, axes in zip(sizes, grid, strict=True):
        _draw(rows, size, axes)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    return figure


def draw(rows: Sequence[Row], file: Path) -> str:
    """Write the picture, and return it as SVG that takes the colour of the text around it; empty without accuracy."""
    sizes = [size for size in rows[0].batches if points(rows, size)]
    if not sizes:
        return ""
    names: dict[Any, Any] = {"text.parse_math": False, "svg.fonttype": "none", "svg.hashsalt": "0"}
    svg = io.StringIO()
    with plt.rc_context(names):
        _figure(rows, sizes).savefig(file, dpi=150)
    with plt.rc_context(names | COLOURS):
        _figure(rows, sizes).savefig(svg, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = svg.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor")
