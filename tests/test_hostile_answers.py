"""Whatever a person types reads back as it was typed, or is refused and leaves nothing."""

import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from baking import PROJECT, bake, choices, template_files
from conftest import Bake
from cookiecutter.exceptions import FailedHookException, UndefinedVariableInTemplate
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError

REFUSALS = (FailedHookException, UndefinedVariableInTemplate, TemplateError)
TYPED = ("project_name", "description", "author_name")
HOSTILE = {
    "quotes": """sees "UPC" labels, 'single', `back` and \"\"\"three\"\"\" of them""",
    "backslashes": r"C:\new\test \u0041 \x41 \\server\ ",
    "trailing backslash": "ends in \\",
    "emoji": "classifies 😀 and 👩‍👩‍👧 and 🏴‍☠️",
    "Chinese": "图像分类 — 训练、导出",
    "right to left": "تصنيف الصور",
    "accents": "Zoë Ångström-Nuñez",
    "300 characters": "long " * 59 + "text!",
    "hash": "# not a comment # nor here",
    "percent": "100 %s %(name)s 5% #% off",
    "dollar": "$HOME ${HOME} $(id) ${{ secrets.TOKEN }}".replace("{{", "{").replace("}}", "}"),
    "YAML": "- a: [b, {c: d}] & *e !f | > % @ yes: no",
    "a YAML number": "1e3",
    "a YAML nothing": "null",
    "leading dash": "--help",
    "leading percent": "%YAML 1.2",
    "TOML": 'a = "b" # [table]',
    "HTML": "<script>alert('x')</script> &amp;",
    "spaces": "  around  ",
    "braces": "} }} %} { a } {a: {b}}",
}
JINJA = [
    "{{ 7 * 7 }}",
    "{{ cookiecutter }}",
    "{{ unknown }}",
    "{{ '{{' }} x }}",
    "{% if",
    "{% raw %}{{ x }}{% endraw %}",
    "{# gone #}here",
    "{#",
    "#% if true",
    "{{ '\\n' }}",
    "{{ '\"' }}",
]


def written(project: Path) -> dict[str, Any]:
    """What the project's files say of the typed answers."""
    metadata = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (project / "README.md").read_text(encoding="utf-8").split("\n")
    heading = readme[0].removeprefix("# ")
    return {
        "project_name": heading,
        "description": {metadata["description"], readme[2]},
        "author_name": metadata["authors"][0]["name"],
        "license": (project / "LICENSE").read_text(encoding="utf-8"),
    }


def check_reads_back(project: Path, text: str) -> None:
    found = written(project)
    assert found["project_name"] == text
    assert found["description"] == {text}
    assert found["author_name"] == text
    assert f" {text}" in found["license"]


def typed(text: str) -> dict[str, str]:
    return dict.fromkeys(TYPED, text) | {"project_slug": "hostile"}


def try_to_bake(template: Path, text: str, output: Path) -> Path | None:
    """Return the project, or nothing where the answers were refused."""
    try:
        return bake(template, output, typed(text))
    except REFUSALS:
        assert list(output.iterdir()) == []
        return None


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_reads_back(text: str, baked: Bake) -> None:
    check_reads_back(baked(**typed(text)), text)


@pytest.mark.parametrize("license", choices()["license"])
def test_each_licence_names_its_author(license: str, baked: Bake) -> None:
    project = baked(author_name='Zoë "Z" \\ 图', license=license)
    assert ' Zoë "Z" \\ 图' in written(project)["license"]


@pytest.mark.parametrize("text", JINJA)
def test_jinja_in_an_answer_never_breaks_a_project(text: str, template: Path, tmp_path: Path) -> None:
    project = try_to_bake(template, text, tmp_path)
    if project:
        assert len(written(project)["description"]) == 1


@settings(max_examples=40, deadline=None)
@given(text=st.text(st.characters(exclude_categories=()), max_size=60))
def test_any_text_reads_back_or_is_refused(text: str, template: Path) -> None:
    with TemporaryDirectory() as output:
        project = try_to_bake(template, text, Path(output))
        if project and "{" not in text and "#%" not in text:
            check_reads_back(project, text)


@settings(max_examples=40, deadline=None)
@given(text=st.text(st.characters(categories=["L", "M", "N", "P", "S"], exclude_characters="{#"), min_size=1))
def test_printable_text_is_never_refused(text: str, template: Path) -> None:
    with TemporaryDirectory() as output:
        check_reads_back(bake(template, Path(output), typed(text)), text)


def test_typed_text_stands_in_no_other_file() -> None:
    """A file that comes to carry an answer needs its own line in `written`."""
    template = Path(__file__).parents[1]
    names = [name for name in template_files() if name.startswith((PROJECT, "templates/"))]
    texts = {name: (template / name).read_text(encoding="utf-8") for name in names if not name.endswith(".py")}
    carriers = {name for name, text in texts.items() if any(f"{answer}}}}}" in text for answer in TYPED)}
    licences = {f"templates/licenses/{name}" for name in choices()["license"]}
    assert carriers == licences | {f"{PROJECT}pyproject.toml", f"{PROJECT}README.md"}
