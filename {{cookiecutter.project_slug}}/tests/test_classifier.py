"""The classifier's arithmetic: loss, metrics, optimizer, schedule, preprocessing."""

from dataclasses import replace

import pytest
import torch
from lightning import Trainer
from sklearn.metrics import accuracy_score, balanced_accuracy_score, f1_score, roc_auc_score

from {{cookiecutter.package_name}}.classifier import ImageClassifier, Normalize
from {{cookiecutter.package_name}}.data.decoding import Decoding
from {{cookiecutter.package_name}}.data.spec import DataSpec, Splits
from {{cookiecutter.package_name}}.optimization import build_schedule, parameter_groups
from {{cookiecutter.package_name}}.tasks import TASKS

SPEC = DataSpec(
    task="multiclass",
    classes=["ant", "bee", "cat", "dog"],
    class_counts=[10, 20, 30, 40],
    decoding=Decoding(image_size=(8, 8)),
    mean=[0.5, 0.4, 0.3],
    std=[0.2, 0.2, 0.2],
    source="digits",
    root=None,
    source_args={},
    splits=Splits(),
)


def batches_with_absent_class(num_classes: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    sizes = (5, 3, 1)
    return [
        (
            torch.rand(size, num_classes, generator=generator).softmax(-1),
            torch.randint(num_classes - 1, (size,), generator=generator),
        )
        for size in sizes
    ]


def test_metrics_equal_scikit_learn_on_uneven_batches_with_an_absent_class() -> None:
    batches = batches_with_absent_class(4)
    metrics = TASKS["multiclass"].metrics(4)
    for probabilities, labels in batches:
        metrics.update(probabilities, labels)
    found = {name: float(value) for name, value in metrics.compute().items()}

    probabilities = torch.cat([p for p, _ in batches])
    labels = torch.cat([y for _, y in batches])
    predicted = probabilities.argmax(-1)
    one_rest = [roc_auc_score(labels == k, probabilities[:, k]) for k in labels.unique()]
    assert found["accuracy"] == pytest.approx(accuracy_score(labels, predicted))
    assert found["f1"] == pytest.approx(f1_score(labels, predicted, average="macro"))
    assert found["auroc"] == pytest.approx(sum(one_rest) / len(one_rest))
    if set(predicted.tolist()) <= set(labels.tolist()):
        assert found["accuracy_macro"] == pytest.approx(balanced_accuracy_score(labels, predicted))


def test_multilabel_metrics_ignore_a_label_that_never_occurs() -> None:
    labels = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]])
    probabilities = torch.tensor([[0.9, 0.2, 0.1], [0.1, 0.8, 0.3], [0.7, 0.9, 0.2], [0.2, 0.1, 0.1]])
    metrics = TASKS["multilabel"].metrics(3)
    metrics.update(probabilities, labels)
    assert float(metrics.compute()["auroc"]) == pytest.approx(1.0)


@pytest.mark.parametrize("task", sorted(TASKS))
def test_loss_takes_logits_and_probabilities_are_made_once(task: str) -> None:
    logits = torch.tensor([[8.0, -8.0]])
    labels = {"multiclass": torch.tensor([0]), "multilabel": torch.tensor([[1.0, 0.0]])}[task]
    assert TASKS[task].loss(logits, labels, None, 0.0) < 1e-3
    assert TASKS[task].probabilities(logits)[0, 0] > 0.99


def test_preprocessing_is_scale_then_normalise_per_channel() -> None:
    images = torch.full((1, 3, 2, 2), 255, dtype=torch.uint8)
    expected = (1 - torch.tensor([0.5, 0.4, 0.3])) / 0.2
    assert torch.allclose(Normalize([0.5, 0.4, 0.3], [0.2] * 3)(images)[0, :, 0, 0], expected)


def test_norms_and_biases_do_not_decay() -> None:
    decayed, kept = parameter_groups(ImageClassifier(SPEC.as_dict()).network, 0.1)
    assert {p.ndim for p in decayed["params"]} == {2, 4} and decayed["weight_decay"] == 0.1
    assert {p.ndim for p in kept["params"]} == {1} and kept["weight_decay"] == 0.0


def test_schedule_rises_then_falls_to_zero() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = build_schedule(optimizer, "cosine", num_steps=100, warmup_share=0.1)
    rates = []
    for _ in range(100):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates.index(max(rates)) == 10 and max(rates) == 1.0
    assert rates[0] < 0.2 and optimizer.param_groups[0]["lr"] == pytest.approx(0.0)


def test_schedule_without_an_end_is_refused() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    with pytest.raises(ValueError, match="max_epochs"):
        build_schedule(optimizer, "cosine", num_steps=float("inf"), warmup_share=0.1)


def test_balanced_class_weights_make_rare_classes_count_more() -> None:
    weights = ImageClassifier(SPEC.as_dict(), class_weights="balanced").class_weights
    assert weights is not None
    assert torch.allclose(weights * torch.tensor(SPEC.class_counts), torch.tensor(25.0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "SimpleCNM"}, "SimpleCNN"),
        ({"network_args": {"widht": 3}}, "width"),
        ({"class_weights": [1.0]}, "4 classes"),
        ({"label_smoothing": 1.5}, "label_smoothing"),
        ({"optimizer": "adam"}, "adamw"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageClassifier(SPEC.as_dict(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(("precision", "clip", "fused"), [("32-true", 1.0, True), ("bf16-mixed", 1.0, False)])
def test_optimizer_is_fused_unless_clipping_forbids_it(precision: str, clip: float, fused: bool) -> None:
    classifier = ImageClassifier(SPEC.as_dict(), schedule="constant")
    trainer = Trainer(accelerator="cpu", precision=precision, gradient_clip_val=clip, logger=False, max_steps=1)  # type: ignore[arg-type]
    trainer.strategy.connect(classifier)
    classifier.trainer = trainer
    assert classifier._fused() is fused


def test_multilabel_classifier_trains_on_float_labels() -> None:
    spec = replace(SPEC, task="multilabel")
    classifier = ImageClassifier(spec.as_dict())
    images = torch.randint(256, (4, 3, 8, 8), dtype=torch.uint8)
    loss = classifier.task.loss(classifier(images), torch.rand(4, 4).round(), None, 0.1)
    loss.backward()
    assert loss.isfinite()
