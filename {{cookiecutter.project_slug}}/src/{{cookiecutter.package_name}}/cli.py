"""The command line: a table of verbs that answers --help and --version without importing torch."""

import logging
import os
import signal
import sys
import warnings
from argparse import ArgumentError
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from traceback import walk_tb
from typing import Any, NoReturn

from . import __version__


@dataclass(frozen=True)
class Verb:
    """Which function does it, in which module, what `paths` are, which arguments are fixed, and which are flags."""

    module: str
    function: str
    summary: str
    paths: str = ""
    fixed: dict[str, str] = field(default_factory=dict)
    flags: dict[str, str] = field(default_factory=dict)


VERBS = {
    "fit": Verb("fit", "fit", "train a network"),
    "validate": Verb("evaluation", "evaluate", "score a checkpoint on the validation split", fixed={"split": "val"}),
    "test": Verb("evaluation", "evaluate", "score a checkpoint on the test split", fixed={"split": "test"}),
    "predict": Verb(
        "prediction",
        "predict",
        "classify image files and folders into a CSV file",
        paths="image files, and folders that are searched for them",
    ),
    "consolidate": Verb("checkpoints", "consolidate", "make one file of a sharded checkpoint"),
    "export": Verb(
        "export.command",
        "export",
        "write a verified bundle for deployment",
        flags={"force": "replace an existing bundle, once the new one is verified"},
    ),
    "benchmark": Verb(
        "benchmark.command",
        "benchmark",
        "compare bundles: time, size, accuracy",
        paths="bundles, or folders of them; by default those of the newest finished run's best checkpoint",
        flags={"force": "replace an existing report"},
    ),
}


class Terminated(KeyboardInterrupt):
    """What Ctrl-C does, by SIGTERM."""


STOPS = {KeyboardInterrupt: (130, "interrupted"), Terminated: (143, "terminated")}
ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")  # torch 2.14 reads the first that is set
PAIR_ADVICE = (
    "torch and torchvision do not fit each other: install both from one index, at the versions in pyproject.toml "
    "(README, section Install)."
)


def program_name() -> str:
    """The command as it was typed."""
    name = Path(sys.argv[0]).name
    return f"python -m {__package__}" if name == "__main__.py" else name


def _usage(program: str) -> str:
    verbs = "\n".join(f"  {name:<10}{verb.summary}" for name, verb in VERBS.items())
    return f"usage: {program} VERB [OPTIONS]   ({program} VERB --help lists them; --debug shows tracebacks)\n\n{verbs}"


def _quieten() -> None:
    """Keep out what Lightning 2.6 says that concerns no user: tips, its own deprecations, and advice on workers."""
    logging.getLogger("lightning.pytorch.utilities.rank_zero").addFilter(
        lambda record: "Tip:" not in record.getMessage()
    )
    warnings.filterwarnings("ignore", message=r".*does not have many workers")  # images in memory need none
    warnings.filterwarnings("ignore", message=r"Checkpoint directory .* is not empty")  # it is that of a resumed run
    warnings.filterwarnings("ignore", message=r"Precision .* is not supported by the model summary")
    warnings.filterwarnings("ignore", message=r".*isinstance\(treespec, LeafSpec\)")
    warnings.filterwarnings(
        "ignore", message=r"\s*(``instantiate_classes``|skip_none|By default only one Jsonargparse)"
    )


def _run(name: str, args: list[str]) -> None:
    _quieten()
    if not any(name in os.environ for name in ALLOCATOR):
        os.environ[ALLOCATOR[0]] = "expandable_segments:True"  # less memory is lost between blocks
    verb = VERBS[name]
    command: Callable[..., None] = getattr(import_module(f".{verb.module}", __package__), verb.function)
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    try:
        command(args) if name == "fit" else _call(name, command, args)
    except MisconfigurationException as error:  # a plain Exception to Python
        raise ValueError(str(error)) from error


def _call(name: str, command: Callable[..., None], args: list[str]) -> None:
    """Parse the arguments of a plain typed function and call it."""
    from jsonargparse import ActionYesNo, ArgumentParser

    verb = VERBS[name]
    parser = ArgumentParser(prog=name, description=verb.summary, exit_on_error=False, allow_abbrev=False)
    if paths := signature(command).parameters.get("paths"):
        needed = paths.default is Parameter.empty
        number: dict[str, Any] = {"nargs": "+"} if needed else {"nargs": "*", "default": []}
        parser.add_argument("paths", type=Path, help=verb.paths, **number)
    parser.add_function_arguments(command, as_group=False, skip={"paths", *verb.fixed, *verb.flags})
    for flag, meaning in verb.flags.items():
        parser.add_argument(f"--{flag}", action=ActionYesNo, default=False, help=meaning)
    command(**verb.fixed, **parser.instantiate(parser.parse_args(args)))


def _raised_here(error: BaseException) -> bool:
    frames = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
    return frames[-1].startswith(f"{__package__}.") if frames else False


def _one_line(error: BaseException) -> str:
    """What this package itself said, even where a library has wrapped it."""
    chain = [error]
    while inner := chain[-1].__cause__ or (None if chain[-1].__suppress_context__ else chain[-1].__context__):
        chain.append(inner)
    text = " ".join(str(next(filter(_raised_here, chain), error)).split())
    return PAIR_ADVICE if "operator torchvision::" in text else text or type(error).__name__


def _terminate(number: int, frame: Any) -> NoReturn:
    raise Terminated


def _guarded(program: str, verb: str, args: list[str]) -> int:
    """Exit code of a verb: a mistake in what was asked is one line and 2, a failed check one line and 1."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        _run(verb, args)
    except (ArgumentError, ValueError, OSError, ImportError) as error:
        code, reason = 2, _one_line(error)
    except (ArithmeticError, RuntimeError) as error:
        code, reason = 1, _one_line(error)
    except KeyboardInterrupt as error:
        code, reason = STOPS[type(error)]
        reason = ", ".join(filter(None, (reason, str(error))))
    else:
        return 0
    finally:
        signal.signal(signal.SIGTERM, before)
    print(f"{program} {verb}: {reason}", file=sys.stderr)
    return code


def main(argv: list[str] | None = None) -> int:
    """Run one verb; the exit code is 0, 1 (a check failed), 2 (a mistake in what was asked), 130 or 143 (STOPS)."""
    args = list(sys.argv[1:] if argv is None else argv)
    program = program_name()
    debug = "--debug" in args
    args = [arg for arg in args if arg != "--debug"]
    if not args or args[0] in {"-h", "--help"}:
        print(_usage(program))
        return 0
    if args[0] == "--version":
        print(f"{program} {__version__}")
        return 0
    if args[0] not in VERBS:
        print(f"{program}: {args[0]!r} is no verb; choose one of {', '.join(VERBS)}.", file=sys.stderr)
        return 2
    if debug:
        _run(args[0], args[1:])
        return 0
    return _guarded(program, args[0], args[1:])
