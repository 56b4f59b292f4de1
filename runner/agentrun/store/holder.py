"""Who has a job, and where: here, in another container of this machine, or on another machine."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Literal

from agentrun.system.process import boot_id, describe_self, pid_namespace
from agentrun.values.clock import local_clock

Place = Literal["here", "container", "machine"]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has the job."""

    pid: int
    host: str
    since: str
    started: str = ""
    """The start of the process in the system's own words: the pid alone may belong to another process by now."""
    mark: str = ""
    """What the processes of its launch carry in their environment."""
    boot: str = ""
    """The boot of its machine; empty in what older versions wrote."""
    pid_namespace: str = ""
    """Where its pid means it: containers have their own."""

    @classmethod
    def of_this_process(cls, *, mark: str) -> Holder:
        return cls(**describe_self()._asdict(), mark=mark)

    @property
    def place(self) -> Place:
        """Where it is, as seen from this process."""
        if not self.boot:
            return "here" if self.host == socket.gethostname() else "machine"
        # Not by the host's name: containers may share one, and a laptop's changes with the network.
        if self.boot != boot_id():
            return "machine"
        return "here" if self.pid_namespace == pid_namespace() else "container"

    def describe(self) -> str:
        where = f"in another container ({self.host})" if self.place == "container" else f"on {self.host}"
        return f"pid {self.pid} {where}, since {local_clock(self.since)}"
