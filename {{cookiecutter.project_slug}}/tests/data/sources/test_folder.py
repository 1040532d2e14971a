import pytest

from {{cookiecutter.package_name}}.data.sources import open_source


@pytest.fixture
def tree(tmp_path):
    """Makes empty files, and folders for names that end with a slash, below a root."""

    def make(*names):
        for name in names:
            path = tmp_path / name
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                path.touch()
        return tmp_path

    return make


def labels(source, split="train"):
    samples = source.splits[split]
    return dict(zip(samples.keys, [label for (label,) in samples.labels], strict=True))


def test_class_folders_give_keys_and_labels_in_natural_order(tree):
    root = tree("10/a.png", "2/deep/er/b.JPG", "2/notes.txt", "readme.md", "2/.hidden.png", ".cache/c.png")
    source = open_source("folder", root, {})
    assert source.classes == ["2", "10"]
    assert labels(source) == {"10/a.png": "10", "2/deep/er/b.JPG": "2"}


def test_split_folders_take_their_classes_from_train(tree):
    root = tree("train/a/1.png", "train/b/1.png", "val/b/1.png", "val/a/", "test/c/1.png")
    source = open_source("folder", root, {})
    assert source.classes == ["a", "b"]
    assert labels(source, "val") == {"val/b/1.png": "b"}
    assert labels(source, "test") == {"test/c/1.png": "c"}


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a/1.png", "b/"], r"no images in the class folders \['b'\]"),
        (["train/a/1.png", "train/b/x.txt"], r"train has no images in the class folders \['b'\]"),
        (["1.png"], "has no images"),
        (["train/a/1.png", "valid/a/1.png"], r"has \['valid'\] beside train; expected train, val and test"),
    ],
)
def test_folders_that_would_silently_lose_images_are_refused(names, message, tree):
    with pytest.raises(ValueError, match=message):
        open_source("folder", tree(*names), {})


@pytest.mark.parametrize("link", ["b", "a/2.png"])
def test_links_that_lead_nowhere_are_refused(link, tree):
    root = tree("a/1.png")
    (root / link).symlink_to("/not/mounted")
    with pytest.raises(ValueError, match=f"1 links in .* lead nowhere, for example {root / link}"):
        open_source("folder", root, {})


def test_links_to_folders_are_followed_and_loops_refused(tree):
    root = tree("data/a/1.png", "far/2.png")
    (root / "data/b").symlink_to(root / "far")
    assert labels(open_source("folder", root / "data", {})) == {"a/1.png": "a", "b/2.png": "b"}
    (root / "data/a/loop").symlink_to(root / "data")
    with pytest.raises(ValueError, match="loop links to a folder that it lies in"):
        open_source("folder", root / "data", {})
