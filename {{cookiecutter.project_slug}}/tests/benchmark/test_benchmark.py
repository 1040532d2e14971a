"""Every number is measured or has a reason, and what is not whole or comes from elsewhere is refused."""

import json
import os
from pathlib import Path

import pytest

from {{cookiecutter.package_name}}.cli import main

NUMBERS = {"load_ms", "peak_megabytes", "added_megabytes", "accuracy", "agreement"}
NAMES = ["altered", "fixed", "onnx", "onnx-int8", "unknown"]
QUICK = ("--rounds", "1", "--batch", "1,2", "--num_workers", "0")


def run(*args: object) -> int:
    return main(["benchmark", *QUICK, *map(str, args)])


def rows(output: Path) -> dict[str, dict]:
    content = json.loads((output / "benchmark.json").read_text("utf-8"))
    return {variant["name"]: variant for variant in content["variants"]}


@pytest.fixture(scope="module")
def measured(faulty: Path) -> dict[str, dict]:
    assert run(faulty) == 0
    return rows(faulty / "benchmark")


def test_every_number_is_measured_or_has_its_reason(measured: dict[str, dict]):
    assert list(measured) == NAMES
    for row in measured.values():
        numbers = {name: row[name] for name in NUMBERS} | {f"batch {n}": t for n, t in row["batches"].items()}
        assert {name for name, value in numbers.items() if value is None} == row["missing"].keys()
        assert all(row["missing"].values()) and row["verdict"]


def test_what_runs_is_timed_and_scored(measured: dict[str, dict]):
    row = measured["onnx"]
    assert row["missing"] == {} and row["verdict"] == "reference" and row["agreement"] == 1
    for timing in row["batches"].values():
        assert 0 < timing["min_ms"] <= timing["median_ms"] <= timing["p95_ms"]
    assert "onnxruntime" in row["versions"]
    assert measured["onnx-int8"]["missing"] == {} and "at batch 1" in measured["onnx-int8"]["verdict"]


def test_what_does_not_run_says_why_in_its_row(measured: dict[str, dict]):
    assert "golden image" in measured["altered"]["verdict"] and "'tflite'" in measured["unknown"]["verdict"]
    assert measured["altered"]["missing"].keys() == measured["unknown"]["missing"].keys() > NUMBERS
    assert measured["fixed"]["missing"] == {"batch 1": "it takes batches of 2 alone"}
    assert measured["fixed"]["accuracy"] == measured["onnx"]["accuracy"]


def test_the_table_is_printed_and_a_report_is_replaced_only_by_force(bundles: Path, tmp_path: Path, capsys):
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "thesis.txt").write_text("")
    assert run(bundles / "best-onnx", "--output", tmp_path / "report", "--force") == 2
    (tmp_path / "report" / "thesis.txt").rename(tmp_path / "report" / "benchmark.json")
    assert run(bundles / "best-onnx", "--output", tmp_path / "report") == 2
    assert "--force" in capsys.readouterr().err
    (tmp_path / "report" / "benchmark.json").write_text('{"files": []}')
    assert run(bundles / "best-onnx", "--output", tmp_path / "report", "--force") == 0
    assert run(bundles / "best-onnx", "--output", tmp_path / "report", "--force") == 0
    files = sorted(file.name for file in (tmp_path / "report").iterdir())
    assert files == ["benchmark.json", "pareto.png", "report.html"]
    output = capsys.readouterr().out
    assert "images/s" in output and "reference" in output


def test_without_the_checkpoint_the_accuracy_has_a_reason(bundle: Path, monkeypatch):
    monkeypatch.chdir(bundle)
    assert run(".") == 0
    (row,) = rows(bundle.parent / "benchmark").values()
    assert row["accuracy"] is None and "--ckpt_path" in row["missing"]["accuracy"]
    assert not (bundle.parent / "benchmark" / "pareto.png").exists()


