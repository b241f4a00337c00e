"""Files that are kept twice: whatever happens to one of the two, what was written last is read, and it is
said."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from qanat.events import kept
from qanat.events.kept import Damaged, Kept, sealed, twin_of, unsealed


class Pair:
    """A file that was written three times, its twin, what they held before, and what is said of them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.said: list[str] = []
        self.kept = Kept(folder / "state.json", say=self.said.append)
        self.paths = (self.kept.path, self.kept.twin)
        self.older: list[dict[Path, bytes]] = []
        for value in (b"one", b"two", b"three"):
            self.kept.write(value)
            self.older.append({path: path.read_bytes() for path in self.paths})


def harms(content: bytes, older: bytes) -> list[bytes | None]:
    flips = [bytearray(content) for _ in range(len(content) * 8)]
    for i, flipped in enumerate(flips):
        flipped[i // 8] ^= 1 << i % 8
    return [*map(bytes, flips), *(content[:size] for size in range(len(content))), None, older]


@pytest.mark.parametrize("which", [0, 1], ids=["file", "twin"])
def test_what_was_written_last_is_read_whatever_happens_to_one_of_the_two(tmp_path: Path, which: int) -> None:
    pair = Pair(tmp_path)
    victim = pair.paths[which]
    whole = victim.read_bytes()
    for harmed in harms(whole, pair.older[0][victim]):
        victim.unlink(missing_ok=True)
        if harmed is not None:
            victim.write_bytes(harmed)
        pair.said.clear()
        again = Kept(pair.kept.path, say=pair.said.append)
        assert again.read() == b"three"
        assert len(pair.said) == 1 and str(victim) in pair.said[0]
        assert again.mend() == b"three"
        assert [path.read_bytes() for path in pair.paths] == [whole, whole]


def test_damage_to_both_is_refused(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    for path in pair.paths:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(Damaged, match=r"state\.json is damaged, and so is"):
        Kept(pair.kept.path).read()


def test_a_crash_between_the_two_is_no_damage(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.kept.twin.write_bytes(pair.older[1][pair.kept.twin])
    assert (pair.kept.mend(), pair.said) == (b"three", [])
    first = Kept(tmp_path / "new", say=pair.said.append)
    first.write(b"x")
    first.twin.unlink()
    assert (first.read(), pair.said) == (b"x", [])


def test_what_somebody_wrote_by_hand_is_read(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(b"by hand")
    assert Kept(path).mend() == b"by hand"
    Kept(path).write(b"ours")
    assert (Kept(path).read(), twin_of(path).exists()) == (b"ours", True)
    Kept(path).remove()
    assert Kept(path).read() is None and not twin_of(path).exists()


def test_whoever_reads_while_one_writes_is_told_of_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    pair, look, looks = Pair(tmp_path), kept._look, itertools.count()

    def looked(path: Path) -> kept._Copy:
        if next(looks) == 1:
            pair.kept.write(b"four")
        return look(path)

    reader = Kept(pair.kept.path, say=said.append)
    monkeypatch.setattr(kept, "_look", looked)
    assert (reader.read(), said) == (b"four", [])


def test_a_seal_is_of_its_number_and_its_bytes() -> None:
    whole = sealed(b"data", 7)
    assert unsealed(whole) == (7, b"data")
    assert unsealed(whole.replace(b"number=7", b"number=8")) is None
    assert unsealed(b"data") is None
