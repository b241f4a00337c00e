"""The jars of a Kafka broker and its clients: fetched once by Maven, into the user's cache."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from qanat.bench.programs import NotThere
from qanat.runtime.java import cache_folder

VERSION = "4.2.0"
_FETCH_S = 600
# Janino compiles our side of it where there is a Java without a compiler; what Kafka logs goes nowhere
# without the last.
_JARS = (
    ("org.apache.kafka", "kafka_2.13", VERSION),
    ("org.codehaus.janino", "janino", "3.1.12"),
    ("org.slf4j", "slf4j-simple", "1.7.36"),
)


def folder() -> Path:
    """Where the jars are, or will be."""
    return cache_folder() / f"kafka-{VERSION}"


def pom() -> str:
    """What Maven is told: no repository, so that the user's own settings hold."""
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in _JARS
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>qanat</groupId><artifactId>beside</artifactId>"
        f"<version>1</version><dependencies>{wanted}</dependencies></project>"
    )


def fetch() -> Path:
    """The folder of the jars; `NotThere` says why they cannot be had."""
    found = folder()
    if found.is_dir():
        return found
    if shutil.which("mvn") is None:
        raise NotThere("Kafka's jars are fetched by Maven, and there is no mvn")
    found.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=found.parent) as work:
        (Path(work) / "pom.xml").write_text(pom())
        fresh = Path(work) / "jars"
        words = ["mvn", "-B", "-q", "-f", f"{work}/pom.xml", "dependency:copy-dependencies"]
        words += ["-DincludeScope=runtime", f"-DoutputDirectory={fresh}"]
        try:
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_FETCH_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise NotThere(f"Kafka's jars did not come by Maven in {_FETCH_S} s") from None
        if done.returncode:
            raise NotThere(f"Kafka's jars cannot be fetched by Maven: {_first_error(done.stdout)}")
        if not found.is_dir():  # another process may have been as fast
            fresh.rename(found)
    return found


def _first_error(said: str) -> str:
    """Of Maven's many lines the one that names the cause."""
    errors = (line.partition("[ERROR]")[2] for line in said.splitlines() if "[ERROR]" in line)
    errors = (error.partition(" -> [Help")[0].strip() for error in errors)
    return next(errors, "it did not say why")[:300]
