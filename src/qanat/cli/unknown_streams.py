"""The error for an unknown stream: where the command looked, similar names, and how to create the stream."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

from qanat.events.errors import LocalError

if TYPE_CHECKING:
    from qanat.cli.target import Target
    from qanat.client import Client

_NAMED = 8
"""Most streams that the error lists."""


class UnknownStream(LocalError):
    """No stream has this name."""


class Missing(NamedTuple):
    """`deployed`: the server is a replica of a region, which creates no streams by itself."""

    stream: str
    names: list[str]
    deployed: bool

    def meant(self) -> str:
        """A question with similar names, if there are any."""
        near = difflib.get_close_matches(self.stream, self.names, n=3, cutoff=0.6)
        return f"did you mean {' or '.join(near)}?" if near else ""

    def error(self, target: Target, otherwise: str) -> UnknownStream:
        """`otherwise` is the advice at a single server."""
        region = f" --region {target.region}" if target.region else ""
        how = f"`qanat stream create {self.stream}{region}` creates it" if self.deployed else otherwise
        where = f"there is no stream {self.stream!r} at {target.place}"
        return UnknownStream(f"{where}; {self.meant() or self._there()} {how}")

    def _there(self) -> str:
        if not self.names:
            return "there are none yet."
        more = len(self.names) - _NAMED
        return f"there are {', '.join(self.names[:_NAMED])}{f' and {more} more' if more > 0 else ''}."


def missing(client: Client, stream: str) -> Missing | None:
    """None if the stream exists."""
    from qanat.client import NoStream

    try:
        client.ask("stream", stream)
    except NoStream:
        names = [each["stream"] for each in client.ask("streams")]
        return Missing(stream, names, bool(client.ask("place")["region"]))
    return None
