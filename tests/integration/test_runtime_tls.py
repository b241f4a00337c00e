"""TLS passes through: frames over it, and a certificate that is not trusted is refused."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest
from tests.waiting import until

from qanat.runtime.connection import Connection
from qanat.runtime.dialer import CannotConnect, dial
from qanat.runtime.listener import listen
from qanat.runtime.loop import run
from qanat.runtime.service import Service
from qanat.runtime.settings import TransportSettings
from qanat.runtime.url import Url
from qanat.wire.control import Identity
from qanat.wire.frame import Frame

openssl = shutil.which("openssl")
pytestmark = pytest.mark.skipif(openssl is None, reason="needs the openssl command to make a certificate")


class Keeper(Service):
    def __init__(self) -> None:
        self.got: list[bytes] = []

    def on_frame(self, connection: Connection, frame: Frame) -> None:
        self.got.append(bytes(frame.attachment))
        if frame.type == 40:
            connection.send(41, 1, b"", [frame.attachment])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    subprocess.run(
        [str(openssl), *options.split(), "-addext", names, "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    return key, cert


@pytest.mark.parametrize("uvloop", [True, False], ids=["uvloop", "asyncio"])
def test_tls(certificate: tuple[Path, Path], uvloop: bool) -> None:
    key, cert = certificate
    server_side = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_side.load_cert_chain(cert, key)
    trusting = ssl.create_default_context(cafile=str(cert))

    async def main() -> None:
        server, client = Keeper(), Keeper()
        settings = TransportSettings(handshake_ms=2_000)
        listener = await listen(
            "127.0.0.1", 0, Identity("server"), {1: server}, ssl=server_side, settings=settings
        )
        url = Url("127.0.0.1", listener.port)
        connection = await dial(url, Identity("c", role="client"), {1: client}, ssl=trusting)
        attachments = [bytes([i]) * size for i, size in enumerate((1, 1000, 300_000, 3_000_000))]
        for attachment in attachments:
            connection.send(40, 1, b"", [attachment])
        await until(lambda: len(client.got) == len(attachments))
        assert client.got == attachments
        connection.close()
        await connection.wait_closed()
        with pytest.raises(CannotConnect, match="TLS") as caught:
            await dial(url, Identity("c", role="client"), {}, ssl=ssl.create_default_context())
        assert caught.value.code == "tls"
        with pytest.raises(CannotConnect):
            await dial(
                url, Identity("plain", role="client"), {}, settings=TransportSettings(handshake_ms=500)
            )
        await until(lambda: not listener.connections)
        await listener.close()

    run(main, uvloop=uvloop)
