"""The launcher `./qanat`, run for real in a copy of the checkout on a PATH that holds only what a test puts
there.

Interpreters and installers are small scripts that write down how they were called; nothing is downloaded.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parents[3]
TOOLS = ("sh", "dirname", "readlink", "cksum", "cp", "mv", "rm", "mkdir", "cat", "chmod", "ln")
PROGRAM = 'import os, sys; print("ran", *sys.argv[1:], os.environ.get("PYTHONDONTWRITEBYTECODE", "unset"))'

# Answers the launcher's questions as an interpreter of $VERSION would; `-m venv` makes the semblance of one.
FAKE_PYTHON = """#!/bin/sh
echo "python $*" >>"$CALLS"
case "$*" in
    *sys.version_info*) echo "$0"; exit {too_old} ;;
    *sys.version.split*) echo {version} ;;
    *ensurepip*) exit {no_venv} ;;
    *fcntl*) exec {real} "$@" ;;
    --version) echo "Python {version}" ;;
    "-m venv --clear "*) mkdir -p "$4/bin" "$4/lib/python3.11/site-packages"; cp "$0" "$4/bin/python" ;;
    "-m pip install"*) echo "pip's words"; exit {pip_fails} ;;
    "-P -m qanat"*) shift 3; cd "${{0%/.venv/*}}/src" && exec {real} -m qanat "$@" ;;
    *) echo "unexpected: $*" >&2; exit 99 ;;
esac
"""
FAKE_UV = """#!/bin/sh
echo "uv $*" >>"$CALLS"
case "$*" in
    --version) echo "uv 0"; exit {broken} ;;
    venv*)
        for venv; do :; done
        mkdir -p "$venv/bin" "$venv/lib/python3.11/site-packages"; cp "{python}" "$venv/bin/python" ;;
    "pip install"*) echo "uv's words"; {install} ;;
esac
"""


def _hears_interruptions() -> None:
    """Who is started in the background inherits that they are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@dataclass
