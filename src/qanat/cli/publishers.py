"""What the commands for publishers share: how to find a publisher, and its HTTP client."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from qanat.events.errors import LocalError, RemoteError

DEFAULT = "http://127.0.0.1:7422"
VARIABLE, TOKEN = "QANAT_PUBLISHER", "QANAT_ADMIN_TOKEN"  # the name of a variable
WHERE = f"""\
--publisher, else {VARIABLE}, else {DEFAULT} names the publisher: by its settings' file, its data
folder or its HTTP address. A change needs the token in its folder (admin.json) or in {TOKEN}. A change
overrides the file, also after a restart, until you reset it.
"""
_PATIENCE_S = 30.0


class Declined(LocalError):
    """The publisher refused, with a reason."""

    exit_code = 1


def add_publisher(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    parser.add_argument(
        "--publisher",
        metavar="WHERE",
        action="append" if several else "store",
        help=(
            "its settings' file, its data folder, or"
            f" http://host:port{'; repeat it for several publishers' if several else ''} (default:"
            f" {VARIABLE}, else {DEFAULT})"
        ),
    )


class Publisher:
    """A client of one publisher's HTTP."""

    kind, option, run = "publisher", "--publisher", "publisher run"
    sign = "log_problem"
    """A field that only a publisher's status has."""
    example, data = DEFAULT, "qanat-publisher"

    def __init__(self, where: str) -> None:
        self.where = where
        self._token = os.environ.get(TOKEN, "")
        if "://" in where:
            if not where.startswith(("http://", "https://")):
                raise LocalError(
                    f"{where} is no HTTP address: give that of the {self.kind}'s admin.port, as"
                    f" {self.example}"
                )
            self.url = where.rstrip("/")
            return
        from qanat.runtime.admin_note import read_note

        path = Path(where)
        if not path.exists():
            raise LocalError(
                f"{where} is no file or folder of a {self.kind}, and no address as {self.example}"
            )
        folder = path if path.is_dir() else _data_of(path, self.data)
        note = read_note(folder)
        if note is None:
            raise RemoteError(f"no {self.kind} runs in {folder}; start it with `qanat {self.run} {where}`")
        self.url, self._token = note.url, note.token

    def status(self) -> Any:
        """The status; also checks the kind of the node, because stream servers have some of the same
        pages."""
        found = self.get("/status")
        if self.sign not in found:
            raise Declined(
                f"{found.get('name')!r} at {self.url} is no {self.kind}: name one with {self.option}"
            )
        return found

    def get(self, page: str, **query: object) -> Any:
        chosen = {name: value for name, value in query.items() if value not in (None, "")}
        return self._ask(f"{page}?{urlencode(chosen)}" if chosen else page)

    def post(self, page: str, **asked: object) -> Any:
        return self._ask(page, json.dumps(asked).encode(), self._token or self._local_token())

    def _local_token(self) -> str:
        """The token of a publisher on this machine, from its folder."""
        from qanat.runtime.admin_note import read_note

        folder = str(self.status().get("data", ""))
        note = read_note(Path(folder)) if folder else None
        if note is None or note.url.rpartition(":")[2] != self.url.rpartition(":")[2]:
            raise LocalError(
                f"a change needs the token of the {self.kind} at {self.url}: run this where you can"
                f" read {folder or 'its folder'}, or set {TOKEN} to the token in its admin.json"
            )
        return note.token

    def _ask(self, page: str, body: bytes | None = None, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"} if token else {}
        request = urllib.request.Request(f"{self.url}{page}", body, headers)  # where an operator says
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise self._refusal(error) from None
        except (OSError, ValueError, http.client.HTTPException) as error:
            silent = isinstance(error, ValueError | http.client.HTTPException)
            reason = "another protocol answers there" if silent else getattr(error, "reason", error)
            raise RemoteError(
                f"no {self.kind} answers at {self.url} ({reason}); name its settings' file or"
                f" folder with {self.option}"
            ) from None

    def _refusal(self, error: urllib.error.HTTPError) -> LocalError:
        text = error.read().decode(errors="replace").strip()
        if error.code == 409:
            return Declined(str(json.loads(text)["error"]))
        if error.code == 401:
            return Declined(f"{self.url} refused the token; {TOKEN} may hold one from before its restart")
        if error.code == 404:
            return Declined(f"{self.url} is no {self.kind}: {text}")
        return Declined(f"{self.url} answered {error.code}: {text}")


class Server(Publisher):
    """A client of the HTTP of a stream server or a region's replica."""

    kind, option, run = "server", "--server", "serve"
    sign = "streams"
    example, data = "http://127.0.0.1:7412", "qanat-data"


def add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        metavar="WHERE",
        help=(
            "ask a server or a region's replica instead: its settings' file, its data folder, or"
            " http://host:port"
        ),
    )


def find(args: argparse.Namespace) -> Publisher:
    return Publisher(args.publisher or os.environ.get(VARIABLE) or DEFAULT)


def named_by_default() -> list[str]:
    """The publishers in the variable, separated by commas."""
    return [one.strip() for one in (os.environ.get(VARIABLE) or DEFAULT).split(",") if one.strip()]


def _data_of(file: Path, usual: str) -> Path:
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LocalError(f"cannot read the settings in {file}: {error}") from None
    folder = os.environ.get("QANAT_NODE__DATA") or told.get("node", {}).get("data", usual)
    return Path(str(folder)).absolute()


def lag(seconds: float | None) -> str:
    """A lag for people."""
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds >= 0.05 else "–"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def amount(number: float | None) -> str:
    """A number of bytes, or of bytes per second, for people."""
    if number is None:
        return "no limit"
    for unit in ("", "k", "M", "G"):
        if abs(number) < 1000:
            return f"{number:.0f}{unit}" if not unit else f"{number:.1f}{unit}"
        number /= 1000
    return f"{number:.1f}T"
