"""The folder of a deployment: ports that stay, a lock for one, and processes that are not taken for
others."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from qanat.events.errors import LocalError
from qanat.operate.file import decided, standard
from qanat.operate.home import Home, NotRunning, Supervised, find, folder_of
from qanat.operate.kinds import KINDS, LINKS
from qanat.operate.layout import (
    admin,
    coordinators,
    link_name,
    node_files,
    nodes,
    ports_needed,
    region_of,
)
from qanat.operate.links import LinksSettings
from qanat.operate.other_deployments import leave_note, remove_note
from qanat.operate.ports import assign
from qanat.operate.process_id import ProcessId
from qanat.operate.supervisor import _environment
from qanat.replica.coordination import coordinator_members
from qanat.replica.settings import CoordinatorSettings, ProxySettings
from qanat.runtime.config import load


def test_ports_are_different_and_remembered() -> None:
    names = ports_needed(standard())
    ports, moved = assign({}, names, 0)
    assert len(set(ports.values())) == len(names) == len(ports)
    assert moved == []
    assert assign(ports, names, 0) == (ports, [])
    more, moved = assign(ports, [*names, "one more"], 0)
    assert (moved, {name: more[name] for name in names}) == ([], ports)


def test_a_port_that_a_stranger_took_is_replaced_unless_it_is_our_own() -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]
        ports, moved = assign({"eu/proxy-1": taken}, ["eu/proxy-1"], 0)
        assert moved == ["eu/proxy-1"]
        assert ports["eu/proxy-1"] != taken
        assert assign({"x": taken}, ["x"], 0, keep=["x"]) == ({"x": taken}, [])


def test_node_files_are_what_the_nodes_read(tmp_path: Path) -> None:
    deployment = standard()
    ports, _ = assign({}, ports_needed(deployment), 0)
    files = node_files(deployment, ports, tmp_path)
    file = tmp_path / "node.toml"
    for node, kind in nodes(deployment).items():
        file.write_text(files[node])
        settings = load(KINDS[kind].settings_type(), file=file).settings
        assert settings.node.name == node
        assert settings.admin.port == ports[admin(node)]
        if isinstance(settings, ProxySettings):
            assert len(settings.peers) == 5
            assert settings.region.replicas == 2
            assert settings.streams["us-events"].owner == "us"
            members = coordinator_members(settings.coordinator.name, settings.coordinator.url)
            assert [each.port for each in members.values()] == [ports[name] for name in members]
            assert len(members) == 3
        if isinstance(settings, CoordinatorSettings):
            everybody = {settings.node.name, *settings.peers}
            assert everybody == set(coordinators(deployment, region_of(node)))
        if isinstance(settings, LinksSettings):
            assert len(settings.links) == 12
    file.write_text(files["eu/proxy-1"])
    peers = load(ProxySettings, file=file).settings.peers
    assert peers["eu/proxy-2"].url.endswith(f":{ports['eu/proxy-2']}")
    assert peers["us/proxy-2"].url.endswith(f":{ports[link_name('eu', 'us/proxy-2')]}")
    assert LINKS in nodes(deployment)


def test_one_holds_the_folder(tmp_path: Path) -> None:
    home, other = Home(tmp_path), Home(tmp_path)
    assert not home.is_held()
    held = home.lock()
    assert held is not None
    assert other.lock() is None
    assert other.is_held()
    os.close(held)
    assert not other.is_held()


def test_what_a_dead_supervisor_left_is_not_believed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.supervised = Supervised(ProcessId.of(os.getpid()), 1, "x")
    assert Home(tmp_path).supervised is None, "nobody holds the folder"
    held = home.lock()
    assert held is not None
    assert Home(tmp_path).supervised is not None
    home.supervised = Supervised(ProcessId(os.getpid(), "another time"), 1, "x")
    assert Home(tmp_path).supervised is None, "the number is ours, the process was another"
    os.close(held)


def test_a_process_is_known_by_when_it_began() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = ProcessId.of(child.pid)
    assert process.is_alive()
    assert not ProcessId(child.pid, "before").is_alive()
    ProcessId(child.pid, "before").send(signal.SIGKILL)
    assert process.is_alive()
    process.send(signal.SIGKILL)
    child.communicate()
    assert not process.is_alive()
    process.send(signal.SIGKILL)


def test_the_deployment_and_its_owners_are_kept(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.deployment = standard()
    assert home.deployment == decided(standard(), None)
    assert home.deployment.regions["eu"].coordinators == 3
    assert home.owners["eu-events"] == "eu"


def test_which_folder_is_meant(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    assert folder_of("shop", None, environment) == tmp_path / "qanat" / "shop"
    assert folder_of("shop", None, {"HOME": "/h"}) == Path("/h/.local/state/qanat/shop")
    assert folder_of("shop", None, {**environment, "QANAT_HOME": "/q"}) == Path("/q")
    assert folder_of("shop", "/d", {**environment, "QANAT_HOME": "/q"}) == Path("/d")
    with pytest.raises(NotRunning, match="start one with `qanat up`"):
        find(None, environment)
    held = []
    for name in ("one", "two"):
        home = Home(tmp_path / "qanat" / name)
        home.make()
        held.append(home.lock())
        home.supervised = Supervised(ProcessId.of(os.getpid()), 1, "x")
        if name == "one":
            assert find(None, environment).folder == home.folder
    with pytest.raises(LocalError, match="2 deployments run here; say which with --data"):
        find(None, environment)
    for descriptor in held:
        assert descriptor is not None
        os.close(descriptor)


def test_wiping_leaves_what_is_not_the_deployments(tmp_path: Path) -> None:
    home = Home(tmp_path / "shop")
    home.make()
    home.deployment = standard()
    home.ports = {"x": 1}
    (home.folder / "data" / "eu~proxy-1").mkdir()
    held = home.lock()
    assert held is not None
    os.close(held)
    note = home.folder / "notes.txt"
    note.write_text("mine")
    home.wipe()
    assert list(home.folder.iterdir()) == [note]
    note.unlink()
    home.wipe()
    assert not home.folder.exists()


def test_nodes_get_the_password_of_zookeeper_and_no_setting() -> None:
    given = {"PATH": "/bin", "QANAT_ZOOKEEPER_PASSWORD": "secret", "QANAT_LOGGING__LEVEL": "debug"}
    assert _environment(given) == {"PATH": "/bin", "QANAT_ZOOKEEPER_PASSWORD": "secret"}


def test_one_that_lies_elsewhere_is_found_while_it_runs(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path / "state")}
    home = Home(tmp_path / "elsewhere" / "shop")
    home.make()
    leave_note(home, environment)
    with pytest.raises(NotRunning, match="start one with `qanat up`"):
        find(None, environment)
    assert find(None, environment, running=False).folder == tmp_path / "state" / "qanat" / "local"
    home.children = {"eu/proxy-1": ProcessId.of(os.getpid())}
    assert find(None, environment, running=False).folder == home.folder, "a killed supervisor left it behind"
    held = home.lock()
    assert held is not None
    home.supervised = Supervised(ProcessId.of(os.getpid()), 1, "x")
    assert find(None, environment).folder == home.folder
    remove_note(home, environment)
    with pytest.raises(NotRunning):
        find(None, environment)
    os.close(held)


def test_one_in_the_state_folder_needs_no_note(tmp_path: Path) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path)}
    home = Home(folder_of("shop", None, environment))
    home.make()
    leave_note(home, environment)
    assert list((tmp_path / "qanat").iterdir()) == [home.folder]
