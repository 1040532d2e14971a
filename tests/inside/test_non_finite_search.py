"""A value that is not finite is traced to the module that computes it, and the search changes nothing."""

import copy
from dataclasses import replace

import pytest
import torch
from smoke.classifier import ImageClassifier
from smoke.data.decoding import Decoding
from smoke.data.spec import DataSpec, Splits
from smoke.measure import local_gradients
from smoke.non_finite_search import Finding, first_non_finite, leaving_no_trace
from torch import Tensor, nn

SPEC = DataSpec(
    task="multiclass",
    classes=["ant", "bee", "cat"],
    class_counts=[10, 20, 30],
    decoding=Decoding(image_size=(8, 8)),
    mean=[0.5, 0.4, 0.3],
    std=[0.2, 0.2, 0.2],
    source="digits",
    root=None,
    source_args={},
    splits=Splits(),
)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.Dropout(0.1)
        )
        self.mix = nn.Conv2d(width, width, 1)

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu_(self.mix(self.block(images)) + images)


class Root(nn.Module):
    """sqrt has an infinite slope at 0, which ReLU turns into NaN."""

    def forward(self, images: Tensor) -> Tensor:
        return images + (images - images.max()).clamp(min=0).sqrt()


class Offset(nn.Module):
    """Passes finite gradients on; only that of its own weight is infinite."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, images: Tensor) -> Tensor:
        return images + self.weight.sqrt()


@pytest.fixture
def classifier() -> ImageClassifier:
    """Of a network with residual blocks, operations in place and dropout."""
    torch.manual_seed(0)
    model = ImageClassifier(replace(SPEC).as_dict())
    blocks = [Residual(8) for _ in range(4)]
    model.network = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *blocks, nn.Flatten(), nn.Linear(8 * 64, 3))
    return model


def loss_of(model: ImageClassifier) -> Tensor:
    images = torch.arange(4 * 3 * 64, dtype=torch.int64).remainder(251).to(torch.uint8).reshape(4, 3, 8, 8)
    return model.task.loss(model(images), torch.tensor([0, 1, 2, 0]), None, 0.0)


def find(model: ImageClassifier) -> Finding | None:
    with leaving_no_trace(model):
        return first_non_finite(model, lambda: loss_of(model))


@pytest.mark.parametrize("seed", range(6))
def test_a_nan_in_a_weight_drawn_at_random_is_traced_to_its_module(seed: int, classifier: ImageClassifier) -> None:
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(classifier.network.named_parameters())
    name = sorted(parameters)[int(torch.randint(len(parameters), (), generator=generator))]
    parameters[name].data.view(-1)[0] = torch.nan
    module = name.rpartition(".")[0]
    kind = type(classifier.network.get_submodule(module)).__name__
    assert find(classifier) == Finding(f"{module} ({kind})", "forward")


@pytest.mark.parametrize("place", range(1, 5))
@pytest.mark.parametrize("planted", [Root, Offset])
def test_a_gradient_that_is_not_finite_is_traced_to_its_module(
    planted: type[nn.Module], place: int, classifier: ImageClassifier
) -> None:
    classifier.network.insert(place, planted())  # type: ignore[operator]
    assert loss_of(classifier).isfinite()
    assert find(classifier) == Finding(f"{place} ({planted.__name__})", "backward")


def test_what_code_between_the_modules_computes_is_traced_to_the_module_around_it(
    classifier: ImageClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Residual, "forward", lambda self, images: self.mix(self.block(images)) / 0)
    assert find(classifier) == Finding("1 (Residual)", "forward")


def test_a_loss_that_overflows_by_itself_is_named(classifier: ImageClassifier) -> None:
    found = first_non_finite(classifier, lambda: loss_of(classifier) * 1e38 * 1e38)
    assert found == Finding("the loss", "forward")


def test_a_gradient_that_only_the_scale_makes_infinite_is_found(classifier: ImageClassifier) -> None:
    found = first_non_finite(classifier, lambda: loss_of(classifier), scale=1e38 * 10)
    assert found is not None and found.phase == "backward"


def test_a_compiled_network_is_searched_without_compiling_it_again(classifier: ImageClassifier) -> None:
    compiled: list[torch.fx.GraphModule] = []
    classifier.network.compile(backend=lambda graph, inputs: compiled.append(graph) or graph.forward)
    loss_of(classifier)
    num_compiled = len(compiled)
    classifier.network[4].mix.bias.data[0] = torch.nan  # type: ignore[union-attr]
    assert find(classifier) == Finding("4.mix (Conv2d)", "forward")
    loss_of(classifier)
    assert len(compiled) == num_compiled > 0


def test_a_search_leaves_no_trace(classifier: ImageClassifier) -> None:
    loss_of(classifier).backward()
    before, random = copy.deepcopy(classifier.state_dict()), torch.get_rng_state()
    gradients_before = [parameter.grad.clone() for parameter in classifier.parameters() if parameter.grad is not None]
    assert find(classifier) is None
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[key], value) for key, value in classifier.state_dict().items())
    gradients_after = [parameter.grad for parameter in classifier.parameters() if parameter.grad is not None]
    assert all(torch.equal(a, b) for a, b in zip(gradients_before, gradients_after, strict=True))
    assert not any(module._forward_hooks for module in classifier.modules())
    assert classifier.log.__func__ is ImageClassifier.log


def test_gradients_are_those_of_backward(classifier: ImageClassifier) -> None:
    torch.manual_seed(1)
    loss_of(classifier).backward()
    expected = [parameter.grad for parameter in classifier.parameters()]
    torch.manual_seed(1)
    found = local_gradients(loss_of(classifier), classifier)
    assert all(torch.equal(a, b) for a, b in zip(found.values(), expected, strict=True))
