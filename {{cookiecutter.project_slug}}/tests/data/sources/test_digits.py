from {{cookiecutter.package_name}}.data.sources import open_source


def test_digits_are_1797_images_of_ten_classes_over_the_whole_range():
    source = open_source("digits", None, {})
    train = source.splits["train"]
    assert source.classes == [str(digit) for digit in range(10)]
    assert len(train.keys) == len(set(train.keys)) == len(train.images) == len(train.labels) == 1797
    assert (train.images.min(), train.images.max(), train.images.dtype) == (0, 255, "uint8")