def test_a_runtime_that_is_missing_is_named(bundle: Path, tmp_path: Path, monkeypatch, capsys):
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['onnxruntime'] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert run(bundle) == 1
    assert "onnxruntime is not installed here" in capsys.readouterr().err
    assert not (bundle.parent / "benchmark").exists()


def test_a_file_that_was_altered_is_refused_by_name(bundle: Path, capsys):
    with (bundle / "model.onnx").open("ab") as file:
        file.write(b"\0")
    assert run(bundle) == 2
    assert "best-onnx: model.onnx" in capsys.readouterr().err
    assert [path.name for path in bundle.parent.iterdir()] == ["best-onnx"]


EDITED = {
    "no list of files": ({"files": {}}, "files missing or wrong"),
    "files in a list": ({"files": ["labels.txt"]}, "files missing or wrong"),
    "a checkpoint without name": ({"checkpoint": {"sha256": "0"}}, "checkpoint missing or wrong"),
    "no shape": ({"input": {}, "versions": None}, "input, versions missing or wrong"),
    "other classes": ({"classes": ["one"]}, "other classes than labels.txt"),
}


@pytest.mark.parametrize("values, message", EDITED.values(), ids=EDITED)
def test_an_edited_description_is_refused(values, message, bundle: Path, alter, capsys):
    alter(bundle, "model.json", **values)
    assert run(bundle) == 2
    assert message in capsys.readouterr().err


def test_a_list_without_the_model_is_refused(bundle: Path, alter, capsys):
    files = json.loads((bundle / "model.json").read_text("utf-8"))["files"]
    alter(bundle, "model.json", files={name: files[name] for name in ("labels.txt", "golden/golden.json")})
    assert run(bundle) == 2
    assert "lists no file that holds the model" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["[]", "7", '{"class_name": "Sequential"}'])
def test_what_another_program_wrote_is_refused(content: str, tmp_path: Path, capsys):
    (tmp_path / "model.json").write_text(content)
    assert run(tmp_path) == 2
    assert "is not that of a bundle" in capsys.readouterr().err


def test_a_bundle_of_another_checkpoint_is_refused_by_name(
    bundles: Path, bundle: Path, alter, checkpoint: Path, capsys
):
    alter(bundle, "model.json", checkpoint={"name": "best.ckpt", "sha256": "0"})
    assert run(bundles / "best-onnx", bundle) == 2
    assert f"{bundle} comes from another checkpoint" in capsys.readouterr().err
    assert run(bundle, "--ckpt_path", checkpoint) == 2
    assert f"{bundle} does not come from checkpoint" in capsys.readouterr().err


def test_without_paths_the_bundles_beside_the_checkpoint_are_taken(bundles: Path, bundle: Path, tmp_path: Path, capsys):
    assert run("--ckpt_path", bundles / "best.ckpt", "--output", bundle) == 2
    assert "holds benchmark.json" in capsys.readouterr().err
    (tmp_path / "alone.ckpt").write_bytes((bundles / "best.ckpt").read_bytes())
    assert run("--ckpt_path", tmp_path / "alone.ckpt") == 2
    assert "export writes them" in capsys.readouterr().err


MISTAKES = {
    "a batch that is none": (("--batch", "1,0"), "'1,0'"),
    "no thread": (("--threads", "0"), "threads must be from 1"),
    "no round": (("--rounds", "0"), "rounds must be at least 1"),
    "a share that is none": (("--max_accuracy_drop", "2"), "max_accuracy_drop must be in"),
    "workers that are none": (("--num_workers", "-1"), "num_workers must be auto or at least 0"),
    "data that is nowhere": (("--root", "nowhere"), "nowhere"),
    "a folder without bundles": (("golden",), "golden is neither"),
}


@pytest.mark.parametrize("args, message", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_named_before_anything_is_measured(args, message, bundles: Path, monkeypatch, capsys):
    monkeypatch.chdir(bundles / "best-onnx")
    assert run("." if args[0].startswith("-") else "golden", *args, "--output", "../mistake") == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "benchmark" in line]
    assert message in line
    assert not (bundles / "mistake").exists()
