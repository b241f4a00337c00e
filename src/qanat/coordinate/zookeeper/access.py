"""Who we are to an ensemble, and how we know that it is the right one: a user's password, and certificates.

A password stands in a file or in the environment, never among the settings, which are shown to whoever asks.
"""

import os
import ssl
from collections.abc import Mapping
from pathlib import Path

import msgspec

from qanat.events.errors import LocalError

PASSWORD = "QANAT_ZOOKEEPER_PASSWORD"
"""The variable with the user's password, if no file is named."""


class BadZooKeeperAccess(LocalError):
    """A password or a certificate that is not there, or cannot be used."""


class Keys:
    """What is shown to the servers. Prints nothing of it."""

    def __init__(self, user: str = "", password: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.user, self.password, self.tls = user, password, tls

    def __repr__(self) -> str:
        return f"Keys(user={self.user!r}, tls={self.tls is not None})"


class ZooKeeperAccess(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Credentials for ZooKeeper as coordinator. All nodes with the same root use the same user."""

    user: str = ""
    """User of ZooKeeper's scheme `digest`; only this user may then use the znodes that nodes create. Empty:
    everyone may, ZooKeeper's default."""
    password_file: str = ""
    """File with the user's password in its only line. Empty: the variable QANAT_ZOOKEEPER_PASSWORD has it.
    The password is no setting, because settings are shown."""
    tls: bool = False
    """Whether to encrypt connections and to verify the servers' certificates and names; each of the next
    three settings turns it on too. Without it others on the network can read the password."""
    ca: str = ""
    """File of the certificate authorities for the servers' certificates. Empty: those of this system."""
    certificate: str = ""
    """File of this process's certificate, if the servers require one."""
    key: str = ""
    """File of the certificate's key. Empty: the key is in the certificate's file."""

    def __post_init__(self) -> None:
        if ":" in self.user or any(not each.isprintable() for each in self.user):
            raise ValueError("user must have no colon and only printable characters")
        if self.password_file and not self.user:
            raise ValueError("password_file is set and user is not: set user as well")
        if self.key and not self.certificate:
            raise ValueError("key is set and certificate is not: set certificate as well")
        for name in ("password_file", "ca", "certificate", "key"):
            path = getattr(self, name)
            if path and not Path(path).is_absolute():
                raise ValueError(f"{name} must be an absolute path: nodes are started in any folder")

    def keys(self, environment: Mapping[str, str] = os.environ) -> Keys:
        """Reads what the settings name."""
        return Keys(self.user, self._password(environment) if self.user else "", self._tls())

    def _password(self, environment: Mapping[str, str]) -> str:
        if not self.password_file:
            password, place = environment.get(PASSWORD, ""), f"the variable {PASSWORD}"
            missing = f"name a file in zookeeper.password_file, or set {PASSWORD}"
        else:
            place, missing = f"zookeeper.password_file={self.password_file}", "write the password into it"
            try:
                password = Path(self.password_file).read_text(encoding="utf-8").removesuffix("\n")
            except OSError as error:
                raise BadZooKeeperAccess(f"{place} cannot be read: {error.strerror}") from None
            except UnicodeDecodeError:
                raise BadZooKeeperAccess(f"{place} is no text") from None
        if not password:
            raise BadZooKeeperAccess(f"there is no password of zookeeper.user={self.user}: {missing}")
        if any(not each.isprintable() for each in password):
            raise BadZooKeeperAccess(f"{place} has more than one line, or what cannot be printed, in it")
        return password

    def _tls(self) -> ssl.SSLContext | None:
        if not (self.tls or self.ca or self.certificate):
            return None
        what = f"zookeeper.ca={self.ca}"
        try:
            context = ssl.create_default_context(cafile=self.ca or None)
            if self.certificate:
                what = f"zookeeper.certificate={self.certificate}"
                # Without a password, lest somebody be asked for one who is not there.
                context.load_cert_chain(self.certificate, self.key or None, password="")
        except ssl.SSLError as error:
            reason = error.reason or "there is no certificate in it, or no key without a password"
            raise BadZooKeeperAccess(f"{what} cannot be used: {reason}") from None
        except OSError as error:
            raise BadZooKeeperAccess(f"{what} cannot be read: {error.strerror}") from None
        return context
