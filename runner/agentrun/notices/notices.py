"""The notices of one launch: checked before it begins, sent when it is over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agentrun.checkpoint.summary import Summary
from agentrun.errors import AgentrunError, BusyError
from agentrun.job.job import Job
from agentrun.job.notify import Notify
from agentrun.notices.notice import is_due, write_notice
from agentrun.notices.sending import Address, Delivery, check_addresses, check_program, deliver, find_addresses
from agentrun.store.port import Store

OUR_BUG = 70


@dataclass(frozen=True, slots=True)
class Notices:
    """Whom a job's launches tell, with the addresses looked up: the agent may change its environment later."""

    job: Job
    notify: Notify
    addresses: list[Address]

    @classmethod
    def open(cls, job: Job, environ: Mapping[str, str]) -> Notices | None:
        """None if the job has none; JobError if one could never arrive."""
        if job.notify is None:
            return None
        check_program(job, environ)
        return cls(job, job.notify, check_addresses(job, find_addresses(job, environ)))

    def tell_end(self, summary: Summary, *, seconds: float) -> list[Delivery]:
        """After the last checkpoint: say how the launch ended, if the job wants that said."""
        if not is_due(self.notify, summary, seconds=seconds):
            return []
        return self._deliver(summary, seconds=seconds)

    def tell_error(self, error: Exception, store: Store, *, seconds: float) -> list[Delivery]:
        """The same for a launch that an error ended. Another runner at work is no news."""
        if isinstance(error, BusyError):
            return []
        summary = _stand_of(self.job, store)
        is_ours = isinstance(error, AgentrunError)
        summary.exit_code = error.exit_code if isinstance(error, AgentrunError) else OUR_BUG
        summary.reason = str(error) if is_ours else f"{type(error).__name__}: {error}"
        return self.tell_end(summary, seconds=seconds)

    def test(self) -> list[Delivery]:
        """Send everybody a test notice."""
        return self._deliver(Summary(job=self.job.name, run_id=""), seconds=0.0, is_test=True)

    def _deliver(self, summary: Summary, *, seconds: float, is_test: bool = False) -> list[Delivery]:
        notice = write_notice(summary, seconds=seconds, is_test=is_test)
        return deliver(notice, self.addresses, self.notify.command, base=self.job.base)


def _stand_of(job: Job, store: Store) -> Summary:
    """How far the run is, as far as that can be read."""
    try:
        with store.reader() as reader:
            if reader.checkpoint is not None:
                return Summary.of(reader.checkpoint, status="stopped")
    except (AgentrunError, OSError):
        pass
    return Summary(job=job.name, run_id="")
