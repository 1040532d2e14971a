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
    if args[:1] == ["--resume"]:
        assert main(["fit", *args]) == 2
        return
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["fit", *args, "--print_config"])


def check_launched(args, *, nodes, processes):
    """What a launcher starts has one device for each of its processes."""
    check_fit(args)
    numbers = dict(zip(args[::2], args[1::2], strict=True)) if "--resume" not in args else {}
    assert numbers.get("--trainer.num_nodes", nodes) == nodes
    assert numbers.get("--trainer.devices", processes) == processes


def check_smoke(args):
    verb, *options = args
    if verb == "consolidate":
        assert main(args) == 2  # there is no such folder
    else:
        assert verb == "fit"
        check_fit(options)


def check_torchrun(args):
    parsed = get_args_parser().parse_args(args)
    program, (verb, *options) = parsed.training_script, parsed.training_script_args
    assert (parsed.module, program, verb) == (True, "smoke", "fit")
    check_launched(options, nodes=parsed.nnodes, processes=parsed.nproc_per_node)


def check_sbatch(args):
    place = args.index("scripts/train.sbatch")
    numbers = dict(zip(args[:place:2], args[1:place:2], strict=True))
    tasks, gpus = (numbers.get(key, "1") for key in ("--ntasks-per-node", "--gpus-per-node"))
    assert tasks == gpus
    check_launched(args[place + 1 :], nodes=numbers.get("--nodes", "1"), processes=tasks)


def check_export(args):
    (setting,) = args
    assert re.fullmatch(r"[A-Z0-9_]+=\w+", setting)


CHECKS = {"smoke": check_smoke, "torchrun": check_torchrun, "sbatch": check_sbatch, "export": check_export}
FOUND = [words for words in commands(PAGE.read_text("utf-8")) if words[0] != "scancel"]  # that needs a cluster


@pytest.mark.parametrize("words", FOUND, ids=" ".join)
def test_each_command_is_taken(words, monkeypatch, capsys):
    monkeypatch.chdir(PAGE.parents[1])
    CHECKS[words[0]](words[1:])
    if {"--resume", "consolidate"} & set(words):
        assert re.search("no unfinished run|is no run folder|is no sharded checkpoint", capsys.readouterr().err)


def test_the_page_has_each_step_of_the_way():
    text = "\n".join(map(" ".join, FOUND))
    for part in ("ddp.yaml", "fsdp.yaml", "torchrun", "sbatch", "--resume", "--find_batch_size", "NCCL_", "GLOO_"):
        assert part in text


@pytest.mark.parametrize(
    "line",
    [
        "smoke fit --trainer.devises 4",
        "smoke fit -c configs/ddb.yaml",
        "torchrun --nods 2 -m smoke fit",
        "torchrun --nnodes 2 -m smoke fit --trainer.num_nodes 3",
        "sbatch --ntasks-per-node 2 scripts/train.sbatch",
    ],
)
def test_another_command_is_not_taken(line, monkeypatch):
    monkeypatch.chdir(PAGE.parents[1])
    ((program, *args),) = commands(f"```sh\n{line}\n```\n")
    with pytest.raises((AssertionError, SystemExit, pytest.fail.Exception)) as refused:
        CHECKS[program](args)
    assert str(refused.value) != "0"
