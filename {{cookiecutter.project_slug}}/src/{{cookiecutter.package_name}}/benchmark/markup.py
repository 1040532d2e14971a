"""Pieces of HTML; all text is escaped here."""

from collections.abc import Iterable
from html import escape
from typing import Any


def items(lines: Iterable[str]) -> str:
    """Of a list."""
    return "".join(f"<li>{escape(line)}</li>" for line in lines)


def terms(facts: dict[str, Any]) -> str:
    """A list of names and what they stand for."""
    return (
        f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>' for name, value in facts.items())}</dl>"
    )


def heads(titles: Iterable[str]) -> str:
    """Headers of columns."""
    return "".join(f'<th scope="col"><span>{escape(title)}</span></th>' for title in titles)


def cell(text: str, *, kind: str = "", share: float | None = None) -> str:
    """A cell; `share` in [0, 1] is how strong its colour is."""
    style = "" if share is None else f' style="--share: {share:.2f}"'
    return f'<td class="{kind}"{style}>{escape(text)}</td>'


def line(title: str, cells: Iterable[str]) -> str:
    """A row: its header and cells that are HTML already."""
    return f'<tr><th scope="row">{escape(title)}</th>{"".join(cells)}</tr>'


def table(caption: str, head: str, lines: Iterable[str], *, kind: str) -> str:
    """In a box of its own, which scrolls where the page is narrow; head and lines are HTML already."""
    label = escape(caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table class="{kind}">'
        f"<caption>{label}</caption><thead>{head}</thead><tbody>{''.join(lines)}</tbody></table></div>"
    )
