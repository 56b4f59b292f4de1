"""The lease of a host: the two sides' views of it, on clocks that the tests set."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentrun.executors.cluster.lease import MARGIN_SECONDS, HostLease, LeaseView

LEASE = 30.0


def test_a_pong_extends_the_lease_from_the_time_of_its_ping_however_late_it_arrives() -> None:
    lease = HostLease(LEASE, now=100.0)
    assert lease.ping(100.0) == 1
    assert lease.ping(107.5) == 2
    assert not lease.pong(1)  # as long as it lasts from the start anyway
    assert lease.pong(2)
    assert lease.deadline == 107.5 + LEASE
    assert not lease.is_over(137.4)
    assert lease.is_over(137.5)


def test_pongs_that_nobody_waits_for_extend_nothing() -> None:
    lease = HostLease(LEASE, now=0.0)
    lease.ping(0.0)
    lease.ping(8.0)
    assert lease.pong(2)
    assert not lease.pong(2)
    assert not lease.pong(1)
    assert not lease.pong(77)
    assert lease.deadline == 8.0 + LEASE


def test_pings_are_sent_four_times_in_a_lease() -> None:
    lease = HostLease(LEASE, now=0.0)
    sent = [moment / 10 for moment in range(300) if lease.ping(moment / 10) is not None]
    assert sent == [0.0, 7.5, 15.0, 22.5]


def test_the_runner_waits_for_nothing_before_it_has_sent_a_pong() -> None:
    view = LeaseView(LEASE)
    assert not view.is_known
    assert view.seconds_left(now=5.0) == 0.0


@given(delays=st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 100.0), st.booleans()), min_size=1, max_size=20))
def test_the_runner_never_takes_a_host_for_dead_while_its_lease_lasts(delays: list[tuple[float, float, bool]]) -> None:
    """Whatever the ways there and back take, and whichever pongs are lost."""
    lease, view = HostLease(LEASE, now=0.0), LeaseView(LEASE)
    now, arrivals = 0.0, []
    for there, back, arrives in delays:
        number = lease.ping(now)
        assert number is not None
        if arrives:
            arrivals.append((now + there, number, back))
        now += LEASE / 4
    pongs = []
    for moment, number, back in sorted(arrivals):
        view.note_ping(moment)
        pongs.append((moment + back, number))
    for moment, number in sorted(pongs):
        if not lease.is_over(moment):
            lease.pong(number)
            assert lease.deadline + MARGIN_SECONDS <= view._until + MARGIN_SECONDS  # type: ignore[operator]
