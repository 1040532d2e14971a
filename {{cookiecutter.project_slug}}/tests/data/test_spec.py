import io

import pytest
import torch

from {{cookiecutter.package_name}}.data.decoding import Decoding
from {{cookiecutter.package_name}}.data.spec import DataSpec, Splits


def test_a_hash_places_images_by_shares_and_salt():
    keys = [f"cat/{number}.png" for number in range(2_000)]
    places = [Splits(val_share=0.2, test_share=0.1).place(key) for key in keys]
    assert places.count("val") == pytest.approx(400, abs=60)
    assert places.count("test") == pytest.approx(200, abs=45)
    assert places != [Splits(val_share=0.2, test_share=0.1, salt="other").place(key) for key in keys]
    # Fixed for ever: checkpoints know their test images by this alone.
    assert [Splits().place(key) for key in ("a", "b", "d")] == ["train", "val", "test"]


def test_more_images_move_no_earlier_one(noise):
    few, many = (Splits().complete({"train": noise("train", count)}) for count in (100, 300))
    assert all(set(few[name].keys) < set(many[name].keys) for name in ("train", "val", "test"))


def test_only_the_splits_that_are_missing_are_cut(noise):
    given = {"train": noise("train"), "test": noise("test")}
    parts = Splits(val_share=0.5, test_share=0.4).complete(given)
    assert parts["test"] is given["test"]
    assert sorted(parts["train"].keys + parts["val"].keys) == sorted(given["train"].keys)


def test_impossible_shares_are_refused():
    with pytest.raises(ValueError, match="sum below 1"):
        Splits(val_share=0.5, test_share=0.5)


def test_a_spec_survives_a_checkpoint_of_plain_values():
    decoding, splits = Decoding(image_size=(8, 16), channels=1), Splits(salt="x")
    options = {"source": "csv", "root": "/a.csv", "source_args": {"path_column": "file"}, "skipped": ["a.png"]}
    spec = DataSpec("multiclass", ["ä", "b"], [1, 2], decoding, [0.1], [1 / 3], splits=splits, **options)
    file = io.BytesIO()
    torch.save(spec.as_dict(), file)
    file.seek(0)
    assert DataSpec.from_dict(torch.load(file, weights_only=True)) == spec
