"""The demonstration, as a user runs it: everything comes all the way and is proven, and nothing is left,
however it ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.spark.class_archive import quick_java
from tests.waiting import wait_until

from qanat.cli.demo_display import Counting, Display, Picture, Stage
from qanat.demonstration.engine import Told
from qanat.demonstration.readers import Heard, Pause, Pauses, longest_ms
from qanat.demonstration.run import Progress, Stages
from qanat.demonstration.store import Roll


def demo(folder: Path, *words: str, **options: Any) -> subprocess.Popen[str]:
    """In a session of its own, so that what is sent to its group reaches all of its processes, as Ctrl-C
    does."""
    command = [sys.executable, "-m", "qanat", "demo", *words]
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(folder), "JDK_JAVA_OPTIONS": quick_java()}
    return subprocess.Popen(
        command,
        text=True,
        env=environment,
        start_new_session=True,
        stdout=subprocess.PIPE,
        preexec_fn=_hears_interruptions,  # noqa: PLW1509
        **options,
    )


def _hears_interruptions() -> None:
    """Who is started in the background inherits that they are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def processes_of(folder: Path) -> list[str]:
    """Those that were started with this folder for temporary files."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}\0".encode() in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()[:200])
        except OSError:
            continue
    return found


@pytest.mark.paper("D7")
@pytest.mark.slow
@pytest.mark.always
def test_every_write_comes_all_the_way_and_the_audit_proves_it(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "2", "--json", stderr=subprocess.PIPE) as running:
        out, said = running.communicate(timeout=400)
    assert running.returncode == 0, said
    summary = json.loads(out.splitlines()[-1])
    assert summary["captured"] == summary["written"] > 0
    published_in = summary["published_in"]
    assert 0 < published_in["eu"] < summary["captured"]  # drafts are nobody's business
    assert set(published_in) == {"eu", "us", "asia"} and all(published_in.values())
    assert summary["published"] == sum(published_in.values())
    assert summary["archived"] == summary["published"]
    assert summary["delivered"] == summary["published"] * summary["subscribers"]
    assert (summary["lost"], summary["duplicated"], summary["out_of_order"]) == (0, 0, 0)
    assert summary["audit"] == "pass"
    assert set(summary["latency_ms"]) == {"eu", "us", "asia"}
    assert summary["killed"].startswith("eu/") and summary["takeover_ms"] > 0
    assert "is cut" in said and "is killed" in said
    assert "links does not" not in said  # nobody knows a process by that name
    # No word that is not the demonstration's own.
    assert not [
        line for line in said.splitlines() if "WARN" in line or "Exception" in line or "Error" in line
    ]
    assert not list(tmp_path.iterdir())
    assert not processes_of(tmp_path)


@pytest.mark.slow
def test_an_interrupted_demonstration_leaves_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "60", stderr=subprocess.STDOUT) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("every region serves"):
                break
        assert processes_of(tmp_path)
        os.killpg(running.pid, signal.SIGINT)
        said, _ = running.communicate(timeout=300)
    assert running.returncode == 130
    assert "qanat: stopping Spark, the regions and their clients, and removing their folders" in said
    assert said.splitlines()[-1].startswith("qanat: stopped the demonstration after ")
    assert said.endswith("no processes and no data are left\n")
    wait_until(lambda: not processes_of(tmp_path), say=lambda: processes_of(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_who_interrupts_a_second_time_waits_for_nothing(tmp_path: Path) -> None:
    with demo(tmp_path, "--seconds", "60", stderr=subprocess.STDOUT) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("every region serves"):
                break
        os.killpg(running.pid, signal.SIGINT)
        for line in running.stdout:
            if line.startswith("qanat: stopping Spark"):
                break
        os.killpg(running.pid, signal.SIGINT)
        running.communicate(timeout=300)
    assert running.returncode == 130
    wait_until(lambda: not processes_of(tmp_path), say=lambda: processes_of(tmp_path))


def test_a_number_that_stands_though_more_is_to_come_says_for_how_long() -> None:
    counting = Counting()

    def at(seconds: float, captured: int, behind: int) -> list[str]:
        progress = Progress(seconds, 9, 8, Told(1, 1, 1), 0, ["eu"], [8], [1.0], [2.0], 1)
        return counting.still(progress, [Stage("written", int(seconds)), Stage("captured", captured, behind)])

    assert at(1, 5, 3) == ["", ""]
    assert at(2, 5, 3) == ["", ""]
    assert at(3.5, 5, 4) == ["", " (no news for 2 s)"]
    assert at(6, 5, 4) == ["", " (no news for 5 s)"]
    assert at(7, 6, 3) == ["", ""]
    assert at(12, 9, 0) == ["", ""], "nothing is to come"
    assert at(13, 9, 1) == ["", ""]


def test_what_is_waited_for_has_a_clock_that_goes_on() -> None:
    now = [0.0]
    picture = Picture(lambda: now[0])
    picture.begin("Spark starts")
    assert picture.text() == "Spark starts (0 s)"
    now[0], picture.table = 12.0, "numbers"
    assert picture.text() == "numbers\nSpark starts (12 s)"
    picture.begin("")
    assert picture.text() == "numbers"


def test_a_roll_counts_what_is_lost_doubled_or_out_of_order() -> None:
    roll = Roll()
    roll.take("a", np.array([0, 2, 4], np.uint64))
    roll.take("b", np.array([1, 3, 100_000], np.uint64))
    assert (roll.delivered, roll.duplicated, roll.out_of_order, roll.lost(5)) == (6, 0, 0, 0)
    roll.take("a", np.array([4, 7, 6, 7], np.uint64))
    assert (roll.delivered, roll.duplicated, roll.out_of_order, roll.lost(8)) == (10, 2, 1, 1)


def test_a_stage_never_shows_more_than_those_before_it() -> None:
    nobody: Any = None
    stages = Stages(nobody, nobody, [nobody], [nobody] * 2, ["eu", "us"])
    stages.told, stages.heard = Told(5, 3, 7), [Heard(9, 0.0, 0.0, 40), Heard(8, 0.0, 0.0, 30)]
    assert stages.progress().delivered == [49, 38]
    assert stages.progress().told == Told(9, 9, 7)
    stages.told = Told(30, 20, 7)
    assert stages.progress().told == Told(30, 20, 7)


def test_a_takeover_is_the_longest_pause_from_the_kill_on() -> None:
    pauses = Pauses(most=2)
    for now_us in (1_000_000, 4_000_000, 4_100_000, 4_200_000, 6_100_000, 6_150_000):
        pauses.take(now_us)
    assert pauses.longest == [Pause(1_000_000, 4_000_000), Pause(4_200_000, 6_100_000)]
    assert longest_ms(pauses.longest, 4_300_000) == 1800.0
    assert longest_ms([], 5) == 0.0


def test_a_line_is_shown_when_something_has_changed() -> None:
    words = io.StringIO()
    with Display(words) as display:
        for second, archived in ((1, 5), (2, 5), (3, 5), (4, 7), (5, 7)):
            told = Told(9, 8, archived)
            display.show(Progress(float(second), 9, 8, told, 0, ["eu"], [8], [1.0], [2.0], 1))
        display.say("done")
    lines = words.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["1.0", "4.0", "done"]
