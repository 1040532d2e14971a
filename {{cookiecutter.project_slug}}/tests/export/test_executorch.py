"""The batch that ExecuTorch's files take, what they say of themselves, and int8."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from {{cookiecutter.package_name}}.cli import main
from {{cookiecutter.package_name}}.export import obstacle
from {{cookiecutter.package_name}}.export.executorch import FILE, MAX_BATCH, load, write
from {{cookiecutter.package_name}}.export.graph import Graph, Options
from {{cookiecutter.package_name}}.export.verification import VerificationError

pytestmark = pytest.mark.skipif(obstacle("executorch", 8) is not None, reason=str(obstacle("executorch", 8)))


@pytest.fixture(scope="module")
def graph(make_classifier) -> Graph:
    classifier = make_classifier()
    classifier.network.to(memory_format=torch.channels_last)  # as after training
    return Graph(classifier)


@pytest.fixture(scope="module")
def folder(graph: Graph, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("executorch")
    write(graph, folder, Options("executorch"))
    return folder


@pytest.mark.parametrize("number", [1, 16, MAX_BATCH])
def test_batches_up_to_the_bound_give_the_scores_of_the_model(number: int, folder: Path, graph: Graph):
    images = torch.randint(0, 256, graph.shapes(number)["images"], dtype=torch.uint8)
    np.testing.assert_allclose(load(folder)(images.numpy())["logits"], graph.scores(images)["logits"], atol=1e-4)


def test_more_images_than_planned_for_are_refused(folder: Path, graph: Graph):
    with pytest.raises(RuntimeError, match="failed with error"):
        load(folder)(np.zeros(graph.shapes(MAX_BATCH + 1)["images"], np.uint8))


def test_scores_are_not_overwritten_by_the_next_ones(folder: Path, graph: Graph):
    run = load(folder)
    images = np.random.default_rng(0).integers(0, 256, graph.shapes(2)["images"], np.uint8)
    first = run(images)["logits"]
    kept = first.copy()
    assert not np.array_equal(run(255 - images)["logits"], kept)
    assert np.array_equal(first, kept)


def test_constant_methods_say_what_the_file_is(folder: Path, graph: Graph):
    from executorch.runtime import Runtime

    program = Runtime.get().load_program(folder / FILE)
    found = {name: program.load_method(name).execute([])[0] for name in ("classes", "task", "preprocessing")}
    assert json.loads(found["classes"]) == graph.spec.classes and found["task"] == "multiclass"
    assert json.loads(found["preprocessing"]) == graph.preprocessing()


def test_an_int8_bundle_is_small_and_tells_what_that_costs(checkpoint: Path, folder: Path, tmp_path: Path):
    command = ["export", "--format", "executorch", "--quantize", "8", "--ckpt_path", str(checkpoint)]
    assert main([*command, "--output", str(tmp_path / "bundle"), "--num_workers", "0"]) == 0
    model = json.loads((tmp_path / "bundle" / "model.json").read_text("utf-8"))
    assert model["precision"] == "int8" and model["checks"]["test_split"]["largest_difference"]["logits"] > 0
    assert (tmp_path / "bundle" / FILE).stat().st_size < 0.5 * (folder / FILE).stat().st_size


class Spectral(nn.Module):
    """Has an operator that ExecuTorch lacks."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images) + torch.linalg.svdvals(images.mean(1))[:, :1]


def test_what_it_has_no_operator_for_is_refused(make_classifier, tmp_path: Path):
    classifier = make_classifier()
    classifier.network = Spectral(classifier.network)
    with pytest.raises(VerificationError, match=r"^ExecuTorch can't take the network: .*svd.*$"):
        write(Graph(classifier), tmp_path, Options("executorch"))
    assert list(tmp_path.iterdir()) == []
