"""From the bytes of awkward files, `predict` and the small consumer of the bundle get the same answers."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image
from projects import Project, bake_project, consume, draw_image, read_rows

RULES = ("squash", "crop", "pad")
SIZE = ("--data.decoding.image_size", "[24, 40]")
SHORT = ("--trainer.max_epochs", "1", "--trainer.limit_train_batches", "8", "--trainer.limit_val_batches", "1")
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return bake_project(tmp_path_factory.mktemp("deployment"))


@pytest.fixture(scope="module", params=[1, 3], ids=["grey", "colour"])
def checkpoint(request: pytest.FixtureRequest, project: Project) -> Path:
    channels = ("--data.decoding.channels", str(request.param))
    return project.fit(*SHORT, *SIZE, *channels) / "checkpoints" / "last.ckpt"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every kind that programs read in different ways."""
    folder = tmp_path_factory.mktemp("images")
    picture = draw_image(1, 0, size=(50, 31))
    alpha = Image.linear_gradient("L").resize(picture.size)
    rgba = picture.copy()
    rgba.putalpha(alpha)
    rgba.save(folder / "rgba.png")
    Image.merge("LA", (picture.convert("L"), alpha)).save(folder / "la.png")
    palette = picture.quantize(16)
    palette.save(folder / "palette.png", transparency=3)
    palette.save(folder / "palette_of_alphas.png", transparency=bytes(range(0, 256, 16)))
    picture.convert("CMYK").save(folder / "cmyk.jpg", quality=95)
    levels = np.asarray(picture.convert("L")).astype(np.uint16)
    Image.fromarray(levels * 251 + 100).save(folder / "grey16.png")
    Image.fromarray(levels * 257).save(folder / "GREY16.TIF")
    picture.convert("1").save(folder / "bits.png")
    draw_image(2, 1, size=(2000, 20)).save(folder / "wide.png")
    for orientation in (3, 5, 6, 8):
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = orientation
        picture.save(folder / f"rotated{orientation}.jpg", exif=exif, quality=95)
    return folder


def with_rule(checkpoint: Path, rule: str) -> Path:
    """Change how the checkpoint resizes, which its weights need not know."""
    content = torch.load(checkpoint, weights_only=True)
    content["hyper_parameters"]["spec"]["decoding"]["resize"] = rule
    changed = checkpoint.with_name(f"{rule}.ckpt")
    torch.save(content, changed)
    return changed


@pytest.mark.parametrize("rule", RULES)
def test_the_consumer_gets_the_scores_of_predict(
    rule: str, project: Project, checkpoint: Path, images: Path, tmp_path: Path
) -> None:
    changed = with_rule(checkpoint, rule)
    project.run("predict", images, "--ckpt_path", changed, "--output", tmp_path / "predictions.csv")
    project.run("export", "--ckpt_path", changed, "--output", tmp_path / "bundle")
    done = consume(project, tmp_path / "bundle", images)
    assert done.returncode == 0, done.stderr
    (tmp_path / "consumed.csv").write_text(done.stdout, encoding="utf-8")
    ours, theirs = read_rows(tmp_path / "predictions.csv"), read_rows(tmp_path / "consumed.csv")
    assert [row["path"] for row in ours] == [row["path"] for row in theirs] == sorted(map(str, images.iterdir()))
    assert [row["label"] for row in ours] == [row["label"] for row in theirs]
    assert len({row["score"] for row in ours}) == len(ours)
    differences = [abs(float(a["score"]) - float(b["score"])) for a, b in zip(ours, theirs, strict=True)]
    assert max(differences) <= TOLERANCE


@pytest.fixture(scope="module")
def bundle(project: Project) -> Path:
    checkpoint = project.fit(*SHORT) / "checkpoints" / "last.ckpt"
    project.run("export", "--ckpt_path", checkpoint, "--output", "bundle")
    return project.folder / "bundle"


@pytest.mark.parametrize("signed", [False, True], ids=["by accident", "with the hash put right"])
def test_the_consumer_refuses_a_bundle_whose_golden_score_was_altered(
    signed: bool, project: Project, bundle: Path, images: Path
) -> None:
    golden, model = bundle / "golden" / "golden.json", bundle / "model.json"
    originals = {file: file.read_bytes() for file in (golden, model)}
    content, description = (json.loads(text) for text in originals.values())
    content["images"][0]["probabilities"][0] += 0.01
    golden.write_text(json.dumps(content), encoding="utf-8")
    if signed:
        description["files"]["golden/golden.json"] = hashlib.sha256(golden.read_bytes()).hexdigest()
        model.write_text(json.dumps(description), encoding="utf-8")
    done = consume(project, bundle, images)
    for file, original in originals.items():
        file.write_bytes(original)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert ("gets other scores" if signed else "is not the file") in done.stderr
    assert consume(project, bundle, images).returncode == 0
