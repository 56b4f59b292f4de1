"""A job that is started again after it finished, by the real command: nothing is paid twice without a word."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from cli.conftest import COMMAND, environment
from needs import require_program
from waiting import PATIENCE_SECONDS

AGENT = """\
from agentrun import Fail

async def shout(item, ctx):
    with open("ran.log", "a") as log:
        print(item.key, ctx.key("send"), file=log)
    if "bad" in item.text:
        raise Fail("it is bad")
    return item.text.upper()
"""
MANY = 200


class Night:
    """A folder with a job over the files in `inbox`, and the starts of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "inbox").mkdir(parents=True)
        self.write_agent(AGENT)
        self.write_job()

    def write_agent(self, text: str) -> None:
        (self.folder / "agent.py").write_text(text)

    def write_job(self, run: str = "") -> None:
        text = 'name = "night"\nagent = "agent.py:shout"\noutput = "out.jsonl"\n[items]\nfiles = "inbox/*.txt"\n[run]\n'
        (self.folder / "job.toml").write_text(f"{text}concurrency = 8\n{run}\n")

    def write(self, *names: str, text: str = "text") -> None:
        for name in names:
            (self.folder / "inbox" / f"{name}.txt").write_text(f"{text} of {name}")

    def remove(self, *names: str) -> None:
        for name in names:
            (self.folder / "inbox" / f"{name}.txt").unlink()

    def start(self, *flags: str, code: int = 0, clock: str = "") -> subprocess.CompletedProcess[str]:
        wrapper = ("faketime", "-f", clock) if clock else ()
        ended = subprocess.run(
            [*wrapper, COMMAND, "start", "job.toml", *flags],
            cwd=self.folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert ended.returncode == code, ended.stderr
        return ended

    def ran(self) -> dict[str, str]:
        """The items that ran since the last call, none of them twice, and the key of each one's side effect."""
        log = self.folder / "ran.log"
        lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
        log.unlink(missing_ok=True)
        ran = {Path(key).stem: idempotency_key for key, idempotency_key in lines}
        assert len(ran) == len(lines), "an item ran twice"
        return ran

    @property
    def results(self) -> bytes:
        return (self.folder / "out.jsonl").read_bytes()


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path / "work")


def names(count: int) -> list[str]:
    return [f"{number:03}" for number in range(count)]


def test_of_200_items_5_changed_3_new_and_2_gone_8_run_and_the_results_are_those_of_a_fresh_run(night: Night) -> None:
    night.write(*names(MANY))
    night.start()
    assert len(night.ran()) == MANY
    before = night.results
    said = night.start().stderr
    assert said.startswith("night: nothing to run, 200 results kept from the run of ")
    assert night.ran() == {} and night.results == before
    night.write("003", "050", "051", "120", "199", text="another")
    night.write("900", "901", "902")
    night.remove("000", "150")
    said = night.start().stderr
    assert ": 193 · new 3 · changed 5 · gone 2\n" in said and "  8 run, 193 kept\n" in said
    assert sorted(night.ran()) == ["003", "050", "051", "120", "199", "900", "901", "902"]
    after = night.results
    night.start("--fresh")
    assert len(night.ran()) == MANY + 1 and night.results == after


def test_an_edited_agent_runs_nothing_until_that_is_asked_for(night: Night) -> None:
    night.write(*names(MANY))
    night.start()
    night.ran()
    night.write_agent(AGENT.replace("upper()", "lower()"))
    for said in (night.start("--plan").stdout, night.start().stderr):
        assert said.startswith("night: nothing to run, 200 results kept")
        assert "by an older agent: 200 of version" in said and "agentrun start night --rerun old-agent\n" in said
    assert night.ran() == {} and json.loads(night.results.splitlines()[0])["output"] == "TEXT OF 000"
    night.start("--rerun", "old-agent")
    assert len(night.ran()) == MANY and json.loads(night.results.splitlines()[0])["output"] == "text of 000"
    night.start("--rerun", "old-agent")
    assert night.ran() == {}


def test_max_age_runs_only_the_older_results(night: Night) -> None:
    require_program("faketime")
    night.write("a", "b")
    night.start(clock="-2h")
    night.write("c")
    night.start(clock="-30m")
    assert set(night.ran()) == {"a", "b", "c"}
    night.write_job('max_age = "1h"')
    said = night.start().stderr
    assert set(night.ran()) == {"a", "b"} and "2 run, 1 kept" in said
    night.start()
    assert night.ran() == {}


def test_a_rotating_inbox_needs_no_flag_and_a_folder_that_is_not_mounted_is_refused(night: Night) -> None:
    night.write(*names(20))
    night.start()
    night.ran()
    night.remove(*names(20))
    night.write(*(f"b{name}" for name in names(20)))
    said = night.start().stderr
    assert "new 20 · gone 20\n" in said and len(night.ran()) == 20
    before = night.results
    inbox = night.folder / "inbox"
    mounted = inbox.rename(night.folder / "disk")
    assert "no file matches inbox" in night.start(code=2).stderr
    inbox.mkdir()
    assert "no file matches inbox" in night.start(code=2).stderr
    shutil.copy(mounted / "b000.txt", inbox)
    assert "--allow-gone" in night.start(code=2).stderr
    assert night.results == before
    shutil.rmtree(inbox)
    mounted.rename(inbox)
    night.start()
    assert night.ran() == {} and night.results == before


def test_a_failed_item_has_the_same_idempotency_key_in_the_next_run(night: Night) -> None:
    night.write_job("allow_failures = 1")
    night.write("a", "b")
    night.write("c", text="bad")
    night.start()
    first = night.ran()
    night.write("d")
    night.start()
    second = night.ran()
    assert set(second) == {"c", "d"} and second["c"] == first["c"] and second["d"] not in first.values()
    night.start("--fresh")
    assert night.ran()["c"] != first["c"], "a fresh run is a new series"
