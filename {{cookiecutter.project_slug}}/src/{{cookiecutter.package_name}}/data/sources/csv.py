"""A CSV file of image paths and labels; several labels of an image are separated by `|`."""

import csv
from collections.abc import Iterator
from pathlib import Path

from . import SPLITS, Samples, Source, existing, natural_order


def open_source(
    root: Path | None, path_column: str = "path", label_column: str = "label", split_column: str = "split"
) -> Source:
    """Paths are relative to the file's folder; the split column is optional."""
    root = existing(root, f"a CSV file with the columns {path_column} and {label_column}")
    splits: dict[str, tuple[list[str], list[Path], list[tuple[str, ...]]]] = {}
    seen: set[Path] = set()
    for line, row in _rows(root, [path_column, label_column]):
        split, path = row.get(split_column, "train"), root.parent / row[path_column]
        if split not in SPLITS:
            raise ValueError(f"{root} line {line}: {split_column} must be one of {SPLITS}, got {split!r}.")
        if not path.is_file():
            raise ValueError(f"{root} line {line}: {path_column} {row[path_column]!r} is no file in {root.parent}.")
        if path in seen:
            raise ValueError(f"{root} line {line}: {path_column} {row[path_column]!r} stands twice.")
        seen.add(path)
        keys, images, labels = splits.setdefault(split, ([], [], []))
        keys.append(Path(row[path_column]).as_posix())
        images.append(path)
        labels.append(tuple(label.strip() for label in row[label_column].split("|") if label.strip()))
    classes = {label for labels in splits["train"][2] for label in labels} if "train" in splits else set()
    return Source(natural_order(classes), {split: Samples(*columns) for split, columns in splits.items()})


def _rows(file: Path, columns: list[str]) -> Iterator[tuple[int, dict[str, str]]]:
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines, strict=True)
            header = list(reader.fieldnames or [])
            if missing := [column for column in columns if column not in header]:
                raise ValueError(f"{file} has no column {missing[0]!r}; it has {header}.")
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(f"{file} line {reader.line_num}: expected {len(header)} columns.")
                yield reader.line_num, row
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file} is no CSV file in UTF-8: {error}.") from error
