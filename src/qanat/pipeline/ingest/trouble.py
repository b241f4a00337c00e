"""What a source waits for, told by whoever waits: a task or the process that plans, wherever Spark runs them,
in a file of the pipeline's folder.

They wait where they are. A query that failed instead would have to be started again, and Spark cannot always
let go of one that did. The file also says since
when: whoever takes the work over from a process that died while it waited goes on with what is left of its
patience.
"""

import json
import time
from pathlib import Path
from typing import Any

from qanat.events.durable import make_folder, tell
from qanat.events.errors import QanatError
from qanat.pipeline.ingest.failures import GivenUp
from qanat.runtime.backoff import DATASTORE_MS, Backoff


class Trouble:
    """Of one process. `file` is its own."""

    def __init__(self, file: Path, patience_s: float) -> None:
        self._file, self._patience_s = file, patience_s
        self._since: float | None = None
        if (told := _read(file)) is not None:
            self._since = time.monotonic() - (time.time() - float(told["since"]))
        self._told = ""
        self._backoff = Backoff(*DATASTORE_MS)

    def wait(self, error: QanatError) -> None:
        """Tells of it and waits a little; raises `GivenUp` once patience is over."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            self._backoff.reset()
        if now - self._since > self._patience_s:
            raise GivenUp(f"{error} (waited for it for {now - self._since:.0f} s)") from error
        if str(error) != self._told:
            self._told = str(error)
            text = json.dumps({"trouble": self._told, "since": time.time() - (now - self._since)})
            try:
                make_folder(self._file.parent)
                tell(self._file, text.encode())
            except OSError:
                pass  # to be told of less is no reason to do less
        self._backoff.sleep()

    def over(self) -> None:
        if self._since is not None:
            self._since, self._told = None, ""
            self._file.unlink(missing_ok=True)


def troubles(folder: Path) -> dict[str, Any]:
    """What somebody waits for, and since when; the longest. Empty if nobody waits."""
    read = (_read(file) for file in folder.glob("*.json"))
    found = (one for one in read if one is not None)
    return min(found, key=lambda one: float(one["since"]), default={})


def _read(file: Path) -> dict[str, Any] | None:
    """None if nobody waits, or no longer."""
    try:
        told: dict[str, Any] = json.loads(file.read_bytes())
        return told if "since" in told else None
    except (OSError, ValueError):
        return None


def forget(folder: Path) -> None:
    """Of processes that are no more, and of what they waited for."""
    for file in folder.glob("*.json"):
        file.unlink(missing_ok=True)
