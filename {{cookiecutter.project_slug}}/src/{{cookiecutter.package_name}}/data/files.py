"""Which files of a folder are images."""

from collections.abc import Iterator
from pathlib import Path

from .decoding import IMAGE_SUFFIXES


def image_files(path: Path) -> list[Path]:
    """The file itself, or all images below a folder, sorted by path."""
    if not path.is_dir():
        return [path]
    if images := [file for file in files_below(path) if file.suffix.lower() in IMAGE_SUFFIXES]:
        return images
    raise ValueError(f"{path} holds no images ({', '.join(IMAGE_SUFFIXES)}).")


def visible(folder: Path) -> list[Path]:
    """Sorted entries without dot-files; a link that leads nowhere is an error, or a class could vanish unseen."""
    entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    if dangling := [entry for entry in entries if not entry.exists()]:
        raise ValueError(f"{len(dangling)} links in {folder} lead nowhere, for example {dangling[0]}.")
    return entries


def files_below(folder: Path) -> Iterator[Path]:
    """Visible files of a folder and of all folders in it."""
    for entry in visible(folder):
        if not entry.is_dir():
            yield entry
        elif folder.resolve().is_relative_to(entry.resolve()):
            raise ValueError(f"{entry} links to a folder that it lies in.")
        else:
            yield from files_below(entry)
