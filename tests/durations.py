"""How long tests took, as recorded: the longest take turns, and all are dealt out to processes by their
lengths.

`./qanat test --update-durations` writes the file anew, of the tests that it runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
KEPT_S = 0.5
"""What takes less is not recorded."""


def read() -> dict[str, float]:
    try:
        return dict(json.loads(FILE.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return {}


def update(took: Mapping[str, float], file: Path = FILE) -> None:
    """Those that were not run keep what they had."""
    kept = read() | {name: round(seconds, 1) for name, seconds in took.items()}
    kept = {name: seconds for name, seconds in sorted(kept.items()) if seconds >= KEPT_S}
    file.write_text(json.dumps(kept, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
