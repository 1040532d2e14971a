"""Whole channels are removed from residual and depthwise networks, and what is left can be rebuilt."""

import copy

import pytest
import torch
from smoke.classifier import ImageClassifier
from smoke.data.decoding import Decoding
from smoke.data.spec import DataSpec, Splits
from smoke.measure import head_of
from smoke.networks import NETWORKS
from smoke.sparsity import remove_channels, removed_share
from torch import nn

SPEC = DataSpec(
    task="multiclass",
    classes=["ant", "bee", "cat"],
    class_counts=[10, 20, 30],
    decoding=Decoding(image_size=(32, 32)),
    mean=[0.5, 0.4, 0.3],
    std=[0.2, 0.2, 0.2],
    source="digits",
    root=None,
    source_args={},
    splits=Splits(),
)
IMAGES = torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def classifier(network: str) -> ImageClassifier:
    torch.manual_seed(0)
    built = ImageClassifier(SPEC.as_dict(), network=network)
    for module in built.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return built.eval()


@pytest.mark.parametrize("name", ["SimpleCNN", "resnet18", "mobilenet_v3_small"])
def test_half_of_the_channels_go_and_a_fresh_classifier_loads_the_rest(name: str) -> None:
    pruned = classifier(name)
    dense = copy.deepcopy(pruned.network)
    remove_channels(pruned, share=0.5, round_to=8)
    head = "fc" if name == "resnet18" else head_of(pruned)
    assert removed_share(dense, pruned.network, head=head) == pytest.approx(0.5, abs=0.05)
    *widths, head = [len(m.weight) for m in pruned.network.modules() if isinstance(m, (nn.Conv2d, nn.Linear))]
    assert {width % 8 for width in widths} == {0} and head == 3
    assert not pruned.network.training
    fresh = classifier(name)
    fresh.on_load_checkpoint({"state_dict": pruned.state_dict()})
    fresh.load_state_dict(pruned.state_dict())
    assert torch.equal(fresh(IMAGES), pruned(IMAGES))


def test_the_channels_of_least_norm_go() -> None:
    one = classifier("SimpleCNN")
    first = one.network.features[0][0]
    weak = torch.arange(16) % 2 == 0
    with torch.no_grad():
        first.weight[weak] *= 1e-3
        kept = first.weight[~weak].clone()
    remove_channels(one.train(), share=0.5, round_to=8)
    assert torch.equal(first.weight, kept)
    assert all(module.training for module in one.modules())


def test_a_second_round_removes_from_what_is_left() -> None:
    one = classifier("SimpleCNN")
    widths = []
    for _ in range(2):
        remove_channels(one, share=0.5, round_to=2)
        widths.append([len(one.network.features[block][0].weight) for block in (0, 1)])
    assert widths == [[8, 16], [4, 8]]


def test_a_share_that_rounding_misses_is_refused_with_the_nearest() -> None:
    one = classifier("SimpleCNN")
    with pytest.raises(ValueError, match=r"0\.15 can't be reached: with round_to 16 the nearest is 0\.33"):
        remove_channels(one, share=0.15, round_to=16)
    remove_channels(one, share=1 / 3, round_to=16)


class Stubborn(nn.Sequential):
    def __init__(self, num_classes: int, channels: int, image_size: tuple[int, int]) -> None:
        super().__init__(nn.Conv2d(channels, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Unflatten(1, (4, 4)), nn.Flatten())
        self.head = nn.Linear(16, num_classes)


def test_a_network_that_fixes_its_channels_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NETWORKS, "Stubborn", Stubborn)
    with pytest.raises(ValueError, match=r"channels of Stubborn can't be removed .*take kind: unstructured"):
        remove_channels(classifier("Stubborn"), share=0.5, round_to=8)


def test_a_network_that_its_hyperparameters_do_not_rebuild_is_found() -> None:
    one = classifier("SimpleCNN")
    one.network.features[0][2] = nn.Tanh()
    with pytest.raises(RuntimeError, match="can't be rebuilt"):
        remove_channels(one, share=0.5, round_to=8)
