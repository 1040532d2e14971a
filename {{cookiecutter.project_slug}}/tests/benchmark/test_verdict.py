"""What to use, from the numbers alone."""

import pytest

from {{cookiecutter.package_name}}.benchmark import verdict
from {{cookiecutter.package_name}}.benchmark.rows import Row, Timing


def make(name: str, *times: float | None, accuracy: float | None = 0.95, megabytes: float = 1.0) -> Row:
    """A row of batches of 1 and 64 images; its name tells format and precision."""
    format, _, precision = name.partition("-")
    timings = [time and Timing(time, time, time, 1000 / time, 1) for time in times]
    batches = dict(zip((1, 64), timings, strict=True))
    row = Row(name, name, batches, megabytes, format, precision or "float32", accuracy=accuracy)
    row.miss("no package", *row.unmeasured())
    return row


REFERENCE = make("onnx", 2.0, 30.0)
CASES = {
    "faster": (make("tvm", 1.0, 20.0, accuracy=0.948), "2.00x at batch 1, 1.50x at 64, accuracy -0.0020: use it"),
    "slower": (make("tvm", 2.5, 60.0), "0.80x at batch 1, 0.50x at 64, accuracy +0.0000: slower than onnx: don't"),
    "slower at one, as fast at the other": (make("tvm", 4.0, 30.0), ": slower than onnx: don't"),
    "both": (make("tvm", 4.0, 15.0), "0.50x at batch 1, 2.00x at 64, accuracy +0.0000: use it at batch 64 alone"),
    "less accurate": (make("tvm", 1.0, 1.0, accuracy=0.92), ": below the model by more than 0.02: don't"),
    "just accurate enough": (make("tvm", 1.0, 1.0, accuracy=0.93), ", accuracy -0.0200: use it"),
    "accuracy unknown": (make("tvm", 1.0, 1.0, accuracy=None), ": measure its accuracy first (--root), then use it"),
    "slower, accuracy unknown": (make("tvm", 4.0, 60.0, accuracy=None), ": slower than onnx: don't"),
    "the same": (make("tvm", 2.1, 29.0), ": as fast as onnx: no reason to"),
    "the same but small": (make("tvm", 2.1, 29.0, megabytes=0.5), ": as fast as onnx and smaller: use it"),
    "one batch": (make("tvm", None, 10.0), "3.00x at batch 64, accuracy +0.0000: use it"),
    "not run": (make("tvm", None, None, accuracy=None), "no package: not measured"),
}


@pytest.mark.parametrize("row, expected", CASES.values(), ids=CASES)
def test_a_verdict_follows_from_speed_accuracy_and_size(row: Row, expected: str):
    found = verdict.verdict(row, REFERENCE, 0.95, 0.02)
    assert found == expected or (expected[0] in ",:" and found.endswith(expected))


def test_the_reference_is_the_float_onnx_or_else_what_ran():
    others = [make("abc", 1.0, 1.0), make("onnx-int8", 1.0, 1.0)]
    assert verdict.choose_reference([*others, make("onnx", None, 9.0), REFERENCE]) is REFERENCE
    assert verdict.choose_reference([*others, make("onnx", None, None)]) is others[0]
    assert verdict.choose_reference([make("abc", None, None), others[1]]) is others[1]


def test_every_int8_that_is_slower_than_float_is_named():
    rows = [REFERENCE, make("onnx-int8", 1.0, 40.0), make("tvm", 1.0, 1.0), make("tvm-int8", 1.5, 0.5)]
    assert verdict.slower_int8(rows, REFERENCE) == [
        "onnx-int8 is slower than onnx: 0.75x at batch 64",
        "tvm-int8 is slower than tvm: 0.67x at batch 1",
    ]


def test_the_fastest_must_keep_the_accuracy():
    rows = [REFERENCE, make("onnx-int8", 1.0, 29.0), make("tvm", 0.1, 0.1, accuracy=0.5)]
    assert verdict.fastest(rows, REFERENCE, 1, 0.95, 0.02) == "Fastest at batch 1: onnx-int8, 2.00x onnx"
    assert verdict.fastest(rows, REFERENCE, 64, 0.95, 0.02) == "Nothing is more than 10% faster than onnx at batch 64"


def test_the_front_has_what_nothing_else_beats_in_both():
    points = {"slow": (3.0, 0.9), "best": (3.0, 0.99), "fast": (1.0, 0.9), "worse": (2.0, 0.8), "twin": (1.0, 0.7)}
    assert verdict.front(points) == ["fast", "best"]
