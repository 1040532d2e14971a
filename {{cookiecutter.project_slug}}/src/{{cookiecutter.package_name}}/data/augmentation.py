"""Random changes of training images, on the batch and on its device, drawn for every image on its own."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """Random changes of training images.

    Args:
        crop_padding: pixels of black border, at least 0, within which a window of the image's size moves.
        horizontal_flip: mirror half of the images.
    """

    crop_padding: int = 0
    horizontal_flip: bool = False

    def __call__(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Change uint8 [N, C, H, W] into uint8 [N, C, H, W]; the generator is on the images' device."""
        num_images, _, height, width = images.shape
        if pad := self.crop_padding:
            windows = F.pad(images, (pad,) * 4).unfold(2, height, 1).unfold(3, width, 1)  # [N, C, 2p + 1, 2p + 1, H, W]
            top, left = torch.randint(2 * pad + 1, (2, num_images), generator=generator, device=images.device)
            images = windows[torch.arange(num_images, device=images.device), :, top, left]
        if self.horizontal_flip:
            draws = torch.rand(num_images, 1, 1, 1, generator=generator, device=images.device)
            images = torch.where(draws < 0.5, images.flip(3), images)
        return images
