"""What is urgent overtakes what is large, and nothing is lost or changes its order within a lane."""

from __future__ import annotations

import random

import pytest

from agentrun.executors.cluster.frames import make_frame
from agentrun.executors.cluster.lanes import PIECE_BYTES, WINDOW_BYTES, Incoming, Outgoing


def put(outgoing: Outgoing, kind: str, n: int, *, size: int = 0, is_urgent: bool = False) -> None:
    outgoing.put(make_frame(kind, {"part": b"x" * size}, n=n), is_urgent=is_urgent)


@pytest.mark.parametrize("seed", range(20))
def test_frames_of_any_size_arrive_whole_and_in_order_however_the_stream_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    outgoing, incoming = Outgoing(), Incoming()
    waiting = [("outcome", chance.choice([0, 10, PIECE_BYTES, 3 * WINDOW_BYTES])) for _ in range(6)]
    waiting += [("ping", 0)] * 6
    chance.shuffle(waiting)
    sent: dict[str, list[tuple[int, int]]] = {"outcome": [], "ping": []}
    found: dict[str, list[tuple[int, int]]] = {"outcome": [], "ping": []}
    while waiting or not outgoing.is_empty:
        if waiting and chance.random() < 0.5:
            kind, size = waiting.pop()
            put(outgoing, kind, len(sent[kind]), size=size, is_urgent=kind == "ping")
            sent[kind].append((len(sent[kind]), size))
        stream = outgoing.take()
        while stream:
            cut = chance.randrange(1, len(stream) + 1)
            for frame in incoming.feed(stream[:cut]):
                found[frame.type].append((frame.value["n"], len(frame.parts.get("part", b""))))
            stream = stream[cut:]
        if acknowledgement := incoming.acknowledgement():
            other = Incoming()
            back = Outgoing()
            back.put(acknowledgement, is_urgent=True)
            for frame in other.feed(back.take()):
                outgoing.acknowledge(frame.value["size"])
    assert found == sent


def test_an_urgent_frame_goes_before_the_rest_of_a_large_one() -> None:
    outgoing, incoming = Outgoing(), Incoming()
    put(outgoing, "folder", 1, size=WINDOW_BYTES)
    assert list(incoming.feed(outgoing.take())) == []
    put(outgoing, "pong", 2, is_urgent=True)
    assert [frame.type for frame in incoming.feed(outgoing.take())] == ["pong"]


def test_no_more_than_a_window_is_on_its_way() -> None:
    outgoing, incoming = Outgoing(), Incoming()
    put(outgoing, "folder", 1, size=3 * WINDOW_BYTES)
    stream = b"".join(iter(outgoing.take, b""))
    assert WINDOW_BYTES <= len(stream) < WINDOW_BYTES * 1.01 and not outgoing.is_empty
    put(outgoing, "pong", 2, is_urgent=True)
    assert outgoing.take(), "what is urgent does not wait"
    list(incoming.feed(stream))
    assert incoming.acknowledgement()
    outgoing.acknowledge(WINDOW_BYTES)
    assert outgoing.take()
