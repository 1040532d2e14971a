"""The compiled code checks nothing: what is refused before, what the package holds, what is said without a compiler."""

import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch._inductor import aoti_load_package, config
from torch._inductor.runtime.cache_dir_utils import cache_dir

from {{cookiecutter.package_name}}.export import obstacle
from {{cookiecutter.package_name}}.export.aotinductor import FILE, MAX_BATCH, load, write
from {{cookiecutter.package_name}}.export.graph import Graph, Options

WRONG = {
    "float32": lambda images: images.astype(np.float32),
    "one image without a batch": lambda images: images[0],
    "another size": lambda images: images[..., 1:],
    "channels last": lambda images: images.transpose(0, 2, 3, 1),
    "none": lambda images: images[:0],
    "too many": lambda images: np.resize(images, (MAX_BATCH + 1, *images.shape[1:])),
}


@pytest.fixture(scope="module")
def graph(make_classifier) -> Graph:
    return Graph(make_classifier())


@pytest.fixture(scope="module")
def folder(graph: Graph, tmp_path_factory) -> Path:
    if reason := obstacle("aotinductor", 32):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("aotinductor")
    write(graph, folder, Options("aotinductor"))
    return folder


@pytest.fixture
def images(graph: Graph) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, graph.shapes(4)["images"], np.uint8)


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_what_it_would_take_for_something_else_is_refused(change, folder: Path, images: np.ndarray):
    with pytest.raises(ValueError, match=rf"images must be uint8 \[1 to {MAX_BATCH}, .*, got "):
        load(folder)(change(images))


def test_images_in_another_order_in_memory_are_put_in_order(folder: Path, graph: Graph, images: np.ndarray):
    strided = np.asfortranarray(images)[::-1]
    found, expected = load(folder)(strided), graph.scores(torch.from_numpy(strided.copy()))
    np.testing.assert_allclose(found["logits"], expected["logits"], atol=1e-4)


def test_the_package_holds_classes_and_task_but_neither_sources_nor_paths(folder: Path, graph: Graph):
    found = aoti_load_package(str(folder / FILE)).get_metadata()
    assert json.loads(found["classes"]) == graph.spec.classes and found["task"] == "multiclass"
    with zipfile.ZipFile(folder / FILE) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    assert not any(name.endswith(".cpp") for name in contents)
    places = [cache_dir().encode(), str(Path(torch.__file__).parent).encode()]
    assert not [name for name, content in contents.items() if any(place in content for place in places)]


def test_without_a_compiler_it_says_so_before_anything_is_compiled():
    with config.patch({"cpp.cxx": ("/nowhere/g++",)}):
        assert "C++ compiler" in obstacle("aotinductor", 32)
