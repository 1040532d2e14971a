"""SimpleCNN, the default network."""

from torch import Tensor, nn

from . import register


def _block(in_channels: int, out_channels: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
    )


@register
class SimpleCNN(nn.Module):
    """Two blocks of convolution 3x3, batch norm, ReLU and max pooling, and a linear head.

    Args:
        num_classes: number of logits.
        channels: channels of the images.
        image_size: height and width of the images in pixels, at least 4.
        width: channels after the first block; the second has twice as many.
    """

    def __init__(self, num_classes: int, channels: int, image_size: tuple[int, int], width: int = 16) -> None:
        super().__init__()
        if min(image_size) < 4:
            raise ValueError(f"image_size must be at least 4x4 for SimpleCNN, got {image_size[0]}x{image_size[1]}.")
        self.features = nn.Sequential(_block(channels, width), _block(width, 2 * width))
        self.head = nn.Linear(2 * width * (image_size[0] // 4) * (image_size[1] // 4), num_classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images).flatten(1))
        return logits
