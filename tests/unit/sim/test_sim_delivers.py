"""What a machine may deliver is closed, where it says so: the simulator stops one that delivers more."""

from __future__ import annotations

from collections.abc import Sequence

from qanat.kernel import Address, Context, Machine, Message
from qanat.sim import World
from qanat.sim.testing import A, Note, make_world


class Small(Machine[Note, object]):
    message_types = (Note,)
    delivers = (int,)

    def on_start(self, now_us: int, saved: Sequence[bytes]) -> None: ...
    def on_message(self, now_us: int, sender: Address, message: Message) -> None: ...
    def on_timer(self, now_us: int, name: str) -> None: ...
    def on_request(self, now_us: int, request: object) -> None:
        self.context.deliver(request)


def world_of(delivered: object) -> World:
    def make(context: Context) -> Small:
        return Small(context)

    world = World(1)
    world.add(A, make)
    world.start()
    world.after(10, world.nodes[A].request, delivered)
    world.run(1_000)
    return world


def test_what_it_names_is_delivered() -> None:
    assert not world_of(5).violations


def test_anything_else_is_a_violation() -> None:
    (violation,) = world_of("text").violations
    assert "Small delivers no str" in str(violation)
    assert not make_world().violations
