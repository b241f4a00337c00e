"""What one client of the embedded coordinator can make it remember, and what it can make it answer."""

from tests.unit.protocols.contexts import InOrder

from qanat.coordinate import CoordinatorServer, EventKind, Problem, ServerConfig
from qanat.coordinate.messages import (
    TO_CLIENT,
    Attach,
    Call,
    Close,
    Detached,
    Fired,
    Open,
    Operation,
    Reply,
    Watch,
)
from qanat.coordinate.tree import Created, Deleted, Tree, decode
from qanat.kernel import Address
from qanat.wire.frame import FrameType, encode
from qanat.wire.messages import MessageCodec

S = 1_000_000
SERVER, A, B = Address("server"), Address("a"), Address("b")


def test_watches_are_bounded_in_sum_and_who_watches_most_is_told() -> None:
    """However many sessions somebody has: what a modest one watches stays."""
    context = InOrder(SERVER)
    server = CoordinatorServer(context, ServerConfig(watched_bytes=100_000))
    server.on_message(0, A, Open(0, S))
    server.on_message(0, A, Attach(1, 1, (Watch(EventKind.DATA, "/mine", 0, False),)))
    for session in range(2, 30):
        server.on_message(0, B, Open(session, S))
        server.on_message(0, B, Attach(session, 1, ()))
        for number in range(50):
            server.on_message(
                0, B, Call(session, number, Operation.GET, f"/{session}/{number}/{'é' * 2_000}", watch=True)
            )
        assert server._watched_bytes <= 100_000
    told = context.take("send")
    assert any(message == Detached(2) for _, message in told)
    assert not any(message == Detached(1) for _, message in told)
    greedy = tuple(Watch(EventKind.DATA, f"/{number}{'x' * 4_000}", 0, False) for number in range(100))
    server.on_message(0, B, Attach(2, 2, greedy))
    assert (B, Detached(2)) in context.take("send") and server._watched_bytes <= 100_000
    server.on_message(0, A, Call(1, 9, Operation.CREATE, "/mine"))
    assert context.take("send")[0] == (A, Fired(1, EventKind.DATA, "/mine"))
    for session in range(1, 30):
        server.on_message(0, A if session == 1 else B, Close(session))
    assert not server._watches and not server._watching and not server._watched_bytes


def test_a_node_has_no_more_children_than_one_answer_can_name() -> None:
    """Who lists them would stop the server otherwise, each time."""
    context = InOrder(SERVER)
    server = CoordinatorServer(context, ServerConfig())
    server.on_message(0, A, Open(0, S))
    server.on_message(0, A, Attach(1, 1, ()))
    name = "é" * 2_000
    for number in range(400):
        server.on_message(0, A, Call(1, number, Operation.CREATE, f"/{number}{name}"))
    problems = [message.problem for _, message in context.take("send") if isinstance(message, Reply)]
    assert 100 < problems.count(Problem.NONE) < 300 and problems[-1] is Problem.BAD_ARGUMENTS
    server.on_message(0, A, Call(1, 500, Operation.CHILDREN, "/"))
    ((_, reply),) = context.take("send")
    assert isinstance(reply, Reply) and len(reply.children) == problems.count(Problem.NONE)
    control, attachments = MessageCodec(TO_CLIENT).encode(reply)
    assert encode(FrameType.MESSAGE, 16, control, attachments)
    restored = Tree()
    restored.apply(decode(server.tree.snapshot()))
    assert restored.plan_create("/more" + name, b"", 0, False) is Problem.BAD_ARGUMENTS
    deleted = restored.plan_delete(f"/0{name}", -1)
    assert isinstance(deleted, Deleted)
    restored.apply(deleted)
    assert isinstance(restored.plan_create("/more" + name, b"", 0, False), Created)
