"""Which place an address means: shared by the jobs of a process, and never with another's password or keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentrun.job.address import StoreAddress, address_in_environment, read_address
from agentrun.job.keys import new_key
from agentrun.store.keyed.home import Place
from agentrun.store.places import close_places, open_place


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    close_places()


def at(folder: Path) -> StoreAddress:
    return read_address("sqlite:///jobs.db", base=folder, where="store")


def opened(text: str) -> Place:
    address = address_in_environment({"AGENTRUN_STORE": text}, Path("/"))
    assert address is not None
    return open_place(address, {})


def test_jobs_of_one_process_share_a_place_also_when_the_keys_are_hidden_from_agents(tmp_path: Path) -> None:
    keys = {"AGENTRUN_KEY": new_key()}
    place = open_place(at(tmp_path), keys)
    assert open_place(at(tmp_path), keys) is place
    assert open_place(at(tmp_path), {}) is place


def test_keys_that_are_set_later_in_a_process_seal_what_is_stored_from_then_on(tmp_path: Path) -> None:
    in_clear = open_place(at(tmp_path), {})
    sealed = open_place(at(tmp_path), {"AGENTRUN_KEY": new_key()})
    assert sealed is not in_clear
    sealed.home("letters").put("side/job.json", [b"a secret"])
    pieces = sealed.home("letters").raw.get("side/job.json")
    assert pieces is not None and b"a secret" not in b"".join(pieces)


def test_a_password_that_was_corrected_is_used(tmp_path: Path) -> None:
    first = opened("redis://:wrong@127.0.0.1:1/0")
    assert opened("redis://:wrong@127.0.0.1:1/0") is first
    assert opened("redis://127.0.0.1:1/0") is first
    assert opened("redis://:right@127.0.0.1:1/0") is not first
    assert opened("rediss://127.0.0.1:1/0") is not first
