"""Where a node's HTTP for operators is, and the token for changes, as a note in the node's folder that only
its owner can read."""

import logging
import os
import secrets
from pathlib import Path

import msgspec

from qanat.events.durable import tell
from qanat.runtime.url import format_address

log = logging.getLogger("qanat.node")

FILE = "admin.json"


class AdminNote(msgspec.Struct, frozen=True):
    url: str
    token: str
    pid: int


def leave_note(folder: Path, host: str, port: int) -> AdminNote:
    """A new token for each life of the node. Without room for the note nobody can change anything, but the
    node can serve."""
    reachable = "127.0.0.1" if host in ("", "0.0.0.0", "::") else host
    note = AdminNote(f"http://{format_address(reachable, port)}", secrets.token_hex(16), os.getpid())
    try:
        tell(folder / FILE, msgspec.json.encode(note), mode=0o600)
    except OSError as error:
        log.error(
            "no note for operators, so they can change nothing until a restart",
            extra={"file": str(folder / FILE), "reason": str(error)},
        )
        remove_note(folder)  # an earlier life's
    return note


def read_note(folder: Path) -> AdminNote | None:
    """None where no such node runs, or it is another's."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=AdminNote)
    except (OSError, msgspec.MsgspecError):
        return None


def remove_note(folder: Path) -> None:
    (folder / FILE).unlink(missing_ok=True)
