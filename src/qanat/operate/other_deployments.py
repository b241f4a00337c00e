"""Deployments that lie elsewhere (`up --data`): a note of each in the state folder, where commands look for
what runs."""

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from qanat.events.durable import make_folder, replace
from qanat.operate.home import NOTES, Home, root


def leave_note(home: Home, environment: Mapping[str, str]) -> None:
    """Without room for it the deployment runs all the same, and is found by `--data`."""
    note = _note(home, environment)
    if home.folder.parent == note.parent:
        return
    with suppress(OSError):
        make_folder(note.parent, mode=0o700)
        replace(note, str(home.folder).encode(), mode=0o600)


def remove_note(home: Home, environment: Mapping[str, str]) -> None:
    with suppress(OSError):
        _note(home, environment).unlink(missing_ok=True)


def _note(home: Home, environment: Mapping[str, str]) -> Path:
    name = hashlib.sha256(str(home.folder).encode()).hexdigest()[:16]
    return root(environment) / NOTES.replace("*", name)
