"""The container file and the unit of systemd: each word in them is one that Qanat takes, and the ports and
folders are those of the code."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.servers.stream_server import ServerProcess
from tests.waiting import wait_until

from qanat.cli.main import command_parser
from qanat.runtime.config import load
from qanat.serving.settings import StreamServerSettings

CHECKOUT = Path(__file__).resolve().parents[2]
CONTAINER = (CHECKOUT / "Containerfile").read_text(encoding="utf-8")
UNIT_FILE = CHECKOUT / "packaging" / "qanat.service"
UNIT = UNIT_FILE.read_text(encoding="utf-8")
DEFAULTS = StreamServerSettings()
PORT = int(DEFAULTS.node.listen.rpartition(":")[2])
MOST_EXPOSED = 20
"""Tenths, of which `systemd-analyze security` counts up to 100; it says OK below 50."""


def instructions() -> list[tuple[str, str]]:
    """Of the container file, each on one line."""
    lines = [line for line in CONTAINER.splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined) if word]


def last_stage() -> dict[str, str]:
    """What the image is made of in the end; the last of several alike."""
    found = instructions()
    start = max(at for at, (word, _) in enumerate(found) if word == "FROM")
    return dict(found[start:])


def variables() -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in shlex.split(last_stage()["ENV"]))


def unit(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)


def served_by(words: list[str], environment: dict[str, str]) -> StreamServerSettings:
    """The settings of a server that is started by these words of `qanat`."""
    assert words[0] == "serve"
    args = command_parser("serve")[0].parse_args(words[1:])
    flags = [f"node.data={args.data}"] if args.data else []
    return load(StreamServerSettings, environment=environment, flags=flags).settings


def test_the_container_serves_on_the_ports_that_it_exposes() -> None:
    last = last_stage()
    settings = served_by(json.loads(last["CMD"]), variables())
    assert json.loads(last["ENTRYPOINT"]) == ["qanat"]
    assert settings.node.listen == f"0.0.0.0:{PORT}"
    assert (settings.admin.host, settings.admin.port) == ("0.0.0.0", DEFAULTS.admin.port)
    assert last["EXPOSE"].split() == [str(PORT), str(DEFAULTS.admin.port)]


def test_the_container_keeps_its_data_in_its_volume_as_a_user_of_its_own() -> None:
    last = last_stage()
    folder = variables()["QANAT_NODE__DATA"]
    assert (last["VOLUME"], last["WORKDIR"]) == (folder, folder)
    assert int(last["USER"]) > 0
    assert f"--uid {last['USER']} " in last["RUN"]
    assert last["RUN"].endswith(f" {folder}")


def test_the_container_is_built_from_files_that_the_builder_is_given() -> None:
    given = {
        line[1:] for line in (CHECKOUT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    copied = {
        name
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for name in rest.split()[:-1]
    }
    assert copied == given
    assert all((CHECKOUT / name).exists() for name in copied)
    assert [word for word, _ in instructions()].count("FROM") == 2


def test_the_versions_of_the_container_are_those_of_the_lock_file() -> None:
    program = re.search(r"sed -n '.*?' requirements.lock", CONTAINER)
    assert program is not None
    ran = subprocess.run(
        shlex.split(program.group()), cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    lock = (CHECKOUT / "requirements.lock").read_text(encoding="utf-8")
    pins = [line.removesuffix(" \\") for line in lock.splitlines() if re.match(r"[a-z].*==", line)]
    assert [line.strip() for line in ran.stdout.splitlines()] == pins


def test_the_check_of_health_finds_a_healthy_server_and_misses_one_that_is_gone(tmp_path: Path) -> None:
    check = last_stage()["HEALTHCHECK"]
    words = json.loads(check[check.index("CMD ") + 4 :])
    own = f"http://127.0.0.1:{DEFAULTS.admin.port}/"
    assert own in words[-1]
    server = ServerProcess(tmp_path / "data").start()
    words = [shutil.which("python3") or words[0], *words[1:-1], words[-1].replace(own, f"{server.admin}/")]
    assert subprocess.run(words, capture_output=True, check=False).returncode == 0
    server.end()
    assert subprocess.run(words, capture_output=True, check=False).returncode != 0


@pytest.mark.soak
def test_the_image_can_be_built() -> None:
    engines = [name for name in ("podman", "docker") if shutil.which(name)]
    usable = [
        name
        for name in engines
        if not subprocess.run([name, "info"], capture_output=True, check=False).returncode
    ]
    if not usable:
        pytest.skip("no podman or docker runs here")
    words = [usable[0], "build", "-t", "qanat-test", "-f", "Containerfile", "."]
    subprocess.run(words, cwd=CHECKOUT, check=True)
    said = subprocess.run(
        [usable[0], "run", "--rm", "qanat-test", "--version"], capture_output=True, check=True
    )
    assert said.stdout.startswith(b"qanat ")


def test_the_unit_starts_a_server_in_its_own_folder() -> None:
    (start,) = unit("ExecStart")
    program, *words = shlex.split(start)
    settings = served_by(words, {})
    (state,) = unit("StateDirectory")
    assert settings.node.data == f"/var/lib/{state}"
    assert settings.node.listen == DEFAULTS.node.listen
    assert f"--from=build {Path(program).parents[1]} " in CONTAINER, "the same place as in the container"
    assert unit("Restart") == ["on-failure"]
    assert unit("DynamicUser") == ["yes"]
    assert int(unit("TimeoutStopSec")[0]) * 1000 > DEFAULTS.node.stop_ms


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    copy = tmp_path / UNIT_FILE.name
    copy.write_text(UNIT.replace("/opt/qanat/bin/qanat", str(CHECKOUT / "qanat")), encoding="utf-8")
    words = ["systemd-analyze", "verify", "--man=no", str(copy)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    words = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", "--no-pager"]
    ran = subprocess.run([*words, str(copy)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.server("strace")
def test_a_server_makes_no_system_call_that_the_unit_forbids(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze")
    filters = " ".join(unit("SystemCallFilter")).replace("~", "~ ").split()
    assert filters == ["@system-service", "~", "@privileged"]
    allowed = calls_of("@system-service") - calls_of("@privileged")
    trace = tmp_path / "trace"
    traced = ServerProcess(
        tmp_path / "data", ("strace", "-D", "-f", "-q", "-o", str(trace), *ServerProcess.PROGRAM)
    ).start()
    try:
        ask = [*ServerProcess.PROGRAM, "pub", "weather", "--url", traced.url]
        subprocess.run(ask, input=b"rain\n", capture_output=True, check=True)
        wait_until(lambda: traced.health() == "ok", 60)
        assert traced.stop() == 0
    finally:
        traced.end()
    wait_until(lambda: "+++ exited with 0 +++" in trace.read_text(errors="replace"), 60)
    used = set(re.findall(r"^\d+ +([a-z_0-9]+)\(", trace.read_text(errors="replace"), re.MULTILINE))
    assert "accept4" in used
    assert used - allowed == set()


def calls_of(group: str) -> set[str]:
    """All system calls of a group, and of the groups that are in it."""
    words = ["systemd-analyze", "syscall-filter", "--no-pager", group]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    found = {line.strip() for line in said if line.strip() and not line.strip().startswith("#")}
    inner = {name for name in found if name.startswith("@")}
    return (found - inner).union(*map(calls_of, inner))


def test_a_reload_is_the_signal_that_a_server_takes() -> None:
    (reload,) = unit("ExecReload")
    assert reload == "/bin/kill -HUP $MAINPID"
    assert "SIGHUP reads its settings again" in command_parser("serve")[1].EXAMPLES
