"""Refuse answers that would make a broken project, before anything is written."""

import json
import keyword
import re
import sys
import unicodedata
from pathlib import Path

# JSON in a raw string takes any answer whole: its quotes and control characters arrive escaped.
ANSWERS = json.loads(r'{{ cookiecutter | tojson }}')  # fmt: skip

MAX_LENGTH = 40
NAMES = {
    "project_slug": ("-", re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*"), "dashes"),
    "package_name": ("_", re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*"), "underscores"),
}
TEXTS = {"project_name": "My project", "description": "Image classification.", "author_name": "Your Name"}
EMAIL = re.compile(r"[\w+-]+(\.[\w+-]+)*@[a-z0-9-]+(\.[a-z0-9-]+)+", re.ASCII | re.IGNORECASE)
# Line breaks and what YAML or UTF-8 can't hold: controls, surrogates, line and paragraph separators.
UNWRITABLE = {"Cc", "Cs", "Zl", "Zp"}
# An update renders answers again, so text that looks like Jinja would not stay as typed.
JINJA = re.compile(r"\{[%#{]+|^\s*#%")
# Names of the project's packages, of what they import, of its tools and of its folders, and Windows' devices.
TAKEN = """
    aiohttp attr attrs bundle cv2 dateutil docstring_parser executorch fastapi filelock flatbuffers fsspec functorch
    google grpc hatchling jinja2 joblib jsonargparse jsonargparse_signatures lightning lightning_utilities litserve
    markupsafe matplotlib ml_dtypes mpl_toolkits multipart mypy mypyc networkx nncf numpy nvidia onnx onnx_ir
    onnxruntime onnxscript openvino packaging pandas pil pillow pip platformdirs pre_commit protobuf py pydantic
    pygments pylab pyparsing pytest python python_multipart pytorch_lightning pyyaml requests rich ruff scikit_learn
    scipy server setuptools six sklearn starlette sympy tensorboard tensorrt threadpoolctl tifffile timm torch
    torch_pruning torchao torchaudio torchgen torchmetrics torchrun torchvision tqdm triton typeshed_client
    typing_extensions urllib3 uv uvicorn wandb werkzeug wheel yaml
    benchmarks build configs data deploy dist docs exports runs scripts src test tests
    aux con nul prn
"""


def is_taken(name: str) -> bool:
    """Whether Python, a package, a tool or a folder already has the name."""
    plain = name.replace("-", "_")
    return plain in {*TAKEN.split(), *sys.stdlib_module_names, *keyword.kwlist, *keyword.softkwlist}


def name_fault(field: str, name: str) -> str:
    """What is wrong with a name, or nothing."""
    _, pattern, marks = NAMES[field]
    if len(name) > MAX_LENGTH or not pattern.fullmatch(name):
        return f"must be at most {MAX_LENGTH} small letters, digits and single {marks}, and start with a letter"
    if is_taken(name):
        return "is the name of a part of Python, of a package that the project uses or of one of its folders"
    return ""


def valid_name(field: str, wanted: str) -> str:
    """Return the valid name that is nearest to the wanted one."""
    mark = NAMES[field][0]
    plain = unicodedata.normalize("NFKD", wanted).encode("ascii", "ignore").decode().lower()
    words = re.findall("[a-z0-9]+", plain) or ["project"]
    names = [mark.join(choice)[:MAX_LENGTH].strip(mark) for choice in (words, ["my", *words])]
    return next(name for name in names if not name_fault(field, name))


def is_writable(character: str) -> bool:
    """Whether every format of the project can hold the character inside one line."""
    return unicodedata.category(character) not in UNWRITABLE and character not in "\ufeff\ufffe\uffff"


def text_fault(text: str) -> str:
    """What is wrong with a line of text, or nothing."""
    if not all(map(is_writable, text)):
        return "must be one line without control characters"
    if JINJA.search(text):
        return "must not contain Jinja syntax"
    return "" if text.strip() else "must not be empty"


def valid_text(field: str, wanted: str) -> str:
    """Return the valid text that is nearest to the wanted one."""
    line = "".join(character if is_writable(character) else " " for character in wanted)
    return " ".join(JINJA.sub(" ", line).replace("#%", " ").split()) or TEXTS[field]


def refuse(field: str, fault: str, valid: str) -> None:
    """Stop with one sentence if there is a fault."""
    if fault:
        sys.exit(f'{field} {ANSWERS[field]!r} {fault}; for example, "{valid}" would do.')


def check_names() -> None:
    """Refuse names that can't be a distribution, a command, a folder or a package."""
    for field in NAMES:
        refuse(field, name_fault(field, ANSWERS[field]), valid_name(field, ANSWERS[field]))


def check_texts() -> None:
    """Refuse text that would not read back as it was typed."""
    for field in TEXTS:
        refuse(field, text_fault(ANSWERS[field]), valid_text(field, ANSWERS[field]))


def check_email() -> None:
    """Refuse what can't be an address."""
    if not EMAIL.fullmatch(ANSWERS["author_email"]):
        refuse("author_email", "must be an e-mail address", "you@example.com")


def check_folder() -> None:
    """Refuse to delete what was there: with -f, the files left out by the answers may be the person's own."""
    for field, files in ANSWERS["_left_out"].items():
        names = [name.format(package=ANSWERS["package_name"]) for name in files[ANSWERS[field]]]
        for name in filter(lambda name: Path(name).exists(), names):
            sys.exit(f"{field} {ANSWERS[field]!r} leaves out {name!r}, which this folder has; move it away first.")


check_names()
check_texts()
check_email()
check_folder()
