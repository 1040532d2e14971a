"""The command line: verbs, help without torch, mistakes in one line."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from {{cookiecutter.package_name}} import cli


def run_python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.parametrize("args", [[], ["--help"], ["--version"]])
def test_verbs_are_listed_without_importing_torch(args: list[str], tmp_path: Path) -> None:
    package = cli.__package__
    done = run_python(
        f"import sys; from {package}.cli import main; main({args}); print('torch' in sys.modules)", tmp_path
    )
    assert done.stdout.splitlines()[-1] == "False", done.stderr
    assert all(verb in done.stdout for verb in cli.VERBS) or args == ["--version"]


@pytest.mark.parametrize("verb", sorted(cli.VERBS))
def test_every_verb_has_a_help(verb: str, capsys: pytest.CaptureFixture[str], project: Path) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main([verb, "--help"])
    assert stopped.value.code == 0
    assert "--" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["fti"], "'fti'"),
        (["fit", "--data.batch_sise", "3"], "batch_sise"),
        (["fit", "--trainer.max_ep", "3"], "max_ep"),
        (["fit", "-c", "configs/nope.yaml"], "nope.yaml"),
        (["fit", "--data.batch_size", "many"], "batch_size"),
        (["fit", "--ckpt_path", "last"], "ckpt_path"),
        (["fit", "--resume"], "no unfinished run"),
        (["fit", "--resume=nowhere"], "nowhere is no run folder"),
        (["export", "--opset", "17"], "from 18 to 25"),
        (["test"], "no finished run"),
        (["test", "--ckpt_path", "nope.ckpt"], "nope.ckpt"),
        (["test", "--ckpt_path", "configs"], "folder"),
        (["test", "--ckpt_path", "configs/default.yaml"], "default.yaml"),
        (["test", "--model.width", "32"], "model.width"),
        (["predict"], "paths"),
        (["predict", "nope.png"], "nope.png"),
        (["export", "--ckpt_path", "nope.ckpt"], "nope.ckpt"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    args: list[str], message: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(project.rglob("*"))
    assert cli.main(args) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error
    assert sorted(project.rglob("*")) == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--model.init_args.network", "SimpleCNM"], "SimpleCNN"),
        (["--trainer.enable_checkpointing", "false"], "enable_checkpointing"),
        (["--trainer.accelerator", "cpu", "--trainer.precision", "16-mixed"], "on a CPU use bf16-mixed"),
        (["--trainer.accelerator", "cpu", "--trainer.precision", "16"], "on a CPU use bf16-mixed"),
        (["--trainer.accelerator", "cpu", "--trainer.precision", "16-true"], "on a CPU use bf16-mixed"),
    ],
)
def test_a_mistake_in_a_run_is_one_line_and_leaves_no_folder(
    args: list[str],
    message: str,
    project: Path,
    data: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.root.manager, "disable", logging.INFO)  # what a run tells of its start
    before = sorted(project.rglob("*"))
    assert cli.main(["fit", *data, *args]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1, error
    assert sorted(project.rglob("*")) == before


def test_fit_outside_a_project_folder_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["fit"]) == 2
    assert "configs/default.yaml" in capsys.readouterr().err.replace("\\", "/")


def test_print_config_names_the_classifier_and_its_network(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["fit", "--print_config"])
    config = capsys.readouterr().out
    assert "ImageClassifier" in config and "SimpleCNN" in config


def test_repeating_an_overlay_changes_nothing_and_keeps_default_callbacks(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = []
    for overlays in (["-c", "configs/ddp.yaml"], ["-c", "configs/ddp.yaml", "-c", "configs/ddp.yaml"]):
        with pytest.raises(SystemExit):
            cli.main(["fit", *overlays, "--print_config"])
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    keys = ("best_checkpoint", "last_checkpoint", "early_stopping", "learning_rate_monitor")
    assert all(f"\n{key}:\n" in printed[0] for key in keys)


def test_torch_and_torchvision_that_do_not_fit_become_advice() -> None:
    assert "one index" in cli._one_line(RuntimeError("operator torchvision::nms does not exist"))


def test_an_error_in_generated_code_is_one_line_too(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(cli, "_run", lambda *args: exec("raise ValueError('wrong')", {}))
    assert cli.main(["test"]) == 2
    assert capsys.readouterr().err.endswith(" test: wrong\n")


def test_sigterm_is_one_line_and_exit_code_143(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(cli, "_run", lambda *args: os.kill(os.getpid(), signal.SIGTERM))
    assert cli.main(["test"]) == 143
    assert capsys.readouterr().err.endswith(" test: terminated\n")
    assert signal.getsignal(signal.SIGTERM) is before
