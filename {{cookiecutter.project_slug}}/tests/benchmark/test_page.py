"""The page shows names as they are, and asks for nothing outside of itself."""

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch

from {{cookiecutter.package_name}}.benchmark.comparison import Comparison
from {{cookiecutter.package_name}}.benchmark.confusion import confusion_table
from {{cookiecutter.package_name}}.benchmark.page import write_page
from {{cookiecutter.package_name}}.benchmark.picture import draw
from {{cookiecutter.package_name}}.benchmark.quality import Quality
from {{cookiecutter.package_name}}.benchmark.rows import Row, Timing
from {{cookiecutter.package_name}}.benchmark.variants import Variant
from {{cookiecutter.package_name}}.tasks import TASKS

HOSTILE = "<script>alert('$1 ${2} \\frac')</script>\"&amp;"


class Reader(HTMLParser):
    """Counts tags, and keeps the text and all that is referred to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text, self.links, self.tags = "", set[str](), set[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        self.tags.add(tag)
        self.links |= {value for name, value in attrs if name in ("src", "href", "xlink:href")}
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list) -> None:
        self.links |= {value for name, value in attrs if name in ("src", "href", "xlink:href")}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def page(bundle: Path, alter, tmp_path: Path) -> Reader:
    """Of one variant with a hostile name and hostile classes."""
    folder = bundle.rename(tmp_path / HOSTILE.replace("/", ""))
    alter(folder, "model.json", classes=[HOSTILE, "b", "c"])
    row = Row(HOSTILE, str(folder), {1: Timing(1.0, 2.0, 0.5, 1000.0, 7)}, 1.0, "onnx", HOSTILE, accuracy=0.5)
    row.miss(HOSTILE, *row.unmeasured())
    settings = {"threads": 1, "rounds": 3, "max_accuracy_drop": 0.02}
    machine = {"cpu": HOSTILE, "versions": {"torch": "2"}}
    compared = Comparison([Variant(folder, HOSTILE)], [row], Quality(6, 0.5, np.eye(3, dtype=int)), settings, machine)
    write_page(tmp_path / "report.html", compared, draw([row], tmp_path / "pareto.png"))
    return Reader((tmp_path / "report.html").read_text("utf-8"))


def test_hostile_names_are_text(page: Reader):
    assert "script" not in page.tags and page.open == []
    # classes in matrix, golden scores and card; the variant in the table and the picture; the reason; the CPU
    assert page.text.count(HOSTILE) > 8
    assert "rounds" in page.text and "&amp;amp;" not in page.text


def test_nothing_outside_is_asked_for(page: Reader):
    assert {"svg", "img", "table", "caption"} <= page.tags
    assert page.links and all(link.startswith(("data:image/png;base64,", "#")) for link in page.links)


def test_several_labels_are_counted_for_each_class():
    counts, truth = TASKS["multilabel"].confusion(2), torch.tensor([[1, 0], [1, 0], [1, 1], [0, 0]])
    counts.update(torch.tensor([[1, 1], [0, 1], [1, 1], [0, 0]]), truth)
    found = Reader(confusion_table(Quality(4, 0.6, counts.compute().numpy()), ["sky", "sea"]))
    assert found.text.endswith("present, foundpresent, missedabsent, claimedabsent, left outsky2101sea1021")


def test_of_many_classes_the_most_frequent_mistakes_are_shown():
    counts = 9 * np.eye(41, dtype=int)
    counts[3, 7], counts[40, 0] = 5, 8
    found = Reader(confusion_table(Quality(100, 0.9, counts), [f"c{number}" for number in range(41)]))
    assert found.text.endswith("classanswerimagesc40c08c3c75")


def test_without_the_test_split_the_reason_is_shown():
    assert confusion_table("no <data>", []) == "<p>no &lt;data&gt;</p>"
