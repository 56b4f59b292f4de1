"""Which host is given the next attempt."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from agentrun.executors.cluster.link import HostLink
from agentrun.executors.cluster.ranking import Ranking


class Host:
    """As much of a link as a ranking looks at."""

    def __init__(self, name: str, *, slots: int = 1) -> None:
        self.name = name
        self.tube = SimpleNamespace(slots=slots)
        self.load = 0
        self.is_usable = True


def ranked(*hosts: Host) -> Ranking:
    ranking = Ranking()
    for host in hosts:
        put(ranking, host)
    return ranking


def put(ranking: Ranking, host: Host) -> None:
    ranking.put(cast(HostLink, host))


def take(ranking: Ranking, depth: int = 1) -> str:
    found = ranking.take(depth)
    return cast(Host, found).name if found is not None else ""


def test_attempts_go_to_the_host_with_the_fewest_a_slot() -> None:
    small, large = Host("small"), Host("large", slots=3)
    ranking = ranked(small, large)
    assert sorted(take(ranking) for _ in range(4)) == ["large", "large", "large", "small"]
    assert (take(ranking), small.load, large.load) == ("", 1, 3)
    assert sorted(take(ranking, 2) for _ in range(4)) == ["large", "large", "large", "small"]
    assert take(ranking, 2) == ""


def test_a_host_that_gave_an_attempt_back_is_given_the_next_one() -> None:
    first, second = Host("first"), Host("second")
    ranking = ranked(first, second)
    assert {take(ranking), take(ranking)} == {"first", "second"}
    ranking.give_back(cast(HostLink, second))
    assert (take(ranking), take(ranking)) == ("second", "")


def test_a_host_that_broke_is_given_nothing_also_when_its_attempts_end() -> None:
    broken, other = Host("broken"), Host("other")
    ranking = ranked(broken, other)
    assert {take(ranking), take(ranking)} == {"broken", "other"}
    broken.is_usable = False
    ranking.give_back(cast(HostLink, broken))
    assert take(ranking) == ""
    ranking.give_back(cast(HostLink, other))
    other.is_usable = False
    assert take(ranking) == ""


def test_a_host_whose_slots_change_is_ranked_anew() -> None:
    host = Host("host", slots=1)
    ranking = ranked(host)
    assert (take(ranking), take(ranking)) == ("host", "")
    host.tube.slots = 2
    put(ranking, host)
    assert (take(ranking), take(ranking)) == ("host", "")
    host.tube.slots = 0
    put(ranking, host)
    assert take(ranking, 2) == ""
    host.tube.slots = 3
    put(ranking, host)
    assert take(ranking) == "host"


def test_a_host_that_is_lost_is_forgotten() -> None:
    host = Host("host")
    ranking = ranked(host)
    ranking.drop(cast(HostLink, host))
    ranking.drop(cast(HostLink, host))
    assert take(ranking) == ""
