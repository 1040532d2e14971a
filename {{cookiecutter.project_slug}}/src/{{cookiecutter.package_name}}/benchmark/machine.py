"""On what the numbers were measured."""

import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ..data.loading import available_cpus


def describe_machine() -> dict[str, Any]:
    """CPU, system and date; the versions of runtimes are with the variants."""
    cpuinfo = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", cpuinfo.read_text("utf-8")) if cpuinfo.exists() else []
    return {
        "cpu": next(iter(names), platform.processor() or platform.machine()),
        "cpus": os.cpu_count(),
        "available_cpus": available_cpus(),
        "system": platform.platform(),
        "versions": {"python": platform.python_version(), "torch": version("torch")},
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
