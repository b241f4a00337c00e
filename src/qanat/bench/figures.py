"""Figures of several rounds, and what a process takes."""

from pathlib import Path
from statistics import median


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    """The median of each figure over the rounds."""
    return {name: median(round_[name] for round_ in rounds) for name in rounds[0]}


def resident_mb(pid: int) -> float:
    """Memory of a process that is in use now, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    return 0.0
