"""The folder of a deployment: what lies where, who holds it, and which deployment a command means."""

import fcntl
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from qanat.events.durable import make_folder, replace
from qanat.events.errors import LocalError
from qanat.events.kept import Damaged, Kept, twin_of
from qanat.operate.file import Deployment, decided, read, write
from qanat.operate.layout import coordinator, file_name, region_url
from qanat.operate.process_id import ProcessId

_T = TypeVar("_T")
KEPT_TWICE = ("deployment.toml", "ports.json", "owners.json", "cuts.json", "held.json", "processes.json")
"""What is on record here, and nowhere else."""
_KEPT = (
    *("nodes", "logs", "data"),
    *(name for kept in KEPT_TWICE for name in (twin_of(Path(kept)).name, kept)),
    *("supervisor.log", "supervisor.json", "lock"),
)
"""Everything that a deployment has in its folder; the lock is the last to go."""
NOTES = "elsewhere-*.txt"
"""In the state folder: each says where a deployment lies that is not in there."""


class NotRunning(LocalError):
    """No supervisor holds the folder."""

    exit_code = 3


class Supervised(msgspec.Struct, frozen=True):
    """Where the supervisor can be asked, and by what word it knows that we may read its folder."""

    process: ProcessId
    port: int
    token: str


class Home:
    """One deployment's folder. Only who holds its lock writes to it, but for the first `deployment.toml`."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder).absolute()
        self.deployment_file = self.folder / "deployment.toml"
        self.log_file = self.folder / "supervisor.log"
        self.cuts_file = self.folder / "cuts.json"
        self._lock_file = self.folder / "lock"
        self._state_file = self.folder / "supervisor.json"
        kept = {name: Kept(self.folder / name, mode=0o600) for name in KEPT_TWICE}
        self._deployment, self._ports, self._owners = (
            kept[name] for name in ("deployment.toml", "ports.json", "owners.json")
        )
        self._children, self._held = kept["processes.json"], kept["held.json"]
        self._all_kept = tuple(kept.values())

    # ------------------------------------------------------------------ the lock

    def make(self) -> None:
        try:
            for folder in (self.folder, self.folder / "nodes", self.folder / "logs", self.folder / "data"):
                make_folder(folder, mode=0o700)
        except OSError as error:
            raise LocalError(
                f"cannot make the folder {self.folder}: {error.strerror}; choose another with --data"
            ) from None

    def lock(self) -> int | None:
        """A descriptor that holds the folder until it is closed, by whatever end of the process; None if
        another has it."""
        descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        return descriptor

    def is_held(self) -> bool:
        if not self._lock_file.exists():
            return False
        descriptor = self.lock()
        if descriptor is not None:
            os.close(descriptor)
        return descriptor is None

    # ------------------------------------------------------------------ what lies in it

    def mend(self) -> None:
        """For who holds the lock: of each file that is kept twice both are whole again. Raises `Damaged`."""
        for each in self._all_kept:
            each.mend()

    def exists(self) -> bool:
        """Whether there ever was a deployment here."""
        return self._deployment.exists() or self._owners.exists()

    @property
    def deployment(self) -> Deployment | None:
        file = self._deployment.readable()
        if file is None:
            return None
        found = read(file)
        return decided(
            found, found
        )  # one that was made before there were ensembles has one coordinator in each region

    @deployment.setter
    def deployment(self, new: Deployment) -> None:
        new = self.decided(new)
        self._deployment.write(write(new).encode())
        self._owners.write(msgspec.json.encode(self.owners | owners_of(new)))

    def decided(self, new: Deployment) -> Deployment:
        """With the number of each region's coordinators. Should the record of what was here be lost, one that
        served alone goes on alone."""
        before = self.deployment
        if before is None:
            lying = {
                name: msgspec.structs.replace(spec, coordinators=1)
                for name, spec in new.regions.items()
                if not spec.coordinators and (self.folder / "data" / file_name(coordinator(name))).exists()
            }
            new = msgspec.structs.replace(new, regions=new.regions | lying)
        return decided(new, before)

    @property
    def owners(self) -> dict[str, str]:
        """The owner of every stream there ever was: its numbers are its owner's, and its data may still lie
        here."""
        return _kept(self._owners, dict[str, str]) or {}

    @property
    def ports(self) -> dict[str, int]:
        return _kept(self._ports, dict[str, int]) or {}

    @ports.setter
    def ports(self, new: dict[str, int]) -> None:
        self._ports.write(msgspec.json.format(msgspec.json.encode(new), indent=1))

    @property
    def supervised(self) -> Supervised | None:
        """How to reach the supervisor; what a dead one left behind is not believed."""
        state = _supervised(self._state_file)
        return state if state is not None and self.is_held() and state.process.is_alive() else None

    @supervised.setter
    def supervised(self, state: Supervised | None) -> None:
        if state is None:
            self._state_file.unlink(missing_ok=True)
        else:
            replace(self._state_file, msgspec.json.encode(state), mode=0o600)

    @property
    def children(self) -> dict[str, ProcessId]:
        return _kept(self._children, dict[str, ProcessId]) or {}

    @children.setter
    def children(self, found: dict[str, ProcessId]) -> None:
        self._children.write(msgspec.json.encode(found))

    @property
    def held(self) -> list[str]:
        """The nodes that stay away until somebody starts them."""
        return _kept(self._held, list[str]) or []

    @held.setter
    def held(self, nodes: list[str]) -> None:
        self._held.write(msgspec.json.encode(nodes))

    def url_of(self, region: str) -> str:
        """Where clients of a region connect."""
        deployment = self.deployment
        if deployment is None or region not in deployment.regions:
            known = ", ".join(deployment.regions) if deployment is not None else "none"
            raise LocalError(f"there is no region {region!r} in {self.folder}; there are {known}")
        return region_url(deployment, region, self.ports)

    def node_file(self, node: str) -> Path:
        return self.folder / "nodes" / f"{file_name(node)}.toml"

    def node_log(self, node: str) -> Path:
        return self.folder / "logs" / f"{file_name(node)}.log"

    def wipe(self) -> None:
        """Removes what a deployment keeps in the folder, and the folder itself if nothing else is in it."""
        for name in _KEPT:
            path = self.folder / name
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


def owners_of(deployment: Deployment) -> dict[str, str]:
    return {name: stream.owner for name, stream in deployment.streams.items()}


def _kept(kept: Kept, kind: type[_T]) -> _T | None:
    """None if it was never written. Raises `Damaged`."""
    data = kept.read()
    try:
        return None if data is None else msgspec.json.decode(data, type=kind)
    except msgspec.MsgspecError as error:
        raise Damaged(f"{kept.path} is damaged ({error}): restore it from a copy") from None


def _supervised(path: Path) -> Supervised | None:
    """A damaged one is as good as none: it speaks of a process that runs, which writes it when it starts."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Supervised)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


