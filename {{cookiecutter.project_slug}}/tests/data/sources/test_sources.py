import pytest

from {{cookiecutter.package_name}}.data.sources import SOURCES, natural_order, open_source


def test_an_unknown_source_lists_the_choices(tmp_path):
    with pytest.raises(ValueError, match=f"source must be one of {', '.join(SOURCES)}, got 'fodler'"):
        open_source("fodler", tmp_path, {})


@pytest.mark.parametrize("name", SOURCES)
def test_unknown_arguments_list_the_choices(name, tmp_path):
    with pytest.raises(ValueError, match=rf"source_args of {name} must be among \[.*got \['colour'\]"):
        open_source(name, tmp_path, {"colour": 1})


@pytest.mark.parametrize("name", SOURCES)
def test_a_missing_root_is_one_sentence_that_names_it(name, tmp_path):
    with pytest.raises((ValueError, FileNotFoundError), match=rf"root {tmp_path / 'nowhere'}"):
        open_source(name, tmp_path / "nowhere", {})


def test_numbers_in_names_are_ordered_by_value():
    assert natural_order({"10", "2", "1", "a", "img10", "img9"}) == ["1", "2", "10", "a", "img9", "img10"]
