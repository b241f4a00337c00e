"""What a publisher cannot be told."""

from pathlib import Path

import pytest

from qanat.cli.publishers import DEFAULT, Publisher, Server
from qanat.events.errors import LocalError
from qanat.publisher.settings import PublisherSettings
from qanat.replica.coordination import coordinator_members
from qanat.runtime.config import load
from qanat.runtime.url import parse_url
from qanat.serving.settings import StreamServerSettings


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ('url = "qanat://127.0.0.1:7410"', r"line 1\) does not fit together: .* set name to its node\.name"),
        ('name = "shop/coordinator"', r"line 1\) does not fit together: .* set url"),
    ],
)
def test_half_a_coordinator_is_refused(tmp_path: Path, told: str, said: str) -> None:
    """It was passed over: each copy then served every application."""
    file = tmp_path / "shop.toml"
    file.write_text(f"[coordinator]\n{told}\n")
    with pytest.raises(LocalError, match=said):
        load(PublisherSettings, file=file)


def test_a_coordinator_is_named_or_zookeeper() -> None:
    for told in (
        {"coordinator.name": "shop/coordinator", "coordinator.url": "qanat://127.0.0.1:7410"},
        {"coordinator.url": "zookeeper://127.0.0.1:2181/shop"},
        {"coordinator.name": "shop/coordinator", "coordinator.url": "qanat://a:1,b:2,c:3"},
        {},
    ):
        found = load(PublisherSettings, flags=told).settings.coordinator
        assert found.url == told.get("coordinator.url", "")


def test_an_ensemble_has_three_members_that_are_named_after_one_another() -> None:
    members = coordinator_members("shop/coordinator", "qanat://a:1,b:2,c:3")
    assert {name: str(url) for name, url in members.items()} == {
        "shop/coordinator-1": "qanat://a:1",
        "shop/coordinator-2": "qanat://b:2",
        "shop/coordinator-3": "qanat://c:3",
    }
    with pytest.raises(
        LocalError, match="url has 2 addresses: a coordinator is one process, or an ensemble of three"
    ):
        load(
            PublisherSettings,
            flags={"coordinator.name": "shop/coordinator", "coordinator.url": "qanat://a:1,b:2"},
        )


def test_a_publisher_runs_beside_a_server_with_nothing_said_of_either(tmp_path: Path) -> None:
    """Also where its file has a section of each: what is not in it is the publisher's default, not any
    node's."""
    file = tmp_path / "shop.toml"
    file.write_text("[node]\nname = 'shop'\n[admin]\nhost = '127.0.0.1'\n")
    server = load(StreamServerSettings).settings
    for publisher in (load(PublisherSettings).settings, load(PublisherSettings, file=file).settings):
        taken = [{parse_url(one.node.listen).port, one.admin.port} for one in (server, publisher)]
        assert not taken[0] & taken[1]
        assert publisher.node.data != server.node.data
        assert Publisher.example == DEFAULT == f"http://127.0.0.1:{publisher.admin.port}"
        assert (Publisher.data, Server.data) == (publisher.node.data, server.node.data)


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "a\x1b[2J", "x" * 201])
def test_an_application_has_a_name_that_can_be_shown(name: str) -> None:
    with pytest.raises(LocalError, match=r"is no valid name: use at most 200 printable bytes without /"):
        load(PublisherSettings, flags={"applications": {name: {}}})
