import pytest

from {{cookiecutter.package_name}}.data.sources import open_source


@pytest.fixture
def table(tmp_path):
    """Writes a CSV file beside four images."""
    for name in "1234":
        (tmp_path / f"{name}.png").touch()

    def write(text, encoding="utf-8"):
        (tmp_path / "table.csv").write_text(text, encoding=encoding)
        return tmp_path / "table.csv"

    return write


def test_columns_can_be_named_and_labels_split(table):
    file = table("file,tags,note\n1.png,b|ä,x\n2.png,,y\n./3.png, b ,z\n", encoding="utf-8-sig")
    source = open_source("csv", file, {"path_column": "file", "label_column": "tags"})
    assert source.classes == ["b", "ä"]
    assert source.splits["train"].keys == ["1.png", "2.png", "3.png"]
    assert source.splits["train"].labels == [("b", "ä"), (), ("b",)]


def test_a_split_column_separates_and_train_decides_the_classes(table):
    file = table("path,label,split\n1.png,a,train\n2.png,b,val\n3.png,b,train\n4.png,c,test\n")
    source = open_source("csv", file, {})
    assert source.classes == ["a", "b"]
    keys = {name: part.keys for name, part in source.splits.items()}
    assert keys == {"train": ["1.png", "3.png"], "val": ["2.png"], "test": ["4.png"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("path;label\n", r"table.csv has no column 'path'; it has \['path;label'\]"),
        ("path,label\n1.png,a\nx.png,a\n", r"table.csv line 3: path 'x.png' is no file"),
        ("path,label\n1.png\n", r"table.csv line 2: expected 2 columns"),
        ("path,label,split\n1.png,a,dev\n", r"table.csv line 2: split must be one of .* got 'dev'"),
        ("path,label,split\n1.png,a,train\n./1.png,a,test\n", r"table.csv line 3: path './1.png' stands twice"),
    ],
)
def test_mistakes_are_named_with_file_and_line(text, message, table):
    with pytest.raises(ValueError, match=message):
        open_source("csv", table(text), {})


def test_other_encodings_are_refused(table):
    with pytest.raises(ValueError, match=r"table\.csv is no CSV file in UTF-8"):
        open_source("csv", table("path,label\n1.png,ä\n", encoding="latin-1"), {})
