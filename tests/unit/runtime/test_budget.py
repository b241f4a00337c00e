"""The budget of a process: its levels, who is asked, what is refused; and how much there is to begin with."""

import asyncio
from pathlib import Path

import pytest

from qanat.runtime.budget import Level, MemoryBudget, OutOfMemory, Shed, default_bytes
from qanat.runtime.memory import machine_bytes, own_bytes
from qanat.runtime.traffic import Traffic

BUDGET = 1_000_000


class Process:
    """One that has as much as it is told."""

    def __init__(self) -> None:
        self.used = 0
        self.asked: list[tuple[str, Shed]] = []
        self.budget = MemoryBudget(BUDGET, measure=lambda: self.used, code=lambda: 0)
        for name in ("first", "second"):
            self.budget.add(name, lambda: 7, lambda shed, name=name: self.shed(name, shed))  # type: ignore[misc]

    def shed(self, name: str, shed: Shed) -> int:
        self.asked.append((name, shed))
        return 60_000

    def look(self, share: float) -> Level:
        self.used = int(share * BUDGET)
        return self.budget.look()


def test_levels_rise_at_their_shares_and_fall_a_little_below_them() -> None:
    process = Process()
    shares = (0.5, 0.71, 0.79, 0.81, 0.88, 0.96, 0.94, 0.92, 0.84, 0.79, 0.775, 0.69, 0.67)
    assert [process.look(share).name for share in shares] == [
        "EASY", "TIGHT", "TIGHT", "SHORT", "CLOSED", "FULL", "FULL", "CLOSED", "SHORT", "SHORT", "TIGHT",
        "TIGHT", "EASY",
    ]  # fmt: skip


def test_holders_are_asked_in_their_order_for_what_is_left_and_told_when_it_is_over() -> None:
    process = Process()
    process.look(0.6)
    assert process.asked == []
    process.look(0.72)
    assert process.asked == [(name, Shed(Level.TIGHT, 0, BUDGET)) for name in ("first", "second")]
    process.asked.clear()
    process.look(0.85)
    assert [(name, shed.over) for name, shed in process.asked] == [("first", 100_000), ("second", 40_000)]
    process.asked.clear()
    process.look(0.1)
    process.look(0.1)
    assert process.asked == [(name, Shed(Level.EASY, 0, BUDGET)) for name in ("first", "second")]
    assert process.budget.status()["given_up_bytes"] == {"first": 120_000, "second": 120_000}


def test_new_things_are_refused_before_more_of_what_is_there() -> None:
    process = Process()
    process.look(0.85)
    process.budget.refuse_new("subscription")
    process.look(0.9)
    with pytest.raises(
        OutOfMemory, match=r"0 of 0 MiB are in use.*no subscription is taken; try again later"
    ) as refused:
        process.budget.refuse_new("subscription")
    assert refused.value.definite
    process.budget.refuse_more("publish")
    assert "new connections and subscriptions are refused; most is held by second" in (
        process.budget.trouble() or ""
    )
    process.look(0.97)
    with pytest.raises(OutOfMemory, match="no publish is taken"):
        process.budget.refuse_more("publish")
    assert process.budget.status()["refused"] == {"subscription": 1, "publish": 1}
    process.look(0.5)
    assert process.budget.trouble() is None


def test_who_grew_by_much_is_looked_at_before_the_clock_says_so() -> None:
    async def main() -> None:
        process = Process()
        process.budget.start()
        process.used = int(0.9 * BUDGET)
        process.budget.grew(BUDGET // 100)
        await asyncio.sleep(0)
        assert not process.budget.level
        process.budget.grew(BUDGET // 100)
        await asyncio.sleep(0)
        assert process.budget.level is Level.CLOSED
        process.budget.stop()

    asyncio.run(main())


def test_a_library_in_somebody_else_s_process_has_no_budget() -> None:
    budget = Traffic().budget
    assert budget.look() is Level.EASY


def test_memory_is_measured_without_the_pages_of_files() -> None:
    before = own_bytes()
    taken = bytearray(64 << 20)
    taken[::4096] = bytes(len(taken) // 4096)
    assert 60 << 20 < own_bytes() - before < 80 << 20


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


MACHINE = {"proc/meminfo": "MemTotal:  4194304 kB\nMemFree: 1 kB\n"}
GROUPS = "sys/fs/cgroup"


def test_the_lowest_limit_of_machine_and_control_groups_counts(tmp_path: Path) -> None:
    _write(tmp_path, MACHINE)
    assert machine_bytes(tmp_path) == 4 << 30
    one = {
        "proc/self/cgroup": "4:cpu,memory:/a/b\n0::/\n",
        f"{GROUPS}/memory/a/memory.limit_in_bytes": f"{3 << 30}\n",
        f"{GROUPS}/memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
    }
    _write(tmp_path / "one", MACHINE | one)
    assert machine_bytes(tmp_path / "one") == 3 << 30
    two = {
        "proc/self/cgroup": "0::/user/me\n",
        f"{GROUPS}/user/me/memory.max": "max\n",
        f"{GROUPS}/user/memory.max": f"{1 << 30}\n",
    }
    _write(tmp_path / "two", MACHINE | two)
    assert machine_bytes(tmp_path / "two") == 1 << 30


def test_what_is_taken_of_it_where_nobody_says() -> None:
    mib = 1 << 20
    assert [default_bytes(there * mib) // mib for there in (256, 512, 1_024, 8_192)] == [192, 384, 512, 4_096]
