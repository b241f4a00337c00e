"""A lease on monotonic time: it ends by itself, and only what was asked in time is granted."""

from __future__ import annotations

from qanat.kernel import Lease


def test_it_lasts_from_when_it_was_asked() -> None:
    lease = Lease()
    number = lease.ask(100, 50)
    assert not lease.held(100)
    assert lease.grant(120, number)
    assert lease.held(149) and not lease.held(150)


def test_a_grant_that_comes_too_late_gives_nothing() -> None:
    lease = Lease()
    number = lease.ask(100, 50)
    assert not lease.grant(150, number)
    assert not lease.held(150)


def test_a_later_one_prolongs_it_and_an_earlier_one_does_not_shorten_it() -> None:
    lease = Lease()
    first, second = lease.ask(0, 50), lease.ask(40, 50)
    assert lease.grant(45, second)
    assert not lease.grant(46, first)
    assert lease.held(89) and not lease.held(90)


def test_it_is_given_anew_after_its_end() -> None:
    lease = Lease()
    assert lease.grant(1, lease.ask(0, 50))
    assert lease.grant(61, lease.ask(60, 50))
    assert lease.held(109)


def test_after_its_end_nothing_that_was_asked_before_counts() -> None:
    lease = Lease()
    asked, granted = lease.ask(0, 50), lease.ask(1, 50)
    lease.grant(2, granted)
    lease.end()
    assert not lease.held(3) and not lease.grant(4, asked)
    assert lease.grant(6, lease.ask(5, 50))


def test_what_is_never_granted_is_forgotten() -> None:
    lease = Lease()
    for now_us in range(0, 10_000, 10):
        lease.ask(now_us, 50)
    assert len(lease._asked) <= 6
