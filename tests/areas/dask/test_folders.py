"""Workers that do not see the job's folder: in a mount namespace of their own, an empty folder is in its place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from areas.dask.conftest import Begin, JobFolder, finish, make_job
from cluster.dask_servers import DaskServers, serve_dask
from needs import require_program, require_root
from waiting import eventually

HIDING = 'mount -t tmpfs none "$0" && exec "$@"'
AGENT = """
    import pathlib, sys, time
    import tools

    def agent(item, ctx):
        shared = pathlib.Path(ctx.params["shared"])

        def first():
            (ctx.dir / "kept.txt").write_text("of " + item.text)
            with open(shared / "steps", "a") as steps:
                steps.write(item.key + "\\n")
            return len(item.text)

        print("begins", item.key)
        print("warns", item.key, file=sys.stderr)
        size = ctx.step("first", first)
        with open(shared / "begun", "a") as begun:
            begun.write(item.key + "\\n")
        while (shared / "hold").exists():
            time.sleep(0.01)
        (ctx.out / "deep").mkdir()
        (ctx.out / "deep" / "made.txt").write_text(tools.loud(item.path.read_text()))
        return [size, (ctx.dir / "kept.txt").read_text(), item.key]
    """


@pytest.fixture
def job(tmp_path: Path) -> JobFolder:
    return make_files_job(tmp_path / "job")


@pytest.fixture
def servers(job: JobFolder) -> Iterator[DaskServers]:
    """Without a worker."""
    require_root()
    require_program("unshare", "mount")
    with serve_dask() as servers:
        yield servers


def make_files_job(folder: Path) -> JobFolder:
    """A job whose items are files, with a module beside its agent, and a folder outside that everybody sees."""
    shared = folder.with_name(f"{folder.name}-shared")
    shared.mkdir()
    head = f'agent = "agent.py:agent"\nparams.shared = "{shared}"'
    job = make_job(folder, agent=AGENT, head=head, items=0)
    settings = (job / "job.toml").read_text().replace('lines = "items.txt"', 'files = "docs/*.txt"')
    (job / "job.toml").write_text(settings)
    (job / "tools.py").write_text("def loud(text):\n    return text.upper() + '!'\n")
    (job / "docs").mkdir()
    for name in ("a", "b", "c"):
        (job / "docs" / f"{name}.txt").write_text(f"text {name}")
    return job


def start_blind_worker(servers: DaskServers, name: str, job: JobFolder) -> None:
    hiding = ("unshare", "--mount", "--propagation", "private", "sh", "-c", HIDING, str(job.folder))
    servers.start_worker(name, threads=1, prefix=hiding)


def told_of(job: JobFolder, name: str) -> list[str]:
    """The log of an item, without the moment of its attempt."""
    lines = job.run("log", "j", f"docs/{name}.txt").stdout.splitlines()
    assert lines[0].startswith("--- launch 1, attempt 1, ") and lines[0].endswith(": done")
    return lines[1:]


def run_here(tmp_path: Path) -> JobFolder:
    here = make_files_job(tmp_path / "here")
    ended = here.run("start", "job.toml", "--on", "here")
    assert ended.returncode == 0, ended.stderr
    return here


def test_results_files_and_logs_are_those_of_a_run_on_this_machine(
    servers: DaskServers, job: JobFolder, tmp_path: Path
) -> None:
    start_blind_worker(servers, "blind", job)
    here = run_here(tmp_path)
    servers.await_worker("blind")
    assert list(Path(f"/proc/{servers.pid('blind')}/root{job.folder}").iterdir()) == []
    ended = job.run("start", "job.toml", "--on", servers.on)
    assert ended.returncode == 0, ended.stderr
    assert job.results == here.results
    assert job.files == here.files and sorted(job.files.values()) == [b"TEXT A!", b"TEXT B!", b"TEXT C!"]
    for name in ("a", "b", "c"):
        assert told_of(job, name) == told_of(here, name) == [f"begins docs/{name}.txt", f"warns docs/{name}.txt"]
    assert servers.started() == set() and servers.scratches() == []


def test_what_an_item_keeps_between_its_steps_outlives_the_worker(
    begin: Begin, servers: DaskServers, job: JobFolder, tmp_path: Path
) -> None:
    shared = tmp_path / "job-shared"
    (shared / "hold").touch()
    start_blind_worker(servers, "first", job)
    (job / "job.toml").write_text(
        (job / "job.toml").read_text() + f'[engine]\non = "{servers.on}"\nlease = "2s"\n[run]\nconcurrency = 1\n'
    )
    launch = begin("start", "job.toml", cwd=job.folder)
    here = run_here(tmp_path)
    eventually((shared / "begun").exists, "the first step of an item is finished", alive=launch)
    servers.kill("first")
    start_blind_worker(servers, "second", job)
    eventually(
        lambda: len((shared / "begun").read_text().splitlines()) == 2, "the item runs on another worker", alive=launch
    )
    (shared / "hold").unlink()
    finish(launch)
    assert job.results == here.results and job.files == here.files
    assert (shared / "steps").read_text().splitlines() == ["docs/a.txt", "docs/b.txt", "docs/c.txt"]
