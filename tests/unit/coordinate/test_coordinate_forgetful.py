"""A coordinator that comes back with less than it had: whose sessions are whose, and who reads again."""

from tests.unit.protocols.contexts import InOrder

from qanat.coordinate import CoordinatorServer, EventKind, ServerConfig
from qanat.coordinate.messages import (
    Attach,
    Attached,
    Beat,
    Call,
    Expired,
    Fired,
    Open,
    Opened,
    Operation,
    Watch,
)
from qanat.kernel import Address

S = 1_000_000
A, B = Address("a"), Address("b")


def started(saved: tuple[bytes, ...] = ()) -> tuple[CoordinatorServer, InOrder]:
    context = InOrder(Address("server"))
    server = CoordinatorServer(context, ServerConfig())
    server.on_start(0, saved)
    return server, context


def test_a_session_is_its_clients_whoever_else_was_given_its_number_before() -> None:
    """The clock was ahead when A was given 8; everything is forgotten, the clock is set right, and B knows of
    7."""
    server, context = started()
    server.on_message(5, B, Open(1, S, above=7))
    assert context.take("send") == [(B, Opened(1, 8, S))]
    server.on_message(5, A, Beat(8, 3))
    server.on_message(5, A, Attach(8, 1, ()))
    assert context.take("send") == [(A, Expired(8)), (A, Expired(8))]
    again, context = started((server.tree.snapshot(),))
    again.on_message(5, A, Attach(8, 1, ()))
    again.on_message(5, B, Attach(8, 1, ()))
    assert context.take("send") == [(A, Expired(8)), (B, Attached(8, 1))]


def test_after_a_restart_everything_watched_is_read_again() -> None:
    """The journal may be an older copy: what the client saw then lies ahead of it, or seems to lie behind."""
    server, context = started()
    context.date_us = 5
    server.on_message(5, A, Open(1, S))
    server.on_message(5, A, Attach(5, 1, ()))
    server.on_message(5, A, Call(5, 1, Operation.CREATE, "/node"))
    copy = server.tree.snapshot()
    context.take("send")
    watch = Watch(EventKind.DATA, "/node", server.tree.zxid + 7, True)
    again, context = started((copy,))
    again.on_message(5, A, Attach(5, 2, (watch,)))
    assert context.take("send") == [(A, Fired(5, EventKind.DATA, "/node")), (A, Attached(5, 2))]
    again.on_message(5, A, Attach(5, 3, (watch,)))
    assert context.take("send") == [(A, Attached(5, 3))]
