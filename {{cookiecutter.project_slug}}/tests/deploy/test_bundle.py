"""deploy/python/bundle.py refuses a bundle that was altered, and a consumer that decodes or computes in another way."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def sign(bundle: Path, name: str) -> None:
    """Put the hash of a file right."""
    model = json.loads((bundle / "model.json").read_text("utf-8"))
    model["files"][name] = hashlib.sha256((bundle / name).read_bytes()).hexdigest()
    (bundle / "model.json").write_text(json.dumps(model), "utf-8")


@pytest.mark.parametrize("name", ["model.onnx", "labels.txt", "README.md", "golden/golden.json", "golden/rgb.png"])
def test_one_other_byte_is_refused(name, make_bundle, consumer) -> None:
    _, bundle = make_bundle()
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"^{name} is not the file that was exported$"):
        consumer("bundle").Bundle(bundle)


def test_other_classes_in_model_json_are_refused(make_bundle, consumer) -> None:
    _, bundle = make_bundle()
    model = json.loads((bundle / "model.json").read_text("utf-8"))
    (bundle / "model.json").write_text(json.dumps(model | {"classes": model["classes"][::-1]}), "utf-8")
    with pytest.raises(ValueError, match="other classes than labels"):
        consumer("bundle").Bundle(bundle)


EDITED = {
    "no file is listed": ({"files": {}}, "no hash of golden/golden.json, labels.txt, model.onnx"),
    "files in a list": ({"files": []}, "no bundle as export writes them"),
    "no shape": ({"input": "images"}, "no bundle as export writes them"),
}


@pytest.mark.parametrize(("values", "message"), EDITED.values(), ids=EDITED)
def test_an_edited_model_json_is_refused(values, message, make_bundle, consumer) -> None:
    _, bundle = make_bundle()
    model = json.loads((bundle / "model.json").read_text("utf-8"))
    (bundle / "model.json").write_text(json.dumps(model | values), "utf-8")
    with pytest.raises(ValueError, match=message):
        consumer("bundle").Bundle(bundle)


def test_without_golden_images_nothing_is_trusted(make_bundle, consumer) -> None:
    _, bundle = make_bundle()
    (bundle / "golden" / "golden.json").write_text('{"images": []}', "utf-8")
    sign(bundle, "golden/golden.json")
    with pytest.raises(ValueError, match="lists no image"):
        consumer("bundle").Bundle(bundle)


@pytest.mark.parametrize("output", ["logits", "probabilities"])
def test_golden_scores_are_compared(output, make_bundle, consumer) -> None:
    _, bundle = make_bundle()
    golden = json.loads((bundle / "golden" / "golden.json").read_text("utf-8"))
    golden["images"][-1][output][0] += 0.001
    (bundle / "golden" / "golden.json").write_text(json.dumps(golden), "utf-8")
    sign(bundle, "golden/golden.json")
    with pytest.raises(ValueError, match="gets other scores: this machine computes in another way"):
        consumer("bundle").Bundle(bundle)


WRONG = {
    "BGR": lambda image: image[::-1],
    "height and width swapped": lambda image: image.transpose(0, 2, 1),
    "scaled to 1": lambda image: image // 255,
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize(("step", "way"), [("decode", "decodes files"), ("_run", "computes")])
def test_a_wrong_layout_is_refused(step, way, wrong, make_bundle, consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    _, bundle = make_bundle()
    right = getattr(consumer("bundle").Bundle, step)
    steps = {
        "decode": lambda self, file: wrong(right(self, file)),
        "_run": lambda self, images, size: right(self, np.stack([*map(wrong, images)]), size),
    }
    monkeypatch.setattr(consumer("bundle").Bundle, step, steps[step])
    with pytest.raises(ValueError, match=f"this machine {way} in another way"):
        consumer("bundle").Bundle(bundle)


def test_a_fixed_batch_is_filled_up(make_bundle, consumer) -> None:
    loaded = consumer("bundle").Bundle(make_bundle()[1])
    images = np.random.default_rng(0).integers(0, 256, (5, 3, *loaded.policy["image_size"]), np.uint8)
    expected = loaded.scores(images)
    loaded.model["input"]["shape"][0] = 2
    for name, scores in loaded.scores(images).items():
        np.testing.assert_allclose(scores, expected[name], atol=1e-5)


def test_file_formats_that_the_project_does_not_read_stay_shut(make_bundle, consumer, tmp_path: Path) -> None:
    loaded = consumer("bundle").Bundle(make_bundle()[1])
    Image.new("RGB", (8, 8)).save(tmp_path / "image.png", format="EPS")
    with pytest.raises(ValueError, match="is not one of AVIF, BMP"):
        loaded.decode(tmp_path / "image.png")
