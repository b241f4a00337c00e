"""Which server or deployment a command means is decided in one place, in one order."""

from __future__ import annotations

import argparse
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qanat.cli.target import DEFAULT_URL, Target, add_target, find_target, reaching
from qanat.cli.unknown_streams import Missing
from qanat.client import Client, Unavailable
from qanat.events.errors import LocalError
from qanat.operate import home
from qanat.operate.file import standard
from qanat.operate.home import Home, NotRunning
from qanat.operate.layout import ports_needed, region_url


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A deployment's folder, of which `find` believes that it runs."""
    lying = Home(tmp_path / "there")
    lying.make()
    lying.deployment = deployment = standard()
    lying.ports = {name: 7500 + number for number, name in enumerate(ports_needed(deployment))}
    monkeypatch.setattr(home, "find", lambda data, environment: Home(data or lying.folder))
    return lying


def words(*given: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_target(parser)
    return parser.parse_args(given)


def url(there: Home, region: str) -> str:
    deployment = there.deployment
    assert deployment is not None
    return region_url(deployment, region, there.ports)


def test_options_come_before_the_environment_and_a_server_before_a_deployment(running: Home) -> None:
    folder = str(running.folder)
    both = {"QANAT_URL": "qanat://a:1", "QANAT_HOME": folder}
    found = [
        find_target(words("--url", "qanat://b:1"), "eu-events", both),
        find_target(words("--data", folder), "eu-events", both),
        find_target(words(), "eu-events", both),
        find_target(words(), "us-events", {"QANAT_HOME": folder}),
        find_target(words(), "asia-events", {}),
        find_target(words("--region", "asia"), "us-events", both),
    ]
    assert [each.url for each in found] == [
        "qanat://b:1",
        url(running, "eu"),
        "qanat://a:1",
        *(url(running, region) for region in ("us", "asia", "asia")),
    ]
    assert [each.because for each in found] == [
        "--url",
        "--data",
        "QANAT_URL",
        "QANAT_HOME",
        "the only one that runs here",
        "QANAT_HOME",
    ]


def test_without_a_deployment_it_is_the_default_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = {"XDG_STATE_HOME": str(tmp_path)}
    target = find_target(words(), "weather", nowhere)
    assert (target.url, target.home) == (DEFAULT_URL, None)
    target.say("reading weather from")
    said = capsys.readouterr().err
    assert (
        said
        == f"qanat: reading weather from the server at {DEFAULT_URL} (the default; no deployment runs here)\n"
    )
    for given in (("--region", "eu"), ("--data", str(tmp_path))):
        with pytest.raises(NotRunning):
            find_target(words(*given), "weather", nowhere)


def test_a_server_and_a_deployment_are_not_named_at_once(running: Home) -> None:
    for other in (("--region", "eu"), ("--data", "x")):
        with pytest.raises(LocalError, match=f"{other[0]} a deployment: give only one of them"):
            find_target(words("--url", "qanat://b:1", *other), "", {})


def test_what_was_found_is_told_in_words_and_to_programs(
    running: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    target = find_target(words(), "us-events", {})
    assert str(target) == f"region us of the deployment in {running.folder} (the only one that runs here)"
    assert target.as_json() == {
        "url": url(running, "us"),
        "because": "the only one that runs here",
        "deployment": str(running.folder),
        "region": "us",
    }
    find_target(words("--url", "qanat://b:1"), "", {}).say("reading s from")
    assert capsys.readouterr().err == ""


def test_a_newcomer_is_told_how_a_server_is_started_and_who_named_one_is_not() -> None:
    for because, told in (("the default; no deployment runs here", True), ("QANAT_URL", False)):
        target = Target("qanat://127.0.0.1:1", because)
        with pytest.raises(Unavailable, match="no server") as caught, reaching(target):
            Client(target.url, patience=0)
        assert ("`qanat serve` starts a server, `qanat up` three regions" in str(caught.value)) is told


def test_how_a_stream_is_made_is_said_with_the_region_that_has_to_be_named() -> None:
    absent = Missing("weather", ["prices"], deployed=True)
    home: Any = SimpleNamespace(folder="/srv/shop")
    there = Target("qanat://there", "--data", home, "eu")
    assert "`qanat stream create weather --region eu` creates it" in str(absent.error(there, ""))
    assert "`qanat stream create weather` creates it" in str(
        absent.error(Target("qanat://there", "--url"), "")
    )
