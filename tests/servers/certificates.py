"""An authority of a test's own, and certificates that it signs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    cert: Path
    key: Path


def _openssl(*words: str | Path) -> None:
    done = subprocess.run(["openssl", *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-1000:])


def authority(folder: Path, name: str = "authority") -> Certificate:
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    _openssl("req", "-x509", *words, "-subj", f"/CN={name}", "-keyout", made.key, "-out", made.cert)
    return made


def signed(folder: Path, by: Certificate, name: str, address: str = "IP:127.0.0.1") -> Certificate:
    """For a server at this address: `IP:…` or `DNS:…`."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
    words = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    extra = ["-addext", f"subjectAltName={address}", "-addext", "basicConstraints=critical,CA:FALSE"]
    signer: list[str | Path] = ["-CA", by.cert, "-CAkey", by.key]
    subject: list[str | Path] = ["-subj", f"/CN={name}", "-keyout", made.key, "-out", made.cert]
    _openssl("req", "-x509", *words, *extra, *signer, *subject)
    return made
