"""A run's claim on its output: who has it, for how long, and what happens when two want it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import orjson
import pytest

from agentrun.errors import JobError, LaterError
from agentrun.outputs.claim import Claim, OutputTakenError, claim_path, drop_claim, drop_claims
from agentrun.store.folder.store import FolderStore
from agentrun.store.local.lock import FolderLease
from agentrun.testing.examples import checkpoint, summary
from needs import require_root


@dataclass(slots=True)
class Jobs:
    """Jobs with state beside each other, and one output for all of them."""

    base: Path
    claims: list[Claim] = field(default_factory=list)

    @property
    def output(self) -> Path:
        return self.base / "out.jsonl"

    @property
    def path(self) -> Path:
        return claim_path(self.output)

    def state(self, name: str) -> Path:
        return self.base / ".agentrun" / name

    def claim(self, name: str = "a", *, has_state: bool = True) -> Claim:
        claim = Claim(name, self.state(name) if has_state else None)
        self.claims.append(claim)
        return claim

    def unfinished(
        self, name: str, run_id: str = "2026", *, output: str = "out.jsonl"
    ) -> tuple[FolderStore, FolderLease]:
        """A job with an unfinished run that has claimed the output; no launch is at work."""
        store = FolderStore(self.state(name))
        lease = store.lock(wait_seconds=0)
        store.load()
        made = checkpoint(1, run_id=run_id)
        made.context.output = str(self.base / output)
        store.commit(made)
        claim = self.claim(name)
        claim.take(self.output, run_id)
        claim.close()
        return store, lease


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    jobs = Jobs(tmp_path)
    yield jobs
    for claim in jobs.claims:
        claim.close()


def test_a_claim_is_a_private_hidden_file_beside_the_output(jobs: Jobs) -> None:
    jobs.claim().take(jobs.output, "2026")
    assert jobs.path.name == ".out.claim" and jobs.path.stat().st_mode & 0o777 == 0o600
    said = orjson.loads(jobs.path.read_bytes())
    assert said == {"agentrun": 1, "job": "a", "state": ".agentrun/a", "run_id": "2026", "output": "out.jsonl"}


@pytest.mark.parametrize("has_state", [True, False])
def test_while_a_launch_is_at_work_nobody_else_gets_its_output(jobs: Jobs, has_state: bool) -> None:
    jobs.claim("a", has_state=has_state).take(jobs.output, "2026")
    for other in (jobs.claim("b"), jobs.claim("b", has_state=False)):
        with pytest.raises(JobError, match=r"out\.jsonl: is taken by the job a.* which is running now") as caught:
            other.take(jobs.output, "2027")
        assert caught.value.exit_code == 2 and "-o" in caught.value.message


@pytest.mark.parametrize("name", ["out.csv", "out", "out.partial.jsonl", "out.files"])
def test_what_is_shared_is_the_stem(jobs: Jobs, name: str) -> None:
    """Their partial results or items' files would have the same names."""
    jobs.claim("a").take(jobs.output, "2026")
    with pytest.raises(JobError, match=r"by its output out\.jsonl, which has the same folder for files"):
        jobs.claim("b").take(jobs.output.with_name(name), "2027")
    jobs.claim("c").take(jobs.output.with_name("other.jsonl"), "2027")


def test_an_unfinished_run_keeps_its_claim_between_launches(jobs: Jobs) -> None:
    jobs.unfinished("a")
    with pytest.raises(
        JobError, match=r"by the job a \(its state is in .*/\.agentrun/a\), which has an unfin"
    ) as caught:
        jobs.claim("b").take(jobs.output, "2027")
    assert "agentrun resume a" in caught.value.message and "agentrun clear a" in caught.value.message
    with pytest.raises(JobError, match="which has an unfinished run"):
        jobs.claim("b").look(jobs.output)
    # For its own job it is no obstacle, whichever run it is.
    jobs.claim("a").look(jobs.output)
    jobs.claim("a").take(jobs.output, "2028")


