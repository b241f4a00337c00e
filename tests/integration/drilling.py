"""A game: three regions under load, a fault at a time, drawn from a seed; at the end what was acknowledged
has reached everyone."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from tests.integration.clocks import called

from qanat.coordinate import SessionConfig
from qanat.operate.control import Declined, call
from qanat.operate.file import Deployment, Link, Region, standard
from qanat.operate.home import Home
from qanat.operate.operations import temporary, wait_until_serving
from qanat.operate.overview import look
from qanat.protocols.chain import ChainConfig
from qanat.protocols.proxy_level import ProxyLevelConfig
from qanat.runtime.settings import TransportSettings
from qanat_workshop.drill_clients import ENTRY, read_journal

SEED = int(os.environ.get("QANAT_TEST_SEED", "20261115"))
PAUSE_S = (0.1, 0.7)
"""Between two kills. A node is back, and in its chain again, after one to two seconds: so failures
overlap."""
AWAY_S = (0.0, 0.6)
DEADLINE_S = 300


def quick() -> Deployment:
    """The standard deployment with shorter times: failures are noticed in a second, on a busy machine. One
    link compresses, and one chain is of three, so that it has a middle."""
    base = standard("kills", first_port=0)
    return msgspec.structs.replace(
        base,
        regions={**base.regions, "eu": Region(3)},
        links=(Link(("eu", "us"), "lz4"),),
        session=SessionConfig(timeout_ms=1_000.0, retry_ms=100.0),
        chain=ChainConfig(failure_ms=2_000.0),
        proxy_level=ProxyLevelConfig(advertise_ms=100.0, stall_ms=1_000.0),
        transport=TransportSettings(backoff_limit_ms=300, heartbeat_ms=500, heartbeat_misses=4),
    )


class ClientProcess:
    """A publisher or a subscriber; killed and started again with the same words."""

    def __init__(self, name: str, *words: str) -> None:
        self._name, self._words = name, words
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "qanat_workshop.drill_clients", *self._words]
        return subprocess.Popen(command, env=called(self._name))

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process = self._start()

    def wait(self) -> int:
        return self._process.wait(DEADLINE_S)

    def check(self) -> None:
        assert self._process.poll() is None, f"{self._words[0]} ended by itself with {self._process.poll()}"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


class Drills:
    """Chooses what happens next, does it, and remembers it."""

    def __init__(self, home: Home, clients: dict[str, ClientProcess], rng: random.Random) -> None:
        self.story: list[str] = []
        self.killed: Counter[str] = Counter()
        self._home, self._clients, self._rng = home, clients, rng
        self._began = time.monotonic()
        self._nodes = list(call(home, "status")["nodes"])
        self._healing = 0
        self._deck: list[str] = []
        """Who is next: nodes twice, clients once, shuffled; so each has its turn."""

    def step(self) -> None:
        if self._healing:
            self._healing -= 1
            if not self._healing:
                self._do("heal", "cuts", cut=False, pairs=[])
        elif self._rng.random() < 0.15:
            a, b = self._rng.sample(["eu", "us", "asia"], 2)
            pairs = [(a, b), (b, a)] if self._rng.random() < 0.6 else [(a, b)]
            self._healing = self._rng.randint(2, 6)
            self._do(f"cut {pairs}", "cuts", cut=True, pairs=pairs)
        if not self._deck:
            self._deck = [*self._nodes, *self._nodes, *self._clients]
            self._rng.shuffle(self._deck)
        victim = self._deck.pop()
        if self.harm(victim):
            self.killed[victim] += 1
        else:
            self._deck.insert(0, victim)

    def harm(self, victim: str) -> bool:
        """Kills it; false if it was down already."""
        if victim in self._clients:
            self._tell(f"kill {victim}")
            self._clients[victim].kill()
            return True
        return self._do(f"kill {victim}", "kill", node=victim, pause_s=self._rng.uniform(*AWAY_S))

    def pause_s(self) -> float:
        return self._rng.uniform(*PAUSE_S)

    def end(self) -> None:
        """What still lasts is over."""
        self._do("heal", "cuts", cut=False, pairs=[])

    def prove(self, folder: Path) -> None:
        """What else is to be shown at the end, while all runs; `folder` has what the clients wrote."""

    def _do(self, words: str, do: str, **details: Any) -> bool:
        try:
            call(self._home, do, **details)
        except Declined:  # it is down already
            return False
        self._tell(words)
        return True

    def _tell(self, words: str) -> None:
        self.story.append(f"{time.monotonic() - self._began:7.2f} s  {words}")


@contextmanager
def told_on_failure(drills: Drills, home: Home) -> Iterator[None]:
    try:
        yield
    except BaseException:
        print(f"seed {SEED} (QANAT_TEST_SEED), {sum(drills.killed.values())} faults; what happened:")
        print("\n".join(drills.story))
        try:
            overview = look(home)
            print("missing:", overview.missing(), *overview.streams().items(), sep="\n")
        finally:
            for path in sorted((home.folder / "logs").glob("*.log")):
                print(f"--- {path.name}", *path.read_text().splitlines()[-15:], sep="\n")
        raise


def acknowledged(path: Path) -> int:
    return int(struct.unpack("<Q", path.read_bytes())[0]) if path.exists() and path.stat().st_size else 0


Make = Callable[[Home, dict[str, ClientProcess], random.Random], Drills]


def play(folder: Path, faults: int, make_drills: Make = Drills, deployment: Deployment | None = None) -> None:
    """The whole game: clients in every region, so many faults, and the proof. What subscribers were given is
    recorded in `folder`."""
    rng = random.Random(SEED)
    chosen = quick() if deployment is None else deployment
    streams = list(chosen.streams)
    clients: dict[str, ClientProcess] = {}
    with temporary(chosen, "qanat-kills-") as home:
        urls = look(home).urls()
        acked = {stream: folder / f"{stream}.acknowledged" for stream in streams}
        members = {f"{region} by mesh {number}": region for region in [*urls][:1] for number in (1, 2)}
        journals = {name: folder / f"{name}.journal" for name in (*urls, *members)}
        try:
            begun: dict[str, tuple[str, ...]] = {}
            for number, stream in enumerate(streams):
                url = urls[chosen.streams[stream].owner]
                begun[f"publisher {stream}"] = ("publish", url, stream, str(number), str(acked[stream]))
            for region, url in urls.items():
                begun[f"subscriber {region}"] = ("subscribe", url, str(journals[region]), *streams)
            for name, region in members.items():
                begun[f"member {name}"] = ("member", urls[region], str(journals[name]), *streams)
            for name, words in begun.items():
                clients[name] = ClientProcess(name, *words)
            drills = make_drills(home, clients, rng)
            with told_on_failure(drills, home):
                _wait_for_the_first(acked)
                _play(drills, clients, acked, faults)
                wait_until_serving(home, patience_s=DEADLINE_S)
                totals = _finish(clients, acked)
                _wait_for_all(journals, totals)
                for region, journal in journals.items():
                    check(region, read_journal(journal), totals)
                everyone = {*call(home, "status")["nodes"], *clients}
                assert set(drills.killed) == everyone or 3 * len(everyone) > faults, (
                    "someone was never killed"
                )
                drills.prove(folder)
        finally:
            for client in clients.values():
                client.end()
    assert sum(drills.killed.values()) >= faults
    assert min(totals) > 0


def _wait_for_the_first(acked: dict[str, Path]) -> None:
    """On a busy machine a process may take longer to start than many kills do: the game begins when all are
    at work."""
    deadline = time.monotonic() + DEADLINE_S
    while not all(acknowledged(path) for path in acked.values()):
        assert time.monotonic() < deadline, "a publisher did not begin"
        time.sleep(0.05)


def _play(drills: Drills, clients: dict[str, ClientProcess], acked: dict[str, Path], faults: int) -> None:
    """Faults until there were enough; what was once acknowledged stays so, whoever of the publishers is
    restarted."""
    known = dict.fromkeys(acked, 0)
    while sum(drills.killed.values()) < faults:
        drills.step()
        time.sleep(drills.pause_s())  # the time between failures, not a wait for a condition
        for client in clients.values():
            client.check()
        for stream, path in acked.items():
            now = acknowledged(path)
            assert now >= known[stream], f"{stream}: {known[stream]} were acknowledged, {now} are stored"
            known[stream] = now
    drills.end()


def _finish(clients: dict[str, ClientProcess], acked: dict[str, Path]) -> list[int]:
    for path in acked.values():
        path.with_name(f"{path.name}.stop").touch()
    for name, client in clients.items():
        if name.startswith("publisher"):
            assert client.wait() == 0, f"{name} could not finish"
    return [acknowledged(path) for path in acked.values()]


def _wait_for_all(journals: dict[str, Path], totals: list[int]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    for region, journal in journals.items():
        while any(got < total for got, total in zip(_received(journal, len(totals)), totals, strict=True)):
            received = _received(journal, len(totals))
            assert time.monotonic() < deadline, f"{region} has {received} of {totals}"
            time.sleep(0.05)


def _received(journal: Path, streams: int) -> list[int]:
    """Events in whole entries, by stream; the subscriber is writing."""
    counts = [0] * streams
    data = journal.read_bytes()
    for number, _, _, events, *_ in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY.size]):
        counts[number] += events
    return counts


def check(region: str, entries: list[tuple[int, ...]], totals: list[int]) -> None:
    """Sequence numbers and the publishers' own counters both follow each other from the first to the last."""
    for number, total in enumerate(totals):
        sequence, counter = 1, 0
        for _, first, last, events, first_counter, follow in (e for e in entries if e[0] == number):
            where = f"{region}, stream {number}, after {counter} events"
            assert first == sequence, f"{where}: sequence number {first}, expected {sequence}"
            assert first_counter == counter and follow, (
                f"{where}: counter {first_counter}, expected {counter}"
            )
            assert events == last - first + 1, f"{where}: {events} events in {first}..{last}"
            sequence, counter = last + 1, counter + events
        assert counter == total, f"{region}, stream {number}: {counter} events, {total} were acknowledged"
