"""Delete the files that the answers leave out, and say what to run next."""

import json
import sys
from pathlib import Path

ANSWERS = json.loads(r'{{ cookiecutter | tojson }}')  # fmt: skip


def delete(file: Path) -> None:
    """Delete a file and the folders that are empty without it."""
    file.unlink(missing_ok=True)
    for folder in file.parents[:-1]:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


for field, files in ANSWERS["_left_out"].items():
    for name in files[ANSWERS[field]]:
        delete(Path(name.format(package=ANSWERS["package_name"])))

slug = ANSWERS["project_slug"]
# On stderr, since `cruft diff` bakes too and its output is a patch.
print(f"Next:\n  cd {slug} && {ANSWERS['__install']}\n  {slug} fit", file=sys.stderr)
