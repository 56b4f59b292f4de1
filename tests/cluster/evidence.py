"""A job that shows what must never happen on a cluster: an item that is alive twice, a finished step called again.

Each attempt holds the flock of its item, and so does a child of it in a session of its own; who finds it held notes a
fault. Each step that has returned is noted, and one that is called after that is a fault, too. At the end the results
must be byte for byte what an undisturbed run writes.
"""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from textwrap import dedent

STEPS = ("one", "two", "three")
WORKER = "WORKER"
"""A variable of the worker: its name, for what is noted."""
AGENT = dedent(
    """
    import fcntl, os, pathlib, subprocess, time

    def note(name, text):
        with open(name, "a") as file:
            file.write(text + "\\n")

    def agent(item, ctx):
        held = open(f"locks/{item.index}", "a")
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("faults", f"{item.key} was alive twice")
        os.set_inheritable(held.fileno(), True)
        child = subprocess.Popen(["sleep", "600"], close_fds=False, start_new_session=True)
        note("begun", f"{item.key} {os.environ.get('WORKER', '')}")

        def step(name):
            if os.path.exists(f"finished/{item.index}-{name}"):
                note("faults", f"{item.key}: the finished step {name} was called again")
            time.sleep(ctx.params["nap_seconds"])
            return f"{item.data['n']} {name}"

        said = []
        for name in ("one", "two", "three"):
            said.append(ctx.step(name, step, name))
            pathlib.Path(f"finished/{item.index}-{name}").touch()
        child.kill()
        child.wait()
        note("settled", item.key)
        return said
    """
)


class EvidentJob:
    """The job, in a folder of its own that everybody sees."""

    def __init__(
        self, folder: Path, *, on: str, items: int, concurrency: int, lease: str = "4s", nap_seconds: float = 0.02
    ) -> None:
        self.folder = folder
        self._items = items
        for name in ("locks", "finished"):
            (folder / name).mkdir(parents=True)
        (folder / "agent.py").write_text(AGENT)
        lines = [json.dumps({"id": f"item-{n:04}", "n": n}) for n in range(items)]
        (folder / "items.jsonl").write_text("\n".join(lines) + "\n")
        (folder / "job.toml").write_text(
            f'agent = "agent.py:agent"\noutput = "results.jsonl"\nparams.nap_seconds = {nap_seconds}\n'
            f'[items]\njsonl = "items.jsonl"\nkey = "id"\n[run]\nconcurrency = {concurrency}\ncrash_limit = 0\n'
            f'[engine]\non = "{on}"\nlease = "{lease}"\n'
        )

    def begun(self, worker: str | None = None) -> list[str]:
        """The items of the attempts that have begun so far, in order; only those on one worker, if it is given."""
        found = [line.partition(" ") for line in self._lines("begun")]
        return [key for key, _, where in found if worker is None or where == worker]

    def settled(self) -> list[str]:
        """The items of the attempts that have come to their end."""
        return self._lines("settled")

    def has_settled(self, count: int) -> bool:
        return len(self.settled()) >= count

    def is_alive(self, key: str) -> bool:
        """Whether anything of an attempt of the item is alive."""
        return is_held(self.folder / "locks" / str(int(key.removeprefix("item-"))))

    def check_faults(self) -> None:
        """Nothing has been done twice so far."""
        assert not (faults := self._lines("faults")), faults

    def check(self) -> None:
        """Nothing was done twice, and the results are those of an undisturbed run."""
        self.check_faults()
        expected = "".join(
            json.dumps(
                {"index": n, "key": f"item-{n:04}", "output": [f"{n} {step}" for step in STEPS]}, separators=(",", ":")
            )
            + "\n"
            for n in range(self._items)
        )
        assert (self.folder / "results.jsonl").read_text() == expected

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def is_held(path: Path) -> bool:
    """Whether somebody holds the flock of a file."""
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
