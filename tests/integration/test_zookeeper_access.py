"""A real server with TLS and access control: who has the password and a certificate agrees with others who
do; nobody else is let in, or is told what is in it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from tests.integration.coordinating import Party
from tests.integration.publishing import QUICK, nursery
from tests.servers.certificates import Certificate, authority, signed
from tests.servers.rocksdb import rocks_process
from tests.servers.zookeeper import TICK_MS, Ensemble, Tls, zookeeper_ensemble
from tests.waiting import run, until, wait_until

from qanat.coordinate import SessionConfig
from qanat.coordinate.zookeeper import ZooKeeperAccess

SECRET, WRONG = "s3cret: of ours", "not-s3cret"
PATIENT = SessionConfig(timeout_ms=20_000.0, retry_ms=50.0, zookeeper_tick_ms=TICK_MS)


class House:
    """The server, its authority, a stranger's, and files with passwords."""

    def __init__(self, folder: Path, ensemble: Ensemble, trusted: Certificate) -> None:
        self.folder, self.ensemble = folder, ensemble
        mine = signed(folder, trusted, "mine")
        self.trusted = {
            "ca": str(trusted.cert),
            "certificate": str(mine.cert),
            "key": str(mine.key),
        }
        for name, password in (("right", SECRET), ("wrong", WRONG)):
            (folder / name).write_text(f"{password}\n", encoding="utf-8")

    def access(self, password: str = "right", **changed: Any) -> ZooKeeperAccess:
        words = {"user": "ann", "password_file": str(self.folder / password), **self.trusted, **changed}
        return ZooKeeperAccess(**words)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("house")
    trusted = authority(folder)
    tls = Tls(signed(folder, trusted, "server"), trusted)
    with zookeeper_ensemble(folder / "servers", 1, tls) as ensemble:
        yield House(folder, ensemble, trusted)


@pytest.fixture
def other(house: House) -> Iterator[KazooClient]:
    """Somebody else with a way to the server, and without a certificate."""
    client = KazooClient(house.ensemble.hosts, timeout=20)
    client.start(60)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@asynccontextmanager
async def party(url: str, name: str, access: ZooKeeperAccess) -> AsyncIterator[Party]:
    made = Party(f"test/{name}", url, PATIENT, access)
    try:
        await made.driver.start_unlisted()
        yield made
    finally:
        await made.close()


def acls(client: KazooClient, path: str) -> Iterator[tuple[str, Any]]:
    yield path, client.get_acls(path)[0]
    for name in client.get_children(path):
        yield from acls(client, f"{path}/{name}")


def test_those_with_password_and_certificate_agree_and_what_they_make_is_theirs_alone(
    house: House, other: KazooClient
) -> None:
    async def work() -> None:
        url = house.ensemble.secure_url("theirs")
        async with party(url, "a", house.access()) as a, party(url, "b", house.access()) as b:
            assert (await a.create("/x", b"0")).ok
            assert (await a.create("/e", ephemeral=True)).ok
            assert (await b.get("/x", watch=True)).data == b"0"
            assert (await b.set("/x", bytes(300_000), 0)).ok  # of many records
            await until(lambda: b.events == [("data", "/x")])
            assert len((await a.get("/x")).data) == 300_000
            calls = await asyncio.gather(*(a.get("/e") for _ in range(200)))  # many answers at a time
            assert all(call.ok for call in calls)
            for forbidden in (
                lambda: other.get("/theirs/x"),
                lambda: other.set("/theirs/x", b"mine"),
                lambda: other.create("/theirs/y"),
                lambda: other.delete("/theirs/x"),
                lambda: other.set_acls("/theirs/x", OPEN_ACL_UNSAFE),
            ):
                with pytest.raises(NoAuthError):
                    await asyncio.to_thread(forbidden)
            assert (await a.get("/x")).version == 1 and a.coordination.problem == ""
            other.add_auth("digest", f"ann:{SECRET}")
            found = dict(await asyncio.to_thread(lambda: list(acls(other, "/theirs"))))
            assert set(found) >= {"/theirs", "/theirs/sessions", "/theirs/x", "/theirs/e"}
            assert all(acl == [make_digest_acl("ann", SECRET, all=True)] for acl in found.values()), found

    run(work())


@pytest.mark.parametrize(
    ("secure", "changed", "sentence"),
    [
        (True, {"password": "wrong"}, "we may not change /kept/sessions: check zookeeper.user"),
        (False, {"user": "", "password_file": "", "ca": "", "certificate": "", "key": ""}, "we may not"),
        (True, {"ca": ""}, "is not trusted"),
        (True, {"certificate": "", "key": ""}, "makes no encrypted connection with us"),
        (False, {}, "makes no encrypted connection with us"),
    ],
    ids=["wrong password", "no user", "not our authority", "no certificate", "no TLS there"],
)
def test_who_lacks_something_is_not_let_in_and_told_what(
    house: House,
    other: KazooClient,
    caplog: pytest.LogCaptureFixture,
    secure: bool,
    changed: dict[str, str],
    sentence: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    other.add_auth("digest", f"ann:{SECRET}")
    other.ensure_path("/kept/sessions", [make_digest_acl("ann", SECRET, all=True)])
    before = other.get("/kept/sessions")

    async def work() -> None:
        url = (house.ensemble.secure_url if secure else house.ensemble.url)("kept")
        async with party(url, "stranger", house.access(**changed)) as stranger:
            asked = asyncio.create_task(stranger.get("/sessions"))
            await until(
                lambda: sentence in stranger.coordination.problem, say=lambda: stranger.coordination.problem
            )
            assert not stranger.leased() and stranger.session.id == 0
            assert not asked.done()
            asked.cancel()

    run(work())
    assert other.get("/kept/sessions") == before
    ours_said = [record for record in caplog.records if record.name.startswith("qanat")]
    assert len([each for each in ours_said if sentence in str(vars(each).get("reason"))]) == 1, "once"
    assert not any(secret in str(vars(each)) for each in ours_said for secret in (SECRET, WRONG))


def test_a_publisher_is_let_in_when_its_password_is_right(house: House, tmp_path: Path) -> None:
    access = "".join(f'{name} = "{value}"\n' for name, value in house.trusted.items())
    told = (
        f'[coordinator]\nurl = "{house.ensemble.secure_url("publishers")}"\n'
        f"[session]\ntimeout_ms = 20000.0\nretry_ms = 100.0\nzookeeper_tick_ms = {TICK_MS}.0\n"
        f'[applications.cache]\nstart = "earliest"\n[zookeeper]\nuser = "ann"\n{access}password_file = '
    )
    with rocks_process(tmp_path / "log") as log, nursery(tmp_path) as home:
        text = f'[log]\nurl = "{log.url}?dataset=shop"\nsharding = "hash:8"\n{QUICK}{told}'
        right = home.node("publisher", "right", f'{text}"{house.folder / "right"}"\n')
        wait_until(lambda: right.status().get("copy", {}).get("owns") == ["cache/0"], say=right.status)
        wrong = home.node("publisher", "wrong", f'{text}"{house.folder / "wrong"}"\n')
        wait_until(
            lambda: "zookeeper.user" in wrong.status().get("coordinator_problem", ""), say=wrong.status
        )
        assert not wrong.status()["copy"]["leased"] and not wrong.status()["copy"]["owns"]
        assert SECRET not in str(right.status()) and WRONG not in str(wrong.status())
