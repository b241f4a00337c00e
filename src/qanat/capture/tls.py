"""Encrypted connections to datastores: whoever asks for one has the other side verified, name and all, unless
he says otherwise."""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from qanat.capture.errors import BadLogUrl
from qanat.capture.url import LogUrl

_WORDS = {
    "on": True,
    "1": True,
    "yes": True,
    "true": True,
    "off": False,
    "0": False,
    "no": False,
    "false": False,
}
_VERIFY = ("identity", "ca", "no")
TLS_OPTIONS = {
    "ssl": "on: the connection is encrypted, and the server's certificate and its name are verified (off)",
    "ssl_ca": "file of the certificates that vouch for the server's (those of this system)",
    "ssl_cert": "file of this client's certificate, if the server wants one",
    "ssl_key": "file of its key, if it is not in the same",
    "ssl_verify": (
        "identity: certificate and name of the server; ca: the certificate alone; no: nothing (identity)"
    ),
}
"""As MariaDB's and MySQL's own clients name them. One of them is enough to have the connection encrypted."""
LIBPQ_OPTIONS = {
    "ssl": "on: as sslmode=verify-full; off: as sslmode=disable",
    "sslmode": (
        "as libpq has it: disable, allow, prefer, require (which verify nothing), verify-ca, verify-full"
        " (verify-full if any other of these is given, else prefer)"
    ),
    "sslrootcert": (
        "file of the certificates that vouch for the server's (~/.postgresql/root.crt, else those of this"
        " system)"
    ),
    "sslcert": "file of this client's certificate, if the server wants one",
    "sslkey": "file of its key",
    "sslcrl": "file of certificates that were revoked",
}


def is_on(url: LogUrl, options: Mapping[str, Any]) -> bool | None:
    """What `ssl` says; None if it is not there."""
    word = options.get("ssl")
    if word is None:
        return None
    try:
        return _WORDS[str(word).lower()]
    except KeyError:
        raise BadLogUrl(f"{url}: ssl={word} is not known; it is on or off") from None


def context_of(url: LogUrl, options: Mapping[str, Any]) -> ssl.SSLContext | None:
    """For a connection that Python encrypts; None if it is not to be."""
    given = [name for name in TLS_OPTIONS if name in options and name != "ssl"]
    on = is_on(url, options)
    if on is False and given:
        raise BadLogUrl(f"{url}: ssl is off, but there is {given[0]}")
    if not on and not given:
        return None
    verify = str(options.get("ssl_verify", "identity"))
    if verify not in _VERIFY:
        raise BadLogUrl(
            f"{url}: ssl_verify={verify} is not known; it is {', '.join(_VERIFY[:-1])} or {_VERIFY[-1]}"
        )
    context = _loaded(url, options)
    context.check_hostname = verify == "identity"
    context.verify_mode = ssl.CERT_NONE if verify == "no" else ssl.CERT_REQUIRED
    return context


def _loaded(url: LogUrl, options: Mapping[str, Any]) -> ssl.SSLContext:
    ca, cert, key = (options.get(name) for name in ("ssl_ca", "ssl_cert", "ssl_key"))
    if key is not None and cert is None:
        raise BadLogUrl(f"{url}: there is ssl_key, but no ssl_cert that it is of")
    what = f"ssl_ca={ca}"
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            what = f"ssl_cert={cert}"
            context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise BadLogUrl(
            f"{url}: {what} cannot be used: {error.reason or 'there is no certificate in it'}"
        ) from None
    except OSError as error:
        raise BadLogUrl(f"{url}: {what} cannot be read: {error.strerror}") from None
    return context


def libpq_parameters(url: LogUrl, options: Mapping[str, Any]) -> dict[str, str]:
    """For a connection that libpq makes; nothing if nothing was asked, which is then its `prefer`, or what
    its environment says."""
    given = {name: str(options[name]) for name in LIBPQ_OPTIONS if name in options and name != "ssl"}
    on = is_on(url, options)
    if on is not None and "sslmode" in given:
        raise BadLogUrl(f"{url}: there are both ssl and sslmode; give one of them")
    if on is False:
        if given:
            raise BadLogUrl(f"{url}: ssl is off, but there is {next(iter(given))}")
        return {"sslmode": "disable"}
    if on or given:
        given.setdefault("sslmode", "verify-full")
    for name in ("sslrootcert", "sslcert", "sslkey", "sslcrl"):
        if given.get(name, "system") != "system" and not Path(given[name]).is_file():
            raise BadLogUrl(f"{url}: {name}={given[name]} cannot be read: there is no such file")
    if given.get("sslmode", "").startswith("verify") and "sslrootcert" not in given:
        system = ssl.get_default_verify_paths().cafile
        if system is not None and not (Path.home() / ".postgresql" / "root.crt").exists():
            given["sslrootcert"] = system
    return given
