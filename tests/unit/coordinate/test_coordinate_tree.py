"""The coordinator's tree: versions, numbers, ephemeral nodes; and that its records rebuild it."""

from __future__ import annotations

import pytest

from qanat.coordinate.interface import Problem
from qanat.coordinate.messages import EventKind
from qanat.coordinate.tree import (
    Changed,
    Created,
    Deleted,
    Ended,
    Record,
    Tree,
    compact,
    decode,
    encode,
)


def make(tree: Tree, path: str, data: bytes = b"", owner: int = 0, sequential: bool = False) -> Created:
    planned = tree.plan_create(path, data, owner, sequential)
    assert isinstance(planned, Created)
    tree.apply(planned)
    return planned


def test_set_and_delete_are_compare_and_set() -> None:
    tree = Tree()
    make(tree, "/a", b"1")
    assert tree.plan_set("/a", b"2", 1) is Problem.BAD_VERSION
    changed = tree.plan_set("/a", b"2", 0)
    assert not isinstance(changed, Problem)
    assert tree.apply(changed) == [(EventKind.DATA, "/a")]
    assert (tree.nodes["/a"].data, tree.nodes["/a"].version) == (b"2", 1)
    assert tree.plan_delete("/a", 0) is Problem.BAD_VERSION
    assert not isinstance(tree.plan_delete("/a", -1), Problem)


@pytest.mark.parametrize("path", ["a", "", "/", "/a//b", "/a/", "/.."])
def test_paths_that_are_none_are_refused(path: str) -> None:
    assert isinstance(Tree().plan_create(path, b"", 0, False), Problem)


def test_refusals_are_zookeepers() -> None:
    tree = Tree()
    make(tree, "/a")
    make(tree, "/a/b", owner=5)
    assert tree.plan_create("/a", b"", 0, False) is Problem.NODE_EXISTS
    assert tree.plan_create("/x/y", b"", 0, False) is Problem.NO_NODE
    assert tree.plan_create("/a/b/c", b"", 0, False) is Problem.NO_CHILDREN_FOR_EPHEMERALS
    assert tree.plan_delete("/a", -1) is Problem.NOT_EMPTY
    assert tree.plan_set("/none", b"", -1) is Problem.NO_NODE
    assert tree.plan_create("/big", bytes(2 << 20), 0, False) is Problem.BAD_ARGUMENTS


def test_sequential_nodes_are_numbered_and_numbers_never_come_back() -> None:
    tree = Tree()
    make(tree, "/q")
    first = make(tree, "/q/n-", sequential=True).path
    deleted = tree.plan_delete(first, -1)
    assert not isinstance(deleted, Problem)
    tree.apply(deleted)
    assert first == "/q/n-0000000000"
    assert make(tree, "/q/n-", sequential=True).path == "/q/n-0000000001"


def test_a_session_takes_its_nodes_with_it() -> None:
    tree = Tree()
    began = tree.plan_begin(1000)
    tree.apply(began)
    make(tree, "/a")
    make(tree, "/a/mine", owner=began.session)
    make(tree, "/a/other")
    assert (EventKind.CHILDREN, "/a") in tree.apply(Ended(began.session))
    assert list(tree.nodes["/a"].children) == ["other"]
    assert tree.plan_begin(1000).session == began.session + 1


def test_records_and_snapshots_rebuild_the_tree() -> None:
    tree, journal = Tree(), list[bytes]()

    def do(record: Record | Problem) -> None:
        assert not isinstance(record, Problem)
        journal.append(encode(record))
        tree.apply(record)

    do(tree.plan_begin(1000))
    do(tree.plan_create("/a", b"x", 0, False))
    do(tree.plan_create("/a/e", b"y", 1, False))
    journal.append(tree.snapshot())
    do(tree.plan_set("/a", b"z", 0))
    for records in (journal, journal[3:]):
        again = Tree()
        for record in records:
            again.apply(decode(record))
        assert again.snapshot() == tree.snapshot()


def test_a_watch_that_was_missed_is_known() -> None:
    tree = Tree()
    make(tree, "/a")
    seen = tree.zxid
    assert not tree.missed(EventKind.DATA, "/a", seen, True)
    make(tree, "/a/b")
    assert tree.missed(EventKind.CHILDREN, "/a", seen, True)
    assert not tree.missed(EventKind.DATA, "/a", seen, True)
    assert tree.missed(EventKind.DATA, "/a/b", seen, False)


def test_a_journal_is_its_last_state() -> None:
    saved: list[bytes] = []
    tree = Tree()
    for number in range(50):
        for record in (
            tree.plan_begin(1000 + number),
            tree.plan_create(f"/n{number}", b"data", number if number % 2 else 0, False),
            tree.plan_set("/n0", b"%d" % number, -1),
        ):
            if not isinstance(record, Problem):
                saved.append(encode(record))
                tree.apply(record)
    (snapshot,) = compact(saved)
    again = Tree()
    again.apply(decode(snapshot))
    assert (again.snapshot(), again.zxid) == (tree.snapshot(), tree.zxid)
    assert compact([snapshot]) == [snapshot]


def test_the_data_of_all_nodes_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("qanat.coordinate.tree.BYTES_MAX", 20)
    tree = Tree()
    make(tree, "/a", bytes(8))
    make(tree, "/b", bytes(8))
    full = Problem.BAD_ARGUMENTS
    assert tree.plan_create("/c", b"", 0, False) is full
    assert tree.plan_set("/a", bytes(9), -1) is full
    again = Tree()
    again.apply(decode(tree.snapshot()))
    assert again.plan_create("/c", b"", 0, False) is full
    for found in (tree, again):
        change = found.plan_set("/a", bytes(6), -1)
        assert isinstance(change, Changed)
        found.apply(change)
        assert isinstance(found.plan_create("/c", b"", 0, False), Created)
        deleted = found.plan_delete("/b", -1)
        assert isinstance(deleted, Deleted)
        found.apply(deleted)
        assert isinstance(found.plan_create("/c", bytes(10), 0, False), Created)
        assert found.plan_create("/c", bytes(11), 0, False) is full


def test_sessions_are_numbered_above_what_a_client_has_seen() -> None:
    tree = Tree()
    first = tree.plan_begin(1000, at_least=50)
    assert first.session == 50
    tree.apply(first)
    assert tree.plan_begin(1000, at_least=7).session == 51
