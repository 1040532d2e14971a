"""Each command of docs/scale.md is one that its program takes."""

import re
import shlex
from pathlib import Path

import pytest
from smoke.cli import main
from torch.distributed.run import get_args_parser

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"


def commands(text):
    """The lines of the shell blocks, in words, without comments."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [words for block in blocks for line in block.splitlines() if (words := shlex.split(line, comments=True))]


def check_fit(args):
    """Read the options, and refuse to go on with a run that is not there."""
    if args[0] == "--resume":
        assert main(["fit", *args]) == 2
    else:
        with pytest.raises(SystemExit, match="^0$"):
            main(["fit", *args, "--print_config"])


def check_torchrun(args):
    parsed = get_args_parser().parse_args(args)
    assert parsed.module and parsed.training_script == "smoke" and parsed.training_script_args[0] == "fit"
    check_fit(parsed.training_script_args[1:])
    if (options := parsed.training_script_args[1:]) != ["--resume"]:
        numbers = dict(zip(options[::2], options[1::2], strict=True))
        assert numbers["--trainer.num_nodes"] == parsed.nnodes
        assert numbers["--trainer.devices"] == parsed.nproc_per_node


def check_export(args):
    (setting,) = args
    assert re.fullmatch(r"[A-Z0-9_]+=\w+", setting)


def check_smoke(args):
    assert args[0] == "fit"
    check_fit(args[1:] or ["--seed_everything", "0"])


CHECKS = {"smoke": check_smoke, "torchrun": check_torchrun, "export": check_export}


@pytest.mark.parametrize("words", commands(PAGE.read_text("utf-8")), ids=" ".join)
def test_each_command_is_taken(words, monkeypatch, capsys):
    monkeypatch.chdir(PAGE.parents[1])
    CHECKS[words[0]](words[1:])
    if words[1:3] == ["fit", "--resume"] or words[-1] == "--resume":
        assert re.search("no unfinished run|is no run folder", capsys.readouterr().err)


def test_the_page_has_the_steps_on_the_way():
    found = [" ".join(words) for words in commands(PAGE.read_text("utf-8"))]
    for part in ("configs/ddp.yaml", "configs/fsdp.yaml", "torchrun", "fit --resume", "--find_batch_size"):
        assert any(part in command for command in found), part


@pytest.mark.parametrize(
    "line", ["smoke fit --trainer.devises 4", "smoke fit -c configs/ddb.yaml", "torchrun --nods 2"]
)
def test_another_command_is_not_taken(line, monkeypatch):
    monkeypatch.chdir(PAGE.parents[1])
    ((program, *args),) = commands(f"```sh\n{line}\n```\n")
    with pytest.raises((AssertionError, SystemExit, pytest.fail.Exception), match=r"^(?!0$)|DID NOT RAISE"):
        CHECKS[program](args)
