"""The report: one page that needs nothing else, for phones and screens, light and dark."""

import base64
import io
from collections.abc import Iterator
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..export.golden import read_golden
from .comparison import Comparison
from .confusion import confusion_table
from .markup import cell, heads, items, line, table, terms
from .rows import Row, columns
from .variants import Variant
from .verdict import BAD, GOOD, front, points

NUM_SHOWN = 3


def write_page(file: Path, compared: Comparison, picture: str) -> None:
    """Fill in page.html; `picture` is SVG."""
    template = Template(Path(__file__).with_name("page.html").read_text("utf-8"))
    bundle, versions = compared.bundle, _listed(compared.machine["versions"])
    parts = {
        "checkpoint": escape(bundle.model["checkpoint"]["name"]),
        "reference": escape(compared.reference.name),
        "findings": items(compared.findings()),
        "table": _numbers(compared),
        "picture": _picture(compared, picture),
        "card": _card(bundle),
        "confusion": confusion_table(compared.quality, bundle.model["classes"]),
        "golden": "".join(_golden(bundle)),
        "notes": items(compared.notes()),
        "measured": terms(compared.settings | compared.machine | {"versions": versions}),
    }
    file.write_text(template.substitute(parts), "utf-8")


def _numbers(compared: Comparison) -> str:
    groups = columns(compared.batches)
    shown = [column for group in groups.values() for column in group]
    above = [f'<th scope="colgroup" colspan="{len(group)}">{title}</th>' for title, group in groups.items()]
    head = f"<tr><td></td><td></td>{''.join(above)}</tr>"
    head += f"<tr>{heads(['variant', 'verdict', *(column.title for column in shown)])}</tr>"
    lines = (line(row.name, [_verdict(row), *(cell(column.cell(row)) for column in shown)]) for row in compared.rows)
    settings, machine = compared.settings, compared.machine
    caption = f"Threads: {settings['threads']}. Rounds: {settings['rounds']}. CPU: {machine['cpu']}."
    return table(caption, head, lines, kind="numbers")


def _verdict(row: Row) -> str:
    """What to do comes first."""
    kind = next((kind for end, kind in ((GOOD, "good"), (BAD, "bad")) if row.verdict.endswith(end)), "plain")
    facts, _, advice = row.verdict.rpartition(": ")
    remark = f"<small>{escape(row.remark)}</small>" if row.remark else ""
    return f'<td class="words"><strong class="{kind}">{escape(advice)}</strong> {escape(facts)} {remark}</td>'


def _picture(compared: Comparison, picture: str) -> str:
    best = (f"at batch {size}: {', '.join(front(points(compared.rows, size)))}" for size in compared.batches)
    caption = escape(f"Ringed, on the dashed line, are those that no other one beats in both, {'; '.join(best)}.")
    label = "Accuracy against latency of each variant; the table has the numbers."
    figure = f'<figure><div role="img" aria-label="{label}">{picture}</div><figcaption>{caption}</figcaption></figure>'
    return figure if picture else "<p>Not drawn, since accuracies or times are missing.</p>"


def _card(bundle: Variant) -> str:
    """The bundle's card, and what a reader looks for in model.json."""
    title, *blocks = (bundle.folder / "README.md").read_text("utf-8").strip().split("\n\n")
    model = bundle.model
    facts = {"task": model["task"], "classes": ", ".join(model["classes"])}
    facts |= {name: _listed(model[name]) for name in ("input", "preprocessing", "checkpoint", "versions")}
    text = "".join(f"<p>{escape(block)}</p>" for block in blocks)
    return f"<h3>{escape(title.removeprefix('# '))}</h3>{text}{terms(facts)}"


def _listed(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_short(value)}" for name, value in values.items())


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_short, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _golden(bundle: Variant) -> Iterator[str]:
    """Each golden image as the model takes it, with its highest scores."""
    for file, pixels, scores in read_golden(bundle.folder):
        probabilities = scores["probabilities"][0]
        best = probabilities.argsort()[::-1][:NUM_SHOWN].tolist()
        shown = items(f"{bundle.model['classes'][index]}: {probabilities[index]:.4f}" for index in best)
        image = f'<img src="{_png(pixels.numpy())}" alt="{escape(file.name)} as the model takes it">'
        yield f"<figure>{image}<figcaption>{escape(file.name)}<ol>{shown}</ol></figcaption></figure>"


def _png(pixels: NDArray[np.uint8]) -> str:
    """A data URI of uint8 [C, H, W]; of other than 1 and 3 channels the first."""
    content = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0) if len(pixels) == 3 else pixels[0]).save(content, "PNG")
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
