"""Stands for the coordinator within a node: takes what a session says to the embedded server, and answers from ZooKeeper."""

from collections.abc import Callable
from typing import TypeAlias

from qanat.coordinate.messages import Expired, Open, Opened, ToClient, ToServer
from qanat.coordinate.zookeeper.life import Life
from qanat.coordinate.zookeeper.link import Connect

Say: TypeAlias = Callable[[ToClient], None]


class Bridge:
    """One session's. `root` is the node under which all of ours lies, or empty; `tick_us` is how long a server of the ensemble may keep a
    heartbeat to itself before its leader knows of it (see docs/coordinator.md)."""

    def __init__(self, connect: Connect, say: Say, *, root: str, tick_us: int) -> None:
        self._connect, self._say, self._root, self._tick_us = connect, say, root, tick_us
        self._life: Life | None = None

    def on_message(self, message: ToServer) -> None:
        life = self._life
        if isinstance(message, Open):
            if life is None or life.ended or life.nonce != message.nonce:
                self.close()
                self._life = Life(self._connect, self._say, message, self._root, self._tick_us)
            elif life.number:
                self._say(Opened(life.nonce, life.number, life.timeout_us))
            else:
                life.begin()
        elif life is None or life.ended or life.number != message.session:
            self._say(Expired(message.session))
        else:
            life.on_message(message)

    def close(self) -> None:
        """No session stays open."""
        if self._life is not None:
            self._life.end()
            self._life = None
