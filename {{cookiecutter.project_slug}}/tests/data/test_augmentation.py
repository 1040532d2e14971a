import pytest
import torch

from {{cookiecutter.package_name}}.data.augmentation import Augmentation

# 64 copies of one image without symmetry: where they differ afterwards, something was drawn.
IMAGES = torch.arange(1, 193, dtype=torch.uint8).view(1, 3, 8, 8).expand(64, -1, -1, -1)


def augmented(augmentation, seed=0):
    return augmentation(IMAGES, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("augmentation", "variants"), [(Augmentation(2), 25), (Augmentation(0, True), 2)])
def test_every_image_of_a_batch_is_drawn_for_itself(augmentation, variants):
    images = augmented(augmentation)
    assert (images.shape, images.dtype) == (IMAGES.shape, torch.uint8)
    assert variants // 2 < len(images.unique(dim=0)) <= variants


def test_a_crop_is_a_window_of_the_image_with_a_black_border():
    bordered = torch.nn.functional.pad(IMAGES[0], (2, 2, 2, 2))
    windows = torch.stack([bordered[:, y : y + 8, x : x + 8] for y in range(5) for x in range(5)])
    assert all((windows == image).all((1, 2, 3)).any() for image in augmented(Augmentation(2)))


def test_the_seed_decides_the_draws_and_nothing_asked_changes_nothing():
    augmentation = Augmentation(2, True)
    assert torch.equal(augmented(augmentation, 1), augmented(augmentation, 1))
    assert not torch.equal(augmented(augmentation, 1), augmented(augmentation, 2))
    assert augmented(Augmentation()) is IMAGES