def test_a_second_runner_of_the_same_job_is_told_to_wait(jobs: Jobs) -> None:
    jobs.claim("a").take(jobs.output, "2026")
    with pytest.raises(LaterError, match="a: another runner has this job, although its lock was removed"):
        jobs.claim("a").take(jobs.output, "2026")


def finish(jobs: Jobs, store: FolderStore) -> None:
    store.finish(summary("2026"))


def clear(jobs: Jobs, store: FolderStore) -> None:
    drop_claims(store)
    assert not jobs.path.exists()
    store.clear()


def begin_another_run(jobs: Jobs, store: FolderStore) -> None:
    finish(jobs, store)
    store.commit(checkpoint(1, run_id="2027"))


def remove_the_folder(jobs: Jobs, store: FolderStore) -> None:
    os.rename(jobs.base / ".agentrun", jobs.base / "elsewhere")


def go_on_with_another_output(jobs: Jobs, store: FolderStore) -> None:
    later = checkpoint(2, run_id="2026")
    later.context.output = str(jobs.base / "other.jsonl")
    store.commit(later)


@pytest.mark.parametrize("act", [finish, clear, begin_another_run, go_on_with_another_output, remove_the_folder])
def test_a_claim_whose_run_is_no_longer_unfinished_is_taken_over(
    jobs: Jobs, act: Callable[[Jobs, FolderStore], None]
) -> None:
    store, lease = jobs.unfinished("a")
    act(jobs, store)
    lease.release()
    jobs.claim("b").take(jobs.output, "2028")
    assert orjson.loads(jobs.path.read_bytes())["job"] == "b"


def test_one_whose_state_cannot_be_read_may_be_unfinished(jobs: Jobs) -> None:
    jobs.unfinished("a")
    (jobs.state("a") / "state.json").write_bytes(b"damaged")
    with pytest.raises(JobError, match="has an unfinished run"):
        jobs.claim("b").take(jobs.output, "2027")


def test_claim_and_state_may_be_moved_together(jobs: Jobs, tmp_path: Path) -> None:
    jobs.unfinished("a")[1].release()
    moved = Jobs(tmp_path / "moved")
    moved.base.mkdir()
    for name in (".agentrun", ".out.claim"):
        os.rename(tmp_path / name, moved.base / name)
    with pytest.raises(JobError, match="has an unfinished run"):
        moved.claim("b").take(moved.output, "2027")
    moved.claim("a").take(moved.output, "2026")
    moved.claims[-1].close()


def test_without_a_state_folder_a_claim_is_its_launchs(jobs: Jobs) -> None:
    claim = jobs.claim("a", has_state=False)
    claim.take(jobs.output, "2026")
    claim.close()
    assert not jobs.path.exists()


def test_a_complete_run_leaves_no_claim(jobs: Jobs) -> None:
    claim = jobs.claim()
    claim.take(jobs.output, "2026")
    claim.check()
    claim.release()
    assert not jobs.path.exists()
    jobs.claim("b").take(jobs.output, "2027")


def test_only_ones_own_claim_is_dropped(jobs: Jobs) -> None:
    jobs.claim("a").take(jobs.output, "2026")
    for output, state in ((str(jobs.output), jobs.state("b")), ("", jobs.state("a")), (str(jobs.output), None)):
        drop_claim(output, state)
        assert jobs.path.exists()
    drop_claim(str(jobs.output), jobs.state("a"))
    assert not jobs.path.exists()


# ---- before the results are put in place


def overwrite(output: Path) -> None:
    output.write_bytes(b"others'")


def replace_by_the_same(output: Path) -> None:
    text = output.read_bytes()
    output.rename(output.with_name("aside"))
    output.write_bytes(text)


@pytest.mark.parametrize(
    ("before", "act"),
    [(None, overwrite), (b"of the run before", overwrite), (b"of the run before", replace_by_the_same)],
)
def test_an_output_that_somebody_wrote_meanwhile_is_not_ours_to_replace(
    jobs: Jobs, before: bytes | None, act: Callable[[Path], None]
) -> None:
    if before is not None:
        jobs.output.write_bytes(before)
    claim = jobs.claim()
    claim.take(jobs.output, "2026")
    claim.check()
    act(jobs.output)
    with pytest.raises(OutputTakenError, match=r"out\.jsonl: was written by another program"):
        claim.check()


