"""python classify.py BUNDLE FILE_OR_FOLDER...: path, label and score of images as CSV, once the bundle is checked."""

import csv
import sys
from pathlib import Path

from bundle import Bundle


def main(folder: Path, *paths: Path) -> None:
    """Hidden files of folders, and those of other kinds, are passed over."""
    bundle, output = Bundle(folder), csv.writer(sys.stdout)
    output.writerow(["path", "label", "score"])
    for path in paths:
        files = (file for file in path.rglob("[!.]*") if file.suffix.lower() in bundle.policy["suffixes"])
        for file in sorted(files) if path.is_dir() else [path]:
            scores = bundle.scores(bundle.decode(file)[None])["probabilities"][0]
            output.writerow([file, "|".join(bundle.labels(scores)), f"{scores.max():.6f}"])


if __name__ == "__main__":
    try:
        sys.exit(main(*map(Path, sys.argv[1:])) if len(sys.argv) > 2 else __doc__)
    except (OSError, ValueError, LookupError) as error:
        sys.exit(str(error))
