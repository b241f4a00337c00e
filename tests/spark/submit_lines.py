"""The lines for `spark-submit` that are on the page about Spark."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
APP = "src/qanat/cli/submit.py"


def lines() -> dict[str, list[str]]:
    """By the kind of their master."""
    page = (CHECKOUT / "docs" / "spark.md").read_text()
    found = [shlex.split(line) for line in re.findall(r"^spark-submit (.+)$", page, re.MULTILINE)]
    return {re.split(r"[:\[]", words[words.index("--master") + 1])[0]: words for words in found}


def ours(words: list[str]) -> list[str]:
    """What follows the application."""
    (at,) = [at for at, word in enumerate(words) if word.endswith(APP)]
    return words[at + 1 :]