def test_a_claim_that_another_job_has_by_now_names_that_job(jobs: Jobs) -> None:
    claim = jobs.claim("a")
    claim.take(jobs.output, "2026")
    jobs.path.unlink()
    jobs.claim("b").take(jobs.output, "2027")
    with pytest.raises(OutputTakenError, match="is taken by the job b"):
        claim.check()
    claim.release()
    assert orjson.loads(jobs.path.read_bytes())["job"] == "b"


def test_a_claim_that_was_only_removed_is_made_again(jobs: Jobs) -> None:
    claim = jobs.claim("a")
    claim.take(jobs.output, "2026")
    jobs.path.unlink()
    claim.check()
    with pytest.raises(JobError, match="is running now"):
        jobs.claim("b").take(jobs.output, "2027")


def test_a_claim_whose_descriptor_an_agent_closed_is_opened_again_and_the_agents_file_left_alone(
    jobs: Jobs, tmp_path: Path
) -> None:
    own = tmp_path / "agents-own"
    own.write_bytes(b"the agent's own")
    claim = jobs.claim("a")
    claim.take(jobs.output, "2026")
    (number,) = (int(name) for name in os.listdir("/dev/fd") if _is_at(int(name), jobs.path))
    opened = os.open(own, os.O_RDWR)
    os.dup2(opened, number)
    claim.check()
    claim.close()
    assert own.read_bytes() == b"the agent's own" and os.path.samestat(os.fstat(number), own.stat())
    for one in (opened, number):
        os.close(one)


def _is_at(number: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(number), path.stat())
    except OSError:
        return False


# ---- what others may have put there


@pytest.mark.parametrize("left", [b"", b"\0" * 80, b'{"agen', b'{"agentrun":1,"job":"a","sta'])
def test_a_claim_that_a_crash_cut_off_is_nobodys(jobs: Jobs, left: bytes) -> None:
    jobs.path.write_bytes(left)
    jobs.claim().look(jobs.output)
    jobs.claim().take(jobs.output, "2026")


def make_link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def make_file(path: Path) -> None:
    path.write_bytes(b"precious")


@pytest.mark.parametrize("make", [make_link, os.mkfifo, Path.mkdir, make_file])
def test_what_is_no_claim_is_left_as_it_is(jobs: Jobs, make: Callable[[Path], None]) -> None:
    make(jobs.path)
    jobs.claim().look(jobs.output)
    with pytest.raises(JobError, match=r"\.out\.claim: is in the way, and not agentrun's"):
        jobs.claim().take(jobs.output, "2026")
    assert make is not make_file or jobs.path.read_bytes() == b"precious"


def test_what_a_claim_says_is_data(jobs: Jobs) -> None:
    said = {"agentrun": 1, "job": "\x1b[31ma\n; rm -rf /\u202e", "state": ".agentrun/a", "run_id": "2026"}
    jobs.unfinished("a", output="x\x07.csv")
    jobs.path.write_bytes(orjson.dumps(said | {"output": "x\x07.csv"}))
    with pytest.raises(JobError, match="has an unfinished run") as caught:
        jobs.claim("b").take(jobs.output, "2027")
    assert caught.value.message.isprintable()
    assert "agentrun resume '?[31ma?; rm -rf /?'" in caught.value.message


def test_another_users_claim_is_neither_believed_nor_taken_over(jobs: Jobs) -> None:
    require_root()
    jobs.claim("a").take(jobs.output, "2026")
    jobs.claims[0].close()
    os.chown(jobs.path, 12345, -1)
    text = jobs.path.read_bytes()
    with pytest.raises(JobError, match=r"another user \(uid 12345\) has claimed this output"):
        jobs.claim("b").take(jobs.output, "2027")
    assert jobs.path.read_bytes() == text
