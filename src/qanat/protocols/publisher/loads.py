"""How many flows each subscriber has at other publishers, through the coordinator: what balancing over all of
them needs to know.

Each publisher says so in an ephemeral node of its own, and reads the others' now and then. It is a hint: one
that is old makes the balance worse for a while, and nothing else.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from qanat.protocols.registry import Calls, Found, Registry, make_folders, node_name

FOLDER = "/balance"
Flows: TypeAlias = dict[str, dict[str, int]]
"""By application and subscriber."""
encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(Flows).decode


class Loads:
    """`tick` tells and asks; `elsewhere` is what others said last."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._me = ""
        self._said: bytes | None = None
        self._others: dict[str, Flows] = {}
        self._calls = Calls()

    def on_opened(self, session: int) -> None:
        self._calls.forget()
        self._me, self._said = node_name(self._address, session), None

    def on_expired(self) -> None:
        """What others said may be old by now, and is still the best there is."""
        self._calls.forget()
        self._me = ""

    def elsewhere(self, application: str) -> dict[str, int]:
        """Subscribers and their flows at all other publishers together."""
        total: dict[str, int] = {}
        for flows in self._others.values():
            for subscriber, count in flows.get(application, {}).items():
                total[subscriber] = total.get(subscriber, 0) + count
        return total

    def tick(self, registry: Registry, mine: Mapping[str, Mapping[str, int]]) -> None:
        if self._me:
            self._tell(registry, encode(mine))
            self._ask(registry)

    def _tell(self, registry: Registry, said: bytes) -> None:
        if said == self._said:
            return

        def told(found: Found) -> None:
            if found.problem == "node-exists":  # it was made, and the answer was lost
                self._said = b""
            else:
                self._said = said if found.ok else None

        then = self._calls.once("tell", told)
        if then is None:
            return
        path = f"{FOLDER}/{self._me}"
        if self._said is None:
            make_folders(registry, FOLDER)
            registry.create(path, said, then, ephemeral=True)
        else:
            registry.set(path, said, -1, then)

    def _ask(self, registry: Registry) -> None:
        def listed(found: Found) -> None:
            if found.ok:
                names = self._newest(found.children)
                self._others = {name: self._others[name] for name in names if name in self._others}
                for name in names:
                    self._read(registry, name)

        then = self._calls.once("ask", listed)
        if then is not None:
            registry.children(FOLDER, then)

    def _newest(self, children: Iterable[str]) -> list[str]:
        """One life of each of the others."""
        lives: dict[str, int] = {}
        for child in children:
            address, _, life = child.rpartition("@")
            if life.isdecimal() and address != self._address.replace("/", "~"):
                lives[address] = max(lives.get(address, 0), int(life))
        return [f"{address}@{life}" for address, life in lives.items()]

    def _read(self, registry: Registry, name: str) -> None:
        def read(found: Found) -> None:
            if found.ok:
                self._others[name] = decode(found.data)

        then = self._calls.once(f"read {name}", read)
        if then is not None:
            registry.get(f"{FOLDER}/{name}", then)
