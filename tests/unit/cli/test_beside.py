"""`qanat bench --beside`: what is refused, what is installed, what is said of a peer that cannot be had."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from qanat.bench import beside as peers
from qanat.bench import broadcast, kafka_jars
from qanat.bench.programs import NotThere
from qanat.bench.ways import VARIABLE
from qanat.cli import beside
from qanat.cli.main import main

SAID = {
    "kafka": "Kafka's jars cannot be fetched by Maven: no network",
    "redis": "the server 'redis' is not installed: apt-get install redis-server",
}


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What is written here by name cannot be had; nothing is installed, started or measured."""
    missing: dict[str, str] = {}
    monkeypatch.setattr(beside, "_why_not", lambda name, say: missing.get(name))
    monkeypatch.setattr(broadcast, "run_beside", lambda names, rounds, say: {"_".join(["ours", *names]): 1.0})
    return missing


@pytest.fixture
def nothing_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, and an empty cache."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[dict[str, object], str]:
    assert main(["bench", "broadcast", *words, "--json", "--rounds", "1"]) == 0
    captured = capsys.readouterr()
    found: dict[str, object] = json.loads(captured.out.splitlines()[-1])
    return found, captured.err


def test_the_command_knows_the_peers_of_the_benchmark() -> None:
    assert sorted(beside.NAMES) == sorted(peers.PEERS)


def test_wrong_usage_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "filter", "--beside", "redis"]) == 2
    assert "filter takes no --beside; only broadcast does" in capsys.readouterr().err
    assert main(["bench", "broadcast", "--beside", "rabbit"]) == 2
    assert "invalid choice: 'rabbit'" in capsys.readouterr().err
    assert main(["bench", "broadcast", "--beside", "redis", "--markdown"]) == 2
    assert "excludes --tcp, --json, --beside" in capsys.readouterr().err


@pytest.mark.usefixtures("without")
def test_peers_are_measured_in_their_order_and_over_tcp(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "true")
    found, said = told(["--beside", "redis", "--beside", "kafka", "--beside", "redis"], capsys)
    assert found["figures"] == {"ours_redis_kafka": 1.0}
    assert found["beside"] == {"redis": None, "kafka": None}
    assert found["tcp"] is True
    assert "beside redis: a stream" in said


def test_what_cannot_be_had_is_said_and_left_out(
    without: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    without["kafka"] = SAID["kafka"]
    found, said = told(["--beside", "redis", "--beside", "kafka"], capsys)
    assert found["figures"] == {"ours_redis": 1.0}
    assert found["beside"] == {"redis": None, "kafka": SAID["kafka"]}
    assert f"without kafka: {SAID['kafka']}" in said
    without["redis"] = SAID["redis"]
    found, _ = told(["--beside", "redis", "--beside", "kafka"], capsys)
    assert found["figures"] == {"ours": 1.0}, "ours is measured all the same"
    assert found["beside"] == SAID


@pytest.mark.usefixtures("without")
def test_without_peers_the_line_of_json_is_as_ever(capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = told([], capsys)
    assert sorted(found) == ["bench", "figures", "spread", "tcp"]


@pytest.mark.usefixtures("nothing_here")
def test_without_apt_it_is_said_what_is_missing() -> None:
    said: list[str] = []
    assert beside.ready(["redis", "kafka"], said.append) == {
        "redis": SAID["redis"],
        "kafka": "the server 'maven' is not installed: apt-get install maven",
    }
    assert said[0] == f"without redis: {SAID['redis']}"


def test_what_maven_says_is_passed_on(nothing_here: Path) -> None:
    (nothing_here / "mvn").write_text(
        "#!/bin/sh\necho '[ERROR] no way to the repository -> [Help 1]'\necho '[ERROR] more'\nexit 1\n"
    )
    (nothing_here / "mvn").chmod(0o755)
    said: list[str] = []
    why = "Kafka's jars cannot be fetched by Maven: no way to the repository"
    assert beside.ready(["kafka"], said.append) == {"kafka": why}
    assert [path.name for path in (nothing_here / "cache" / "qanat").iterdir()] == [], (
        "nothing half fetched is kept"
    )


def test_jars_are_fetched_once(nothing_here: Path) -> None:
    (nothing_here / "mvn").write_text(
        '#!/bin/sh\nfor word; do case $word in -DoutputDirectory=*) /bin/mkdir "${word#*=}" ;; esac; done\n'
    )
    (nothing_here / "mvn").chmod(0o755)
    found = kafka_jars.fetch()
    assert found == nothing_here / "cache" / "qanat" / f"kafka-{kafka_jars.VERSION}"
    (nothing_here / "mvn").unlink()
    assert kafka_jars.fetch() == found


def test_a_peer_that_does_not_start_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def running() -> AbstractContextManager[peers.Runs]:
        raise NotThere("Redis does not start here: no room")

    monkeypatch.setattr(beside, "_needed", lambda name: {})
    monkeypatch.setitem(peers.PEERS, "redis", peers.PEERS["redis"]._replace(running=running))
    assert beside.ready(["redis"], lambda line: None) == {"redis": "Redis does not start here: no room"}