# ---------------------------------------------------------------------- which deployment is meant


def root(environment: Mapping[str, str]) -> Path:
    state = environment.get("XDG_STATE_HOME") or os.path.join(environment.get("HOME", "/"), ".local", "state")
    return Path(state) / "qanat"


def folder_of(name: str, data: str | None, environment: Mapping[str, str]) -> Path:
    """Where a deployment of that name lies: `--data`, else `QANAT_HOME`, else a folder of its name."""
    chosen = data or environment.get("QANAT_HOME")
    return Path(chosen) if chosen else root(environment) / name


def find(data: str | None, environment: Mapping[str, str], *, running: bool = True) -> Home:
    """The deployment that a command without a file means: the chosen folder's, or the only one that runs."""
    chosen = data or environment.get("QANAT_HOME")
    if chosen:
        home = Home(chosen)
        if running and home.supervised is None:
            raise NotRunning(f"no deployment runs in {home.folder}; start it with `qanat up --data {chosen}`")
        return home
    homes = [Home(folder) for folder in sorted(root(environment).glob("*")) if folder.is_dir()]
    homes += _elsewhere(environment)
    alive = [home for home in homes if home.supervised is not None]
    if len(alive) == 1:
        return alive[0]
    if len(alive) > 1:
        names = " or ".join(str(home.folder) for home in alive)
        raise LocalError(f"{len(alive)} deployments run here; say which with --data or QANAT_HOME: {names}")
    if running:
        raise NotRunning("no deployment runs here; start one with `qanat up`")
    left = [home for home in homes if any(process.is_alive() for process in home.children.values())]
    return left[0] if len(left) == 1 else Home(root(environment) / "local")


def _elsewhere(environment: Mapping[str, str]) -> list[Home]:
    """Also of what is over: who reads it looks whether it runs."""
    homes = []
    for note in sorted(root(environment).glob(NOTES)):
        with suppress(OSError, UnicodeDecodeError):
            homes.append(Home(note.read_text(encoding="utf-8")))
    return homes
