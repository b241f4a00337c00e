"""`qanat pub` that gets no further: what was published before is told."""

from __future__ import annotations

import os

import pytest

import qanat.client
from qanat.cli.main import main
from qanat.events.errors import RemoteError


class Full:
    """Takes so many pieces, then has no room."""

    room = 0

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Full:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask(self, *_: object) -> object:
        """The stream is there."""

    def publish_many(self, _stream: str, events: list[bytes], **_: object) -> tuple[int, int]:
        if not Full.room:
            raise RemoteError("the disk is full; nothing was stored")
        Full.room -= 1
        return 10_000 * (1 - Full.room) + 1, 10_000 * (1 - Full.room) + len(events)


@pytest.mark.parametrize(
    ("room", "told"), [(2, "published at least 20,000 events to s (1..20000), then:\n"), (0, "")]
)
def test_what_was_published_before_is_told(
    room: int, told: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(qanat.client, "Client", Full)
    monkeypatch.setattr(Full, "room", room)
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert main(["pub", "s", "--count", "50000", "--size", "10", "--url", "qanat://there:1"]) == 3
    assert capfd.readouterr().err == f"{told}qanat: the disk is full; nothing was stored\n"
