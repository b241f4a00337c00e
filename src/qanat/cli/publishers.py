"""What the commands for publishers share: which one is meant, and how it is asked."""

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
The publisher is the one of --publisher, else of {VARIABLE}, else {DEFAULT}: its settings' file, its data
folder, or the address of its HTTP. Looking needs nothing more; changes need the token in its folder
(admin.json), or in {TOKEN}. They stand over the file, also after a restart, until they are taken back.
"""
_PATIENCE_S = 30.0


class Declined(LocalError):
    """The publisher did not do it, and says why."""

    exit_code = 1


def add_publisher(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    parser.add_argument(
        "--publisher",
        metavar="WHERE",
        action="append" if several else "store",
        help=(
            "its settings' file, its data folder, or"
            f" http://host:port{'; may be given for each of several' if several else ''} (default:"
            f" {VARIABLE}, else {DEFAULT})"
        ),
    )


class Publisher:
    """Asks the HTTP of one publisher."""

    kind, option, run = "publisher", "--publisher", "publisher run"
    sign = "log_problem"
    """What only its status has."""
    example, data = DEFAULT, "qanat-publisher"

    def __init__(self, where: str) -> None:
        self.where = where
        self._token = os.environ.get(TOKEN, "")
        if "://" in where:
            if not where.startswith(("http://", "https://")):
                raise LocalError(
                    f"{where}: a {self.kind} is asked by its HTTP (admin.port), as {self.example}"
                )
            self.url = where.rstrip("/")
            return
        from qanat.runtime.admin_note import read_note

        path = Path(where)
        if not path.exists():
            raise LocalError(
                f"{where} is neither a {self.kind}'s file or folder nor an address, as {self.example}"
            )
        folder = path if path.is_dir() else _data_of(path, self.data)
        note = read_note(folder)
        if note is None:
            raise RemoteError(f"no {self.kind} runs in {folder}; start it with `qanat {self.run} {where}`")
        self.url, self._token = note.url, note.token

    def status(self) -> Any:
        """Also shows that it is one: servers of streams have some of the same pages."""
        found = self.get("/status")
        if self.sign not in found:
            raise Declined(
                f"{self.url} is {found.get('name')!r}, which is no {self.kind}: name another with"
                f" {self.option}"
            )
        return found

    def get(self, page: str, **query: object) -> Any:
        chosen = {name: value for name, value in query.items() if value not in (None, "")}
        return self._ask(f"{page}?{urlencode(chosen)}" if chosen else page)

    def post(self, page: str, **asked: object) -> Any:
        return self._ask(page, json.dumps(asked).encode(), self._token or self._local_token())

    def _local_token(self) -> str:
        """Of a publisher on this machine whose folder we may read."""
        from qanat.runtime.admin_note import read_note

        folder = str(self.status().get("data", ""))
        note = read_note(Path(folder)) if folder else None
        if note is None or note.url.rpartition(":")[2] != self.url.rpartition(":")[2]:
            raise LocalError(
                f"changes need the token of the {self.kind} at {self.url}: run this where"
                f" {folder or 'its folder'} can be read, or set {TOKEN} to the one in its admin.json"
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
            reason = "what is there speaks another protocol" if silent else getattr(error, "reason", error)
            raise RemoteError(
                f"no {self.kind} answers at {self.url} ({reason}); name its settings' file or its folder with"
                f" {self.option}"
            ) from None

    def _refusal(self, error: urllib.error.HTTPError) -> LocalError:
        text = error.read().decode(errors="replace").strip()
        if error.code == 409:
            return Declined(str(json.loads(text)["error"]))
        if error.code == 401:
            return Declined(f"{self.url} does not take this token; {TOKEN} may be of an earlier life of it")
        if error.code == 404:
            return Declined(f"{self.url} is no {self.kind}: {text}")
        return Declined(f"{self.url} answered {error.code}: {text}")


class Server(Publisher):
    """Asks the HTTP of a server of streams, or of a replica of a region."""

    kind, option, run = "server", "--server", "serve"
    sign = "streams"
    example, data = "http://127.0.0.1:7412", "qanat-data"


def add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--server",
        metavar="WHERE",
        help=(
            "of a server or a region's replica instead: its settings' file, its data folder, or"
            " http://host:port"
        ),
    )


def find(args: argparse.Namespace) -> Publisher:
    return Publisher(args.publisher or os.environ.get(VARIABLE) or DEFAULT)


def named_by_default() -> list[str]:
    """The variable may name several, with commas."""
    return [one.strip() for one in (os.environ.get(VARIABLE) or DEFAULT).split(",") if one.strip()]


def _data_of(file: Path, usual: str) -> Path:
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LocalError(f"{file} is no settings' file: {error}") from None
    folder = os.environ.get("QANAT_NODE__DATA") or told.get("node", {}).get("data", usual)
    return Path(str(folder)).absolute()


def lag(seconds: float | None) -> str:
    """As people read it."""
    if seconds is None:
        return "?"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds >= 0.05 else "–"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def amount(number: float | None) -> str:
    """Bytes, or bytes a second."""
    if number is None:
        return "no limit"
    for unit in ("", "k", "M", "G"):
        if abs(number) < 1000:
            return f"{number:.0f}{unit}" if not unit else f"{number:.1f}{unit}"
        number /= 1000
    return f"{number:.1f}T"
