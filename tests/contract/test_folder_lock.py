"""Asking who holds a folder's lock, without being in the way of those who want it."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from agentrun.errors import BusyError, TrustError
from agentrun.store.folder.store import FolderStore
from agentrun.store.local.lock import live_holder
from agentrun.store.port import Holder
from agentrun.system.disk import Disk


class AskedOnce(Disk):
    """Somebody asks who holds the lock, just when it is tried for the first time."""

    def __init__(self, lock: Path) -> None:
        self._asking = lock.open()
        fcntl.flock(self._asking, fcntl.LOCK_SH)
        self._tries = 0

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        if path.endswith("/lock"):
            self._tries += 1
            if self._tries == 2:
                self._asking.close()
        return super().open(path, flags, mode)


def test_asking_does_not_keep_a_runner_from_starting(folder: Path) -> None:
    FolderStore(folder).lock().release()
    try:
        FolderStore(folder, disk=AskedOnce(folder / "lock")).lock(wait_seconds=0).release()
    except BusyError as error:
        pytest.fail(f"a question was taken for a runner: {error}")


@pytest.mark.parametrize(
    ("changed", "place"),
    [
        ({}, "here"),
        ({"host": "renamed"}, "here"),
        ({"pid_namespace": "pid:[1]"}, "container"),
        ({"boot": "another"}, "machine"),
        ({"boot": "", "pid_namespace": ""}, "here"),  # as older versions wrote it
        ({"boot": "", "pid_namespace": "", "host": "larch"}, "machine"),
    ],
)
def test_where_a_holder_is(changed: dict[str, str], place: str) -> None:
    ours = Holder.of_this_process(mark="m")
    values = {name: getattr(ours, name) for name in Holder.__slots__}
    assert Holder(**{**values, **changed}).place == place


def test_who_holds_the_lock_elsewhere_is_seen_while_it_is_held(folder: Path) -> None:
    lease = FolderStore(folder).lock()
    known = json.loads((folder / "lock").read_text())
    (folder / "lock").write_text(json.dumps({**known, "pid": 7, "pid_namespace": "pid:[1]"}))
    holder = live_holder(folder)
    assert holder is not None and "in another container" in holder.describe()
    lease.release()
    (folder / "lock").write_text(json.dumps({**known, "pid": 7, "pid_namespace": "pid:[1]"}))
    assert live_holder(folder) is None


def test_no_method_reads_a_folder_that_others_can_write(folder: Path) -> None:
    store = FolderStore(folder)
    store.lock().release()
    folder.chmod(0o777)
    other = FolderStore(folder)
    for read in (other.reader, other.holder, other.load, other.summaries, other.inbox, lambda: other.fetch("job.json")):
        with pytest.raises(TrustError, match="can be written by others") as caught:
            read()
        assert caught.value.setting == f"AGENTRUN_TRUST={folder}"
