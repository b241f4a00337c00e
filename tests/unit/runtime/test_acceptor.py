"""Connections that are just being made when their listener closes."""

import socket

import pytest
from tests.waiting import run, until

from qanat.runtime.acceptor import Acceptor
from qanat.runtime.listener import listen
from qanat.wire.control import Identity


@pytest.mark.parametrize("uvloop", [True, False])
@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_connection_that_is_being_made_does_not_hold_up_the_end(
    uvloop: bool, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener closes in the moment after the connection was taken, and so many turns of the loop
    later."""
    taken: list[socket.socket] = []
    take = Acceptor._take

    def noted(self: Acceptor, sock: socket.socket) -> None:
        taken.append(sock)
        take(self, sock)

    monkeypatch.setattr(Acceptor, "_take", noted)

    async def story() -> None:
        left = turns

        def enough() -> bool:
            nonlocal left
            left -= bool(taken)
            return left < 0 if turns else bool(taken)

        listener = await listen("127.0.0.1", 0, Identity("here"), {})
        with socket.create_connection(("127.0.0.1", listener.port)) as peer:
            peer.setblocking(False)
            await until(enough, every_s=0)
            await listener.close(deadline_s=3600)
            assert not listener.connections
            await until(lambda: _ended(peer))
            await until(lambda: taken[0].fileno() < 0)

    run(story(), uvloop=uvloop)


def _ended(peer: socket.socket) -> bool:
    try:
        return peer.recv(1000) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
