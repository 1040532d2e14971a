"""metrics.csv, which is always on and survives a resume, and what wandb and TensorBoard are told of the run folder."""

import csv
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jsonargparse import Namespace
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_info, rank_zero_only

WANDB_URL = "https://api.wandb.ai"
CONNECT_SECONDS = 3.0


class MetricsCsv(Logger):
    """Appends every logged value to metrics.csv at once; a new column rewrites the file aside.

    Args:
        run: the run folder.
        first_step: the step at which this process goes on; rows from there on are due again and are dropped.
    """

    def __init__(self, run: Path, first_step: int = 0) -> None:
        super().__init__()
        self.path = run / "metrics.csv"
        self.first_step = first_step
        self._columns: list[str] | None = None

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self.path.parent)

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        pass  # config.yaml holds them

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        row: dict[str, Any] = {"step": step, **metrics}
        if self._columns is None or not row.keys() <= set(self._columns):
            self._rewrite(row)
        with self.path.open("a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, self._columns or []).writerow(row)

    def _kept_rows(self) -> list[dict[str, Any]]:
        if not self.path.is_file():
            return []
        with self.path.open(newline="", encoding="utf-8") as file:
            whole = [line for line in file if line.endswith("\n")]  # a killed run may leave half a line
        rows = list(csv.DictReader(whole))
        return rows if self._columns else [row for row in rows if int(row["step"]) < self.first_step]

    def _rewrite(self, row: dict[str, Any]) -> None:
        rows = self._kept_rows()
        self._columns = list(dict.fromkeys(key for known in [*rows[:1], row] for key in known))
        aside = self.path.with_suffix(".part")
        with aside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, self._columns)
            writer.writeheader()
            writer.writerows(rows)
        aside.replace(self.path)


def _wandb_is_reachable() -> bool:
    import requests.utils  # comes with wandb

    url = os.environ.get("WANDB_BASE_URL", WANDB_URL)
    if not (os.environ.get("WANDB_API_KEY") or requests.utils.get_netrc_auth(url)):
        rank_zero_info("wandb: no key found, logging offline (wandb login makes it online).")
        return False
    address = urlsplit(url)
    try:
        with socket.create_connection((address.hostname, address.port or 443), timeout=CONNECT_SECONDS):
            return True
    except OSError as error:
        rank_zero_info(f"wandb: {address.hostname} can't be reached ({error}), logging offline.")
        return False


def _wandb(run: Path) -> dict[str, Any]:
    offline = os.environ.get("WANDB_MODE") in {"offline", "disabled"} or not _wandb_is_reachable()
    # The folder's name is the run's id, so that a resumed run goes on as the same one.
    return {"save_dir": str(run), "version": f"{run.parent.name}_{run.name}", "offline": offline, "resume": "allow"}


def _tensorboard(run: Path) -> dict[str, Any]:
    return {"save_dir": str(run), "name": "tensorboard", "version": ""}


RUN_ARGUMENTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "WandbLogger": _wandb,
    "TensorBoardLogger": _tensorboard,
}


def run_arguments(logger: Namespace, run: Path) -> dict[str, Any]:
    """Arguments that tie a configured logger to the run folder, by the name of its class."""
    known = RUN_ARGUMENTS.get(logger.class_path.rsplit(".", 1)[-1])
    if known:
        return known(run)
    return {"save_dir": str(run)} if "save_dir" in logger.init_args else {}
