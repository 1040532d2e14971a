"""Layers that int8 spoils are found and taken back to float, one after another, and no more of them than needed."""

import ctypes
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
import torch
from smoke.export import openvino
from smoke.export.graph import Graph, Options
from smoke.export.int8 import CPU, TENSORRT, to_accepted_int8
from smoke.export.judge import Judge
from smoke.export.onnx import run_file, write_float
from smoke.export.verification import VerificationError
from torch import Tensor, nn

NUM_BLOCKS = 5
FACTOR = 1e4  # the range of one channel over that of the others


class Chain(nn.Module):
    """Convolutions in a row, then a head."""

    def __init__(self) -> None:
        super().__init__()
        widths = [3, *[16] * NUM_BLOCKS]
        self.convolutions = nn.ModuleList(nn.Conv2d(before, after, 3, padding=1) for before, after in pairwise(widths))
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        for convolution in self.convolutions:
            images = convolution(images).relu()
        logits: Tensor = self.head(images.amax((2, 3)))
        return logits


class Stack(ctypes.Structure):
    """What a thread's signals are handled on, if not on its own."""

    _fields_ = (("start", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t))


class Images(list[tuple[Tensor, Tensor]]):
    """Noise, blurred to a different degree, with the answers of the network itself."""

    def split(self, name: str) -> "Images":
        return self

    def val_dataloader(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self), 64):
            images, labels = zip(*self[start : start + 64], strict=True)
            yield torch.stack(images), torch.stack(labels)


def plant_outlier(network: Chain, block: int) -> None:
    """Make one channel's values huge, and what reads them small: the network stays the same function."""
    with torch.no_grad():
        writing, reading = network.convolutions[block], network.convolutions[block + 1]
        writing.weight[0] *= FACTOR
        writing.bias[0] *= FACTOR
        reading.weight[:, 0] /= FACTOR


@pytest.fixture
def graph() -> Graph:
    torch.manual_seed(0)
    normalize = nn.Module()
    normalize.forward = lambda images: images.float() / 255 - 0.5  # type: ignore[method-assign]
    decoding = SimpleNamespace(channels=3, image_size=(16, 16))
    spec = SimpleNamespace(decoding=decoding, task="multiclass", classes=list("abcdefghij"))
    network = Chain()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
    classifier: Any = SimpleNamespace(spec=spec, normalize=normalize, network=network)
    classifier.probabilities = lambda logits: logits.softmax(1)
    return Graph(classifier)


def judge_of(graph: Graph, options: Options) -> Judge:
    small = torch.randint(0, 256, (96, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    images = nn.functional.interpolate(small.float(), 16, mode="bilinear").round().to(torch.uint8)
    answers = torch.from_numpy(graph.scores(images)["logits"]).argmax(1)
    return Judge(graph, Images(zip(images, answers, strict=True)), options)  # type: ignore[arg-type]


def quantized(graph: Graph, folder: Path, preset: dict[str, Any], **limits: float) -> tuple[Judge, onnx.ModelProto]:
    options = Options(quantize=8, **limits)  # type: ignore[arg-type]
    judge = judge_of(graph, options)
    write_float(graph, folder / "model.onnx", options)
    to_accepted_int8(folder / "model.onnx", judge, run_file, preset)
    return judge, onnx.load(folder / "model.onnx")


@pytest.mark.parametrize("preset", [CPU, TENSORRT], ids=["cpu", "tensorrt"])
@pytest.mark.parametrize("block", [1, 2])
def test_an_outlier_is_repaired_by_keeping_its_layers_in_float(
    block: int, preset: dict[str, Any], graph: Graph, tmp_path: Path
) -> None:
    plant_outlier(graph.network, block)  # type: ignore[arg-type]
    judge, model = quantized(graph, tmp_path, preset, max_accuracy_drop=0.05)
    assert [entry["accepted"] for entry in judge.tried] == [False] * (len(judge.tried) - 1) + [True]
    assert judge.tried[0]["agreement"] < 0.8 and judge.tried[-1]["agreement"] >= 0.9
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    producers = {name: node for node in model.graph.node for name in node.output}
    in_float = [
        number for number, node in enumerate(convolutions) if producers[node.input[0]].op_type != "DequantizeLinear"
    ]
    assert set(in_float) <= {block, block + 1} and in_float


def test_a_sound_network_keeps_no_layer_in_float(graph: Graph, tmp_path: Path) -> None:
    judge, _ = quantized(graph, tmp_path, CPU)
    assert len(judge.tried) == 1


def test_what_can_not_be_repaired_leaves_the_file_as_it_was(graph: Graph, tmp_path: Path, capsys: Any) -> None:
    for block in range(NUM_BLOCKS - 1):
        plant_outlier(graph.network, block)  # type: ignore[arg-type]
    with pytest.raises(VerificationError, match="min_agreement 1"):
        quantized(graph, tmp_path, CPU, min_agreement=1.0, max_accuracy_drop=0.0)
    assert capsys.readouterr().out.count(": refused") > 1
    assert {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node}.isdisjoint({"QuantizeLinear"})


@pytest.mark.parametrize("block", [1, 2])
def test_openvino_takes_the_layers_of_an_outlier_back_first(block: int, graph: Graph, tmp_path: Path) -> None:
    plant_outlier(graph.network, block)  # type: ignore[arg-type]
    options = Options("openvino", quantize=8, max_accuracy_drop=0.05)
    judge = judge_of(graph, options)
    openvino.write(graph, tmp_path, options, judge)
    tried = [entry["accepted"] for entry in judge.tried]
    assert tried[:2] == [True, False] and tried[-1] and len(tried) <= NUM_BLOCKS + 1
    assert 'type="FakeQuantize"' in (tmp_path / openvino.FILE).read_text("utf-8")


def test_openvino_leaves_the_thread_a_stack_for_signals(graph: Graph, tmp_path: Path) -> None:
    plant_outlier(graph.network, 1)  # type: ignore[arg-type]
    options = Options("openvino", quantize=8)
    openvino.write(graph, tmp_path, options, judge_of(graph, options))
    stack = Stack()
    ctypes.CDLL(None).sigaltstack(None, ctypes.byref(stack))
    memory = [line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines()]
    assert stack.start is None or any(int(low, 16) <= stack.start < int(high, 16) for low, high in memory)


LIMITS = {"accuracy": ((0.97, 1.0), False), "agreement": ((0.99, 0.89), False), "neither": ((0.98, 0.9), True)}


@pytest.mark.parametrize("found, accepted", LIMITS.values(), ids=LIMITS)
def test_each_limit_objects_alone(found: tuple[float, float], accepted: bool, graph: Graph) -> None:
    accuracy, agreement = found
    scores = {"accuracy": {"model": 1.0, "exported": accuracy}, "agreement": agreement}
    assert judge_of(graph, Options(quantize=8)).accepts(scores) == accepted


def test_the_last_batch_is_filled_up_where_the_batch_is_fixed(graph: Graph, tmp_path: Path) -> None:
    options = Options(quantize=8, batch=64, min_agreement=0.0, max_accuracy_drop=1.0)
    judge = judge_of(graph, options)
    write_float(graph, tmp_path / "model.onnx", options)
    to_accepted_int8(tmp_path / "model.onnx", judge, run_file)
    assert judge.tried[-1]["images"] == 96
