"""Models that can't be trusted are refused before anything is exported."""

import zipfile
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from {{cookiecutter.package_name}}.export.graph import Graph, Options
from {{cookiecutter.package_name}}.export.verification import VerificationError, check_contents, probe


def batch_statistics(logits: Tensor) -> Tensor:
    """As BatchNorm(track_running_stats=False) does in evaluation mode."""
    return F.batch_norm(logits[..., None].expand(-1, -1, 2), None, None, training=True)[..., 0]


FAULTS = {
    "dropout in evaluation": (lambda logits: F.dropout(logits, 0.5), "second time"),
    "statistics of the batch": (batch_statistics, "depend on its batch"),
    "no batch of one": (nn.BatchNorm1d(3, track_running_stats=False), "fails on a batch of 1 images"),
    "fixed batch": (lambda logits: logits.view(2, -1), "fails on a batch of 9 images"),
    "squeezed": (lambda logits: logits.squeeze(), "logits of shape"),
    "infinite": (lambda logits: logits / 0, "not finite"),
}


def with_fault(classifier, fault) -> Graph:
    graph = Graph(classifier)
    network = graph.network.forward
    graph.network.forward = lambda images: fault(network(images))
    return graph


@pytest.mark.parametrize("fault, message", FAULTS.values(), ids=FAULTS)
def test_a_faulty_model_is_refused(fault, message, make_classifier):
    graph = with_fault(make_classifier(), fault)
    images = torch.randint(0, 256, graph.shapes(9)["images"], dtype=torch.uint8)
    with pytest.raises(VerificationError, match=message):
        probe(graph, images, Options())


class Counter(nn.Module):
    """Its forward passes, in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros(()), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        self.calls += 1
        return images


def test_a_network_that_changes_its_buffers_is_refused(make_classifier):
    classifier = make_classifier()
    classifier.network = nn.Sequential(Counter(), classifier.network)
    graph = Graph(classifier)
    images = torch.randint(0, 256, graph.shapes(9)["images"], dtype=torch.uint8)
    with pytest.raises(VerificationError, match=r"changes its own buffers in evaluation mode: network\.0\.calls"):
        probe(graph, images, Options())


def test_a_fixed_batch_is_no_fault_where_it_was_asked_for(make_classifier):
    graph = with_fault(make_classifier(), lambda logits: logits.view(2, -1))
    images = torch.randint(0, 256, graph.shapes(9)["images"], dtype=torch.uint8)
    assert probe(graph, images, Options(batch=2))["alone_and_in_batch"]["logits"] < 1e-4


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("secret", [bytes(range(256)), b"/home/someone/net.py"], ids=["test image", "path"])
def test_what_must_not_leave_the_machine_is_found(secret: bytes, compressed: bool, tmp_path: Path):
    (tmp_path / "weights").write_bytes(b"..." + secret + b"...")
    if compressed:
        with zipfile.ZipFile(tmp_path / "weights", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("entry", 100 * (b"..." + secret))
    with pytest.raises(VerificationError, match="weights holds"):
        check_contents(tmp_path, torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16), [Path("/home/someone")])
