"""A replica, or a coordinator, whose disk gives back other bytes than were written: what it held is set
aside, and it begins anew.

Nothing is removed. Logs and journal go aside together: a replica without a journal says that its disk is
empty, so its chain never takes it for one that has what was acknowledged, and whatever happens next the worst
is that the chain waits.

Below the data folder:

| name | is |
|---|---|
| `damaged` | a sentence: damage was found while the replica ran, and it left its chain; the next start sets its state aside |
| `set-aside/<number>/` | `streams`, `journals` and the folders beside them as they were, and in `why.txt` the sentence that says why |
"""  # noqa: E501

from pathlib import Path

import msgspec

from qanat.events.durable import make_folder, move, remove, replace
from qanat.events.errors import LocalError
from qanat.log.errors import CorruptLog
from qanat.runtime.journal import TWINS, CorruptJournal
from qanat.runtime.journal_reached import REACHED
from qanat.serving.log_history import SYNCED

DAMAGED = (CorruptLog, CorruptJournal)
"""What is raised for bytes that were on disk and are not what was written."""
JOURNALS = "journals"
STREAMS = "streams"
ADVICE = (
    "restore the file from a backup (and remove the file `damaged` from the data folder, if there is one), or"
    " give up what the stream held here by moving its folder, and the file of that name in `streams.synced`,"
    " away; then start this replica again, and say `qanat coordinator rebuild` should its chain wait for it"
)
STATE = (JOURNALS, JOURNALS + TWINS, JOURNALS + REACHED, STREAMS, STREAMS + SYNCED)
"""All that a replica holds, by the names of its folders."""
_MOST = 3
"""States that may lie aside: a disk that damages one after another wants another disk, and would be full in
the end."""


class SetAside(msgspec.Struct, frozen=True):
    folder: str
    why: str


class DamagedState(LocalError):
    """What this replica holds is damaged, and nobody is known who has it whole."""

    exit_code = 1


class DamagedDisk:
    """The damage of one data folder. Blocks for a few files."""

    def __init__(self, data: Path) -> None:
        self._data, self._mark, self._aside = data, data / "damaged", data / "set-aside"

    def marked(self) -> str:
        """What an earlier life of this replica found; empty if nothing."""
        try:
            return self._mark.read_text(encoding="utf-8").strip() or "damage was found"
        except FileNotFoundError:
            return ""

    def mark(self, why: str) -> None:
        replace(self._mark, f"{why}\n".encode())

    def lying(self) -> list[SetAside]:
        """What was set aside and not taken away since."""
        found = []
        for folder in sorted(self._aside.glob("*"), key=lambda each: (len(each.name), each.name)):
            try:
                why = (folder / "why.txt").read_text(encoding="utf-8").strip()
            except OSError:
                continue
            found.append(SetAside(str(folder), why))
        return found

    def set_aside(self, why: str) -> SetAside:
        """Moves everything aside; after a crash in the middle, the next call goes on with it."""
        lying = self.lying()
        if len(lying) >= _MOST:
            raise DamagedState(
                f"{why}; {len(lying)} states lie in {self._aside} already, so the disk itself seems to be"
                " bad: look at it, remove what lies there, and start this replica again"
            )
        self.mark(why)
        done = {Path(each.folder).name for each in lying}
        number = next(number for number in range(1, _MOST + 1) if str(number) not in done)
        target = self._aside / str(number)
        make_folder(target)
        for name in STATE:
            if (self._data / name).exists():
                move(self._data / name, target / name)
        replace(target / "why.txt", f"{why}\n".encode())
        remove(self._mark)
        return SetAside(str(target), why)


def sentence(error: LocalError, stream: str = "") -> str:
    """What is damaged, without the advice that is for a log on its own."""
    if isinstance(error, CorruptLog):
        said = f"{error.file} is damaged at byte {error.offset}: {error.reason}"
        return f"stream {stream!r} is damaged ({said})" if stream else said
    return str(error)
