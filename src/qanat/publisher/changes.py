"""What operators changed while a publisher ran. It stands over the file until it is taken back, also after a
restart: an application that was added would otherwise end with the process, and its datamarkers with it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from qanat.events.errors import LocalError
from qanat.events.kept import Damaged, Kept
from qanat.publisher.settings import PublisherSettings
from qanat.runtime.config import Loaded

FILE = "changes.json"


class Changes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Settings over those of the file. None: it is not there, whatever the file says."""

    applications: dict[str, dict[str, Any] | None] = {}
    publisher: dict[str, Any] = {}
    companies: dict[str, tuple[str, ...] | None] = {}


def changed(settings: PublisherSettings, changes: Changes) -> PublisherSettings:
    """Raises `LocalError` where they do not fit together."""
    tree = msgspec.to_builtins(settings)
    for name, fields in changes.applications.items():
        if fields is None:
            tree["applications"].pop(name, None)
        else:
            tree["applications"][name] = {**tree["applications"].get(name, {}), **fields}
    tree["publisher"].update(changes.publisher)
    for name, members in changes.companies.items():
        if members:
            tree["companies"][name] = list(members)
        else:
            tree["companies"].pop(name, None)
    try:
        return msgspec.convert(tree, PublisherSettings)
    except (msgspec.ValidationError, ValueError) as error:
        raise LocalError(f"that does not fit: {error}") from None


class ChangesFile:
    """In the node's folder; kept twice."""

    def __init__(self, folder: Path) -> None:
        self._kept = Kept(folder / FILE)

    def read(self) -> Changes:
        try:
            data = self._kept.read()
            return Changes() if data is None else msgspec.json.decode(data, type=Changes)
        except (OSError, Damaged, msgspec.MsgspecError) as error:
            raise LocalError(
                f"{self._kept.path} cannot be read: {error}; it says what was changed while the publisher"
                " ran. Restore it, or remove it and begin again with what the settings' file says"
            ) from None

    def write(self, changes: Changes) -> None:
        self._kept.write(msgspec.json.format(msgspec.json.encode(changes)))


class Changeable:
    """Settings as the file says, with the changes over them: how a publisher loads its configuration."""

    def __init__(self, loaded: Callable[[], Loaded[PublisherSettings]]) -> None:
        self._loaded = loaded
        self._said: PublisherSettings
        self.changes = Changes()

    def load(self) -> Loaded[PublisherSettings]:
        found = self._loaded()
        self.changes = self._file(found.settings).read()
        self._said = found.settings
        return Loaded(changed(found.settings, self.changes), found.origins)

    def change(self, changes: Changes) -> PublisherSettings:
        """On disk when it returns."""
        new = changed(self._said, changes)
        self._file(self._said).write(changes)
        self.changes = changes
        return new

    @property
    def said(self) -> PublisherSettings:
        """What the file says, without the changes."""
        return self._said

    @staticmethod
    def _file(settings: PublisherSettings) -> ChangesFile:
        return ChangesFile(Path(settings.node.data).absolute())
