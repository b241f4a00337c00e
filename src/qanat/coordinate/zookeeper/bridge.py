"""Stands for the coordinator within a node: takes what a session says to the embedded server, and answers
from ZooKeeper."""

import logging
from collections.abc import Callable
from typing import TypeAlias

from qanat.coordinate.messages import Expired, Open, Opened, ToClient, ToServer
from qanat.coordinate.zookeeper.life import Life
from qanat.coordinate.zookeeper.link import Connect

log = logging.getLogger("qanat.zookeeper")

Say: TypeAlias = Callable[[ToClient], None]
REFUSALS_MAX = 100
"""Different ones that are logged before anybody is let in again; as many servers and nodes are enough to see
what is wrong."""


class Bridge:
    """One session's. `root` is the node under which all of ours lies, or empty; `tick_us` is how long a
    server of the ensemble may keep a heartbeat to itself before its leader knows of it (see
    docs/coordinator.md)."""

    def __init__(self, connect: Connect, say: Say, *, root: str, tick_us: int) -> None:
        self._connect, self._say, self._root, self._tick_us = connect, say, root, tick_us
        self._life: Life | None = None
        self.refusal = ""
        """Why ZooKeeper will not have us, in a sentence; empty when it does, or is away."""
        self._refusals: set[str] = set()
        """Those that were logged since it last did."""

    def _note(self, refusal: str) -> None:
        if not refusal:
            self._refusals.clear()
        elif refusal not in self._refusals and len(self._refusals) < REFUSALS_MAX:
            self._refusals.add(refusal)
            log.error("not let in by ZooKeeper", extra={"reason": refusal})
        self.refusal = refusal

    def on_message(self, message: ToServer) -> None:
        life = self._life
        if isinstance(message, Open):
            if life is None or life.ended or life.nonce != message.nonce:
                self.close()
                self._life = Life(self._connect, self._say, message, self._root, self._tick_us, self._note)
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
