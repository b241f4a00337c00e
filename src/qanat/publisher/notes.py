"""What a publisher's folder says of itself: what its datamarkers count, and that there are any."""

from pathlib import Path

from qanat.events.errors import LocalError
from qanat.events.kept import Kept
from qanat.runtime.journal import CorruptJournal, is_there

_BEGAN = "began"


class PublisherNotes:
    """Each a file of one line, kept twice."""

    def __init__(self, data: Path, journal: Path) -> None:
        self._data, self._journal = data, journal
        self._began = Kept(data / _BEGAN)

    @property
    def has_served(self) -> bool:
        return Kept(self._data / "dataset").exists()

    def keep(self, name: str, now: str, differs: str) -> None:
        """Refuses what would make datamarkers count something else: with other shards, updates that were not
        sent would lie before one."""
        note = Kept(self._data / name)
        before = (note.mend() or b"").decode()
        if not before:
            note.write(now.encode())
        elif before != now:
            raise LocalError(
                f"the datamarkers in {self._data} {differs.format(repr(before), repr(now))}: give this"
                " publisher a folder of its own (node.data), where its applications begin anew"
            )

    def refuse_lost(self) -> None:
        """Before the journal is opened: if it is gone, applications would begin anew in silence."""
        if self._began.mend() is not None and not is_there(self._journal):
            raise CorruptJournal(
                f"{self._journal} is gone, and so is its twin; datamarkers stood in them: restore one from a"
                f" copy, or remove {self._began.path} and {self._began.twin} to have all applications begin"
                " anew"
            )

    def begin(self) -> None:
        """The journal is on disk."""
        if not self._began.exists():
            self._began.write(b"with a journal\n")
