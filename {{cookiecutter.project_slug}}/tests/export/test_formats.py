"""What holds for every format: it is the model that was trained, and the checks object where it is not."""

import copy
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from {{cookiecutter.package_name}}.export import open_format
from {{cookiecutter.package_name}}.export.golden import check_golden, read_golden
from {{cookiecutter.package_name}}.export.graph import Graph, Options
from {{cookiecutter.package_name}}.export.verification import VerificationError, check_batch_sizes, compare

MISTAKES = {
    "BGR": lambda pixels: pixels.flip(0),
    "height and width swapped": lambda pixels: pixels.mT,
    "mirrored": lambda pixels: pixels.flip(2),
    "scaled twice": lambda pixels: pixels // 255,
}


@pytest.fixture
def images(exported):
    shape = exported.graph.shapes(5)["images"]
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def copied(exported, tmp_path: Path):
    return exported._replace(folder=shutil.copytree(exported.folder, tmp_path / "elsewhere"))


def test_a_copied_bundle_gives_the_scores_of_the_model(copied, images):
    compare("copy", copied.run(images), copied.graph.scores(images), copied.options)


def test_one_altered_weight_is_noticed(copied, images):
    altered = copy.deepcopy(copied.graph)
    bias = [parameter for parameter in altered.network.parameters() if parameter.ndim == 1][-1]
    bias[0] += 1
    open_format(copied.options.format).write(altered, copied.folder, copied.options)
    with pytest.raises(VerificationError, match="differ by up to"):
        check_batch_sizes(copied.run, copied.graph.scores, images, copied.options)


def test_an_altered_golden_score_is_noticed(copied):
    index = copied.folder / "golden" / "golden.json"
    golden = json.loads(index.read_text("utf-8"))
    golden["images"][-1]["logits"][0] += 0.01
    index.write_text(json.dumps(golden), "utf-8")
    with pytest.raises(VerificationError, match="golden image"):
        check_golden(copied.run, copied.folder, copied.graph.spec.decoding, copied.options)


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES)
def test_golden_images_show_that_pixels_are_fed_in_another_way(mistake, exported):
    changes = [
        np.abs(exported.graph.scores(mistake(pixels)[None])["probabilities"] - scores["probabilities"]).max()
        for file, pixels, scores in read_golden(exported.folder)
        if file.stem != "grey16"
    ]
    assert len(changes) == 3 and min(changes) > 1e-3


def test_half_precision_weights_and_training_mode_stay_outside(exported, images, make_classifier, tmp_path: Path):
    classifier = make_classifier().train()
    classifier.network.bfloat16()
    graph = Graph(classifier)
    open_format(exported.options.format).write(graph, tmp_path, exported.options)
    compare("float32", exported._replace(folder=tmp_path).run(images), graph.scores(images), exported.options)
    assert classifier.network.training and next(classifier.network.parameters()).dtype == torch.bfloat16


def test_a_fixed_batch_of_independent_labels(exported, images, make_classifier, tmp_path: Path):
    graph, options = Graph(make_classifier("multilabel")), Options(exported.options.format, batch=3)
    open_format(options.format).write(graph, tmp_path, options)
    found = exported._replace(folder=tmp_path, options=options).run(images[:2])
    compare("fixed batch", found, graph.scores(images[:2]), options)
    np.testing.assert_allclose(found["probabilities"], 1 / (1 + np.exp(-found["logits"])), atol=1e-5)
