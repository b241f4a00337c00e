"""Passwords and certificates for ZooKeeper: what does not fit is told before anybody is asked, and nothing of
it is printed."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest
from tests.servers.certificates import authority, signed

from qanat.coordinate.zookeeper import ZooKeeperAccess
from qanat.coordinate.zookeeper.access import BadZooKeeperAccess
from qanat.coordinate.zookeeper.kazoo_handler import LoopHandler
from qanat.operate.file import Deployment, Region
from qanat.operate.layout import node_files, ports_needed
from qanat.replica.settings import ProxySettings
from qanat.runtime.config import BadConfiguration, load


def test_a_password_comes_from_its_file_or_the_environment_and_is_not_printed(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("of the file \n", encoding="utf-8")
    environment = {"QANAT_ZOOKEEPER_PASSWORD": "of the environment"}
    keys = ZooKeeperAccess(user="ann", password_file=str(file)).keys(environment)
    assert (keys.user, keys.password, keys.tls) == ("ann", "of the file ", None)
    assert "of the file" not in f"{keys} {keys!r}"
    assert ZooKeeperAccess(user="ann").keys(environment).password == "of the environment"
    assert ZooKeeperAccess().keys(environment).password == "", "there is nobody whose it is"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "password_file=.*cannot be read: No such file"),
        (b"\n", "no password of zookeeper.user=ann: write the password into it"),
        (b"two\nlines\n", "more than one line"),
        (b"\xff\xfe", "is no text"),
    ],
)
def test_what_is_no_password_is_told_so(tmp_path: Path, content: bytes | None, sentence: str) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BadZooKeeperAccess, match=sentence):
        ZooKeeperAccess(user="ann", password_file=str(file)).keys({})


def test_a_user_without_a_password_is_told_where_to_write_it() -> None:
    with pytest.raises(BadZooKeeperAccess, match=r"password_file, or set QANAT_ZOOKEEPER_PASSWORD"):
        ZooKeeperAccess(user="ann").keys({})


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["zookeeper.user=a:b"], "no colon"),
        (["zookeeper.password_file=/p"], "user is not: set user as well"),
        (["zookeeper.key=/k"], "certificate is not: set certificate as well"),
        (["zookeeper.ca=ca.pem"], "ca must be an absolute path"),
        (["zookeeper.password=x"], "is not a setting"),
    ],
)
def test_settings_that_do_not_fit_together_stop_the_start(flags: list[str], sentence: str) -> None:
    with pytest.raises(BadConfiguration, match=sentence):
        load(ProxySettings, flags=flags)


def test_files_that_hold_no_certificate_are_told_so(tmp_path: Path) -> None:
    junk = tmp_path / "junk.pem"
    junk.write_text("nothing", encoding="utf-8")
    for access, sentence in (
        (ZooKeeperAccess(ca=str(tmp_path / "none")), "zookeeper.ca=.*cannot be read"),
        (ZooKeeperAccess(ca=str(junk)), "zookeeper.ca=.*cannot be used"),
        (ZooKeeperAccess(certificate=str(junk)), "zookeeper.certificate=.*cannot be used"),
    ):
        with pytest.raises(BadZooKeeperAccess, match=sentence):
            access.keys({})
    tls = ZooKeeperAccess(tls=True).keys({}).tls
    assert tls is not None and tls.check_hostname and tls.verify_mode is ssl.CERT_REQUIRED


def test_a_deployment_tells_its_replicas(tmp_path: Path) -> None:
    access = ZooKeeperAccess(user="ann", password_file="/run/password", tls=True)
    deployment = Deployment(regions={"eu": Region(1, coordinator="zookeeper://a:1/eu")}, zookeeper=access)
    ports = {name: number for number, name in enumerate(ports_needed(deployment), 7000)}
    (text,) = node_files(deployment, ports, tmp_path).values()
    file = tmp_path / "node.toml"
    file.write_text(text, encoding="utf-8")
    assert load(ProxySettings, file=file).settings.zookeeper == access


def test_what_is_decrypted_and_not_read_yet_is_not_waited_for(tmp_path: Path) -> None:
    """Two answers in one record: of the second, the socket knows nothing any more."""
    trusted = authority(tmp_path)
    mine = signed(tmp_path, trusted, "server")
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(mine.cert, mine.key)
    listener = socket.create_server(("127.0.0.1", 0))
    met: list[ssl.SSLSocket] = []

    def serve() -> None:
        met.append(serving.wrap_socket(listener.accept()[0], server_side=True))
        met[0].sendall(b"one two ")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    tls = ZooKeeperAccess(ca=str(trusted.cert)).keys({}).tls
    handler = LoopHandler(lambda work: None, 30.0, tls)
    ours = handler.create_connection(listener.getsockname(), hostname="127.0.0.1")
    idle, other = socket.socketpair()
    try:
        assert ours.recv(4) == b"one "
        assert handler.select([ours, idle], [], [], 60.0)[0] == [ours]
        other.send(b"x")
        assert handler.select([ours, idle], [], [], 60.0)[0] == [ours, idle]
        assert ours.recv(4) == b"two "
        assert handler.select([ours, idle], [], [], 60.0)[0] == [idle]
    finally:
        thread.join(30)
        for each in (ours, idle, other, listener, *met):
            each.close()