class Machine:
    """A machine that has never seen the project: a checkout, a PATH, and a record of what was called."""

    root: Path
    bin: Path
    calls_file: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def script(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def python(
        self, name: str = "python3", version: str = "3.11.9", no_venv: bool = False, pip_fails: bool = False
    ) -> Path:
        too_old = tuple(map(int, version.split(".")[:2])) < (3, 11)
        return self.script(
            name,
            FAKE_PYTHON.format(
                version=version,
                too_old=int(too_old),
                no_venv=int(no_venv),
                pip_fails=int(pip_fails),
                real=shlex.quote(sys.executable),
            ),
        )

    def uv(self, install: str = "exit 0", broken: bool = False) -> Path:
        python = self.bin / "python3"
        return self.script("uv", FAKE_UV.format(python=python, install=install, broken=int(broken)))

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [str(self.root / "qanat"), *words],
            env={"PATH": str(self.bin), "CALLS": str(self.calls_file), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_hears_interruptions,  # noqa: PLW1509
        )
        self.started.append(process)
        return process

    def run(self, *words: str, **environment: str) -> tuple[int, str, str]:
        process = self.start(*words, **environment)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def calls(self, beginning: str) -> list[str]:
        lines = self.calls_file.read_text().splitlines() if self.calls_file.exists() else []
        return [line for line in lines if line.startswith(beginning)]


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    root = tmp_path / "a checkout"  # with a space, as a user's folder may have
    (root / "src" / "qanat").mkdir(parents=True)
    shutil.copy(CHECKOUT / "qanat", root / "qanat")
    (root / "requirements.lock").write_text("first==1\n")
    (root / "src" / "qanat" / "__init__.py").write_text("")
    (root / "src" / "qanat" / "__main__.py").write_text(PROGRAM)
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (bin_folder / tool).symlink_to(found)
    machine = Machine(root, bin_folder, tmp_path / "calls")
    yield machine
    for process in machine.started:
        with process:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def test_first_use_installs_with_uv_and_later_uses_start_at_once(machine: Machine) -> None:
    machine.python()
    machine.uv()
    code, out, err = machine.run("demo", "--json", PYTHONDONTWRITEBYTECODE="1")
    assert (code, out) == (0, "ran demo --json unset\n")
    assert "with uv" in err
    assert "ready" in err
    (install,) = machine.calls("uv pip install")
    assert "--require-hashes" in install
    assert "--compile-bytecode" in install

    machine.calls_file.unlink()
    code, out, err = machine.run("status")
    assert (code, out, err) == (0, "ran status unset\n", "")
    assert machine.calls("") == ["python -P -m qanat status"]


def test_without_uv_pip_installs_with_hashes_and_bytecode(machine: Machine) -> None:
    machine.python()
    code, _, err = machine.run()
    assert code == 0
    assert "with pip" in err
    (install,) = machine.calls("python -m pip install")
    assert "--require-hashes" in install
    assert "--compile" in install


def test_a_uv_that_cannot_run_is_passed_over(machine: Machine) -> None:
    machine.python()
    machine.uv(broken=True)
    code, _, err = machine.run()
    assert code == 0
    assert "with pip" in err


def test_pip_is_tried_where_uv_fails(machine: Machine) -> None:
    """An index may be set up for pip alone."""
    machine.python()
    machine.uv(install="exit 2")
    code, _, err = machine.run()
    assert code == 0
    assert err.index("with uv") < err.index("with pip") < err.index("ready")


def test_a_changed_lock_file_installs_again(machine: Machine) -> None:
    machine.python()
    machine.uv()
    machine.run()
    (machine.root / "requirements.lock").write_text("first==2\n")
    code, _, err = machine.run()
    assert code == 0
    assert "preparing" in err
    assert len(machine.calls("uv pip install")) == 2
    assert machine.run()[2] == ""


def test_a_removed_interpreter_means_a_new_environment(machine: Machine) -> None:
    machine.python()
    machine.uv()
    machine.run()
    (machine.root / ".venv" / "bin" / "python").unlink()
    (machine.root / ".venv" / "bin" / "python").symlink_to(machine.bin / "gone")
    code, _, err = machine.run()
    assert code == 0
    assert "preparing" in err


def test_an_old_python_is_refused_in_one_sentence(machine: Machine) -> None:
    machine.python(version="3.10.2")
    code, out, err = machine.run()
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    assert "3.11 or newer is needed, but python3 is 3.10.2" in err
    assert not (machine.root / ".venv").exists()


def test_no_python_at_all_is_said_in_one_sentence(machine: Machine) -> None:
    code, _, err = machine.run()
    assert code == 3
    assert err.count("\n") == 1
    assert "found none" in err


def test_a_newer_python_beside_an_old_one_is_found(machine: Machine) -> None:
    machine.python(version="3.9.1")
    machine.python("python3.12", version="3.12.4")
    code, _, err = machine.run()
    assert code == 0
    assert "Python 3.12.4" in err


def test_a_chosen_python_is_used_and_a_bad_choice_refused(machine: Machine) -> None:
    machine.python()
    chosen = machine.python("chosen", version="3.13.0")
    assert "Python 3.13.0" in machine.run(QANAT_PYTHON=str(chosen))[2]
    machine.python("ancient", version="3.8.0")
    shutil.rmtree(machine.root / ".venv")
    code, _, err = machine.run(QANAT_PYTHON="ancient")
    assert code == 3
    assert "ancient is 3.8.0" in err


def test_a_missing_venv_module_is_said_in_one_sentence(machine: Machine) -> None:
    machine.python(no_venv=True)
    code, _, err = machine.run()
    assert code == 3
    assert "lacks the venv module" in last_line(err)
    assert not (machine.root / ".venv" / "installed").exists()


def test_uv_needs_no_venv_module(machine: Machine) -> None:
    machine.python(no_venv=True)
    machine.uv()
    assert machine.run()[0] == 0


def test_a_failed_installation_is_said_and_not_believed(machine: Machine) -> None:
    machine.python(pip_fails=True)
    machine.uv(install="exit 2")
    code, out, err = machine.run()
    assert (code, out) == (3, "")
    assert "index can be reached" in last_line(err)
    log = (machine.root / ".venv.log").read_text()
    assert "uv's words" in log
    assert "pip's words" in log
    machine.uv()
    assert machine.run()[0] == 0


def test_a_folder_that_cannot_be_written_is_said() -> None:
    """In a folder of its own that anybody may read: root may write anywhere, so root becomes nobody here."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(CHECKOUT / "qanat", folder)
        (Path(folder) / "requirements.lock").write_text("first==1\n")
        Path(folder).chmod(0o555)
        nobody = 65534 if os.geteuid() == 0 else None
        ran = subprocess.run(
            [f"{folder}/qanat"],
            user=nobody,
            capture_output=True,
            text=True,
            env={"PATH": os.defpath},
            check=False,
        )
        Path(folder).chmod(0o755)
    assert ran.returncode == 3
    assert "cannot be written" in ran.stderr
    assert ran.stderr.count("\n") == 1


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    def there() -> bool:
        assert process.poll() is None
        return path.exists()

    wait_until(there)


def test_of_two_first_uses_at_once_one_waits(machine: Machine) -> None:
    machine.python()
    started, gate = machine.root / "started", machine.root / "gate"
    os.mkfifo(gate)
    machine.uv(install=f': >"{started}"; cat "{gate}"')
    first = machine.start("one")
    wait_for(started, first)
    second = machine.start("two")
    assert second.stderr is not None
    assert "waiting" in second.stderr.readline()
    gate.write_text("go")
    assert first.communicate(timeout=300)[0] == "ran one unset\n"
    out, err = second.communicate(timeout=300)
    assert (out, err) == ("ran two unset\n", "")
    assert len(machine.calls("uv pip install")) == 1


def test_a_killed_first_use_is_not_believed(machine: Machine) -> None:
    machine.python()
    started, gate = machine.root / "started", machine.root / "gate"
    os.mkfifo(gate)
    machine.uv(install=f': >"{started}"; cat "{gate}"')
    killed = machine.start()
    wait_for(started, killed)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate(timeout=300)
    machine.uv()
    code, _, err = machine.run()
    assert code == 0
    assert "preparing" in err


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_an_interruption_ends_it(machine: Machine, shell: str) -> None:
    """Shells differ in what they do when a child handles the signal itself and leaves with a code of its
    own."""
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"there is no {shell} on this machine")
    launcher = machine.root / "qanat"
    launcher.write_text(launcher.read_text().replace("#!/bin/sh", f"#!{found}", 1))
    machine.python()
    started = machine.root / "started"
    # Waits for the signal with the signal blocked, so that it cannot come too early.
    waiting = (
        "import pathlib, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT]); "
        f"pathlib.Path({str(started)!r}).touch(); signal.sigwait([signal.SIGINT]); sys.exit(2)"
    )
    machine.uv(install=shlex.join([sys.executable, "-c", waiting]))
    process = machine.start()
    wait_for(started, process)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 130
    assert machine.calls("python -m pip") == []
    assert not (machine.root / ".venv" / "installed").exists()


def test_a_moved_checkout_and_a_link_to_the_launcher_still_work(machine: Machine, tmp_path: Path) -> None:
    machine.python()
    machine.uv()
    machine.run()
    moved = tmp_path / "elsewhere"
    machine.root.rename(moved)
    machine.root = moved
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "q").symlink_to("../elsewhere/qanat")
    (site,) = (moved / ".venv").glob("lib/python3*/site-packages")
    assert (site / (site / "qanat.pth").read_text().strip()).resolve() == moved / "src"
    ran = subprocess.run(
        [tmp_path / "links" / "q", "hello"],
        env={"PATH": str(machine.bin), "CALLS": str(machine.calls_file)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "ran hello unset\n", "")
