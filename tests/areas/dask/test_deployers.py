"""Clusters that Dask's own deployers start for a launch: Slurm and SSH, both with stand-ins on loopback.

Slurm is two scripts that run jobs as processes of this machine. SSH is a server that runs what it is asked to, and like
sshd leaves it running when the connection is lost. Kubernetes is a cluster with the methods of KubeCluster.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from textwrap import dedent

import dask
import pytest

from areas.dask.conftest import Begin, JobFolder, finish, make_job
from areas.dask.test_command import check_same
from cli.conftest import environment
from cluster.dask_servers import carriers
from needs import require_module, require_program
from waiting import PATIENCE_SECONDS, eventually

require_module("asyncssh", "dask_jobqueue", extra="dev")
require_program("setsid")

CANARY = "CANARY"
REFUSED = "sbatch: error: Batch job submission failed: Invalid account"
SBATCH = """\
#!/bin/sh
set -eu
if [ -e "$SLURM_STATE/refuses" ]; then
    cat "$SLURM_STATE/refuses" >&2
    exit 1
fi
script=$SLURM_STATE/$$.sh
cp "$1" "$script"
setsid sh "$script" >"$script.log" 2>&1 </dev/null &
echo $! >>"$SLURM_STATE/submitted"
echo "Submitted batch job $!"
"""
SCANCEL = """\
#!/bin/sh
echo "$1" >>"$SLURM_STATE/cancelled"
kill -TERM -- "-$1"
"""


class Slurm:
    """Stand-in for Slurm. A job is a process group, and has the number of the group."""

    def __init__(self, folder: Path) -> None:
        self.state, programs = folder / "slurm", folder / "bin"
        self.state.mkdir()
        programs.mkdir()
        for name, script in {"sbatch": SBATCH, "scancel": SCANCEL}.items():
            (programs / name).write_text(script)
            (programs / name).chmod(0o755)
        self.canary = uuid.uuid4().hex
        """In the environment of the runner and of everything that it starts."""
        self.environ = {
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "SLURM_STATE": str(self.state),
            "TMPDIR": str(self.state),
            # How soon Dask believes that a worker will not come back.
            "DASK_DISTRIBUTED__DEPLOY__LOST_WORKER_TIMEOUT": "100ms",
            CANARY: self.canary,
        }

    def submitted(self) -> list[int]:
        return self._jobs("submitted")

    def cancelled(self) -> list[int]:
        return self._jobs("cancelled")

    def alive(self) -> set[int]:
        return carriers(CANARY, self.canary)

    def workers(self) -> int:
        """How many workers have joined so far, of all jobs."""
        return sum("Registered to:" in log.read_text() for log in self.state.glob("*.log"))

    def kill(self, job: int) -> None:
        """As at the end of its walltime."""
        os.killpg(job, signal.SIGKILL)

    def _jobs(self, name: str) -> list[int]:
        path = self.state / name
        return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    slurm = Slurm(tmp_path)
    yield slurm
    eventually(lambda: not kill_all(slurm.alive()), "nothing is left of Slurm's jobs")


def on_slurm(*, adapt: str = "", concurrency: int = 4) -> str:
    """Jobs of two slots each, which listen on loopback alone."""
    return f"""
        [run]
        concurrency = {concurrency}
        [engine]
        on = "slurm"
        {f"adapt = {adapt}" if adapt else ""}
        [engine.options]
        queue = "batch"
        account = "lab"
        cores = 2
        processes = 1
        memory = "1GB"
        walltime = "00:10:00"
        interface = "lo"
        scheduler_options = {{ dashboard_address = "127.0.0.1:0" }}
        """


def kill_all(pids: set[int]) -> set[int]:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return pids


ADAPTS = pytest.mark.parametrize("adapt", ["", "{ minimum = 0, maximum = 2 }"], ids=["fixed", "adapts"])


@ADAPTS
def test_slurm_jobs_do_what_this_machine_would_and_are_cancelled_at_the_end(
    begin: Begin, slurm: Slurm, here: JobFolder, tmp_path: Path, adapt: str
) -> None:
    job = make_job(tmp_path / "job", more=on_slurm(adapt=adapt))
    (job / "hold").touch()
    launch = begin("start", "job.toml", cwd=job.folder, **slurm.environ)
    eventually(lambda: len(job.ran()) == 4, "as many items run as there may be", alive=launch)
    assert len(slurm.submitted()) >= 2
    (job / "hold").unlink()
    told = finish(launch)
    assert "distributed" not in told and "tornado" not in told
    eventually(lambda: not slurm.alive(), "nothing is left")
    assert sorted(slurm.cancelled()) == sorted(slurm.submitted())
    check_same(job, here)


def test_a_slurm_job_that_is_lost_is_submitted_again_and_all_end_when_the_runner_is_killed(
    begin: Begin, slurm: Slurm, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "job", more=on_slurm(concurrency=2))
    (job / "hold").touch()
    launch = begin("start", "job.toml", cwd=job.folder, **slurm.environ)
    eventually(lambda: len(job.wheres()) == 2, "two items run", alive=launch)
    [first] = slurm.submitted()
    slurm.kill(first)
    eventually(lambda: len(slurm.submitted()) == 2, "another job is submitted", alive=launch)
    eventually(lambda: slurm.workers() == 2, "its worker is up", alive=launch)
    launch.kill()
    eventually(lambda: not slurm.alive(), "nothing is left")


def test_ctrl_c_stops_a_launch_on_slurm_as_any_other(begin: Begin, slurm: Slurm, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", more=on_slurm())
    (job / "hold").touch()
    launch = begin("start", "job.toml", cwd=job.folder, **slurm.environ)
    eventually(lambda: len(job.ran()) == 4, "four items run", alive=launch)
    launch.send_signal(signal.SIGINT)
    (job / "hold").unlink()
    told = finish(launch, code=130)
    assert "stopped by Ctrl-C" in told and "4 of 8 done" in told
    eventually(lambda: not slurm.alive(), "nothing is left")


@ADAPTS
def test_a_job_that_slurm_refuses_ends_the_launch_with_the_reason(slurm: Slurm, tmp_path: Path, adapt: str) -> None:
    (slurm.state / "refuses").write_text(REFUSED)
    job = make_job(tmp_path / "job", more=on_slurm(adapt=adapt))
    ended = job.run("start", "job.toml", **slurm.environ)
    assert ended.returncode == 75 and REFUSED in ended.stderr and "Traceback" not in ended.stderr
    assert slurm.alive() == set()


def test_slurm_can_be_used_from_a_thread_as_a_notebook_does(slurm: Slurm, tmp_path: Path) -> None:
    program = """
        import threading, tomllib
        import agentrun
        from agent import agent

        with open("job.toml", "rb") as file:
            engine = tomllib.load(file)["engine"]

        def run():
            summary = agentrun.run(agent, items=["one", "two"], name="j", engine=engine)
            print(summary.exit_code, summary.counts["done"])

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        """
    job = make_job(tmp_path / "job", more=on_slurm())
    ended = subprocess.run(
        [sys.executable, "-c", dedent(program)],
        cwd=job.folder,
        env=environment(**slurm.environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert ended.stdout.split() == ["0", "2"], ended.stderr


# ---- SSH


SSH_SERVER = """
    import asyncio, contextlib, os, pathlib, signal, sys
    import asyncssh

    folder = pathlib.Path(sys.argv[1])

    async def run(process):
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_shell(
            process.command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, start_new_session=True
        )
        signals = asyncio.ensure_future(hand_on_signals(process, child.pid))
        with contextlib.suppress(OSError):
            await asyncio.gather(carry(child.stdout, process.stdout), carry(child.stderr, process.stderr))
            process.exit(await child.wait())
        signals.cancel()

    async def carry(pipe, stream):
        while data := await pipe.read(65536):
            stream.write(data)

    async def hand_on_signals(process, group):
        while True:
            try:
                if not await process.stdin.read(1):
                    return
            except asyncssh.SignalReceived as received:
                os.killpg(group, getattr(signal, "SIG" + received.signal))
            except OSError:
                return

    async def main():
        for name in ("key", "host_key"):
            key = asyncssh.generate_private_key("ssh-ed25519")
            key.write_private_key(folder / name)
            key.write_public_key(folder / f"{name}.pub")
        server = await asyncssh.listen(
            "127.0.0.1", 0, server_host_keys=[str(folder / "host_key")],
            authorized_client_keys=str(folder / "key.pub"), process_factory=run, encoding=None,
        )
        port = server.get_port()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} " + (folder / "host_key.pub").read_text())
        (folder / "port.tmp").write_text(str(port))
        (folder / "port.tmp").rename(folder / "port")
        await server.wait_closed()

    asyncio.run(main())
    """


class SshServer:
    """Lets one user in, by key, and runs what it is asked to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.canary = uuid.uuid4().hex
        """In the environment of the server and of everything that it starts."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SshServer:
        folder = self._folder
        folder.mkdir()
        self._process = subprocess.Popen(
            [sys.executable, "-c", dedent(SSH_SERVER), str(folder)],
            env={"HOME": str(folder), "PATH": os.environ["PATH"], "TMPDIR": str(folder), CANARY: self.canary},
            stdin=subprocess.DEVNULL,
        )
        eventually((folder / "port").exists, "the SSH server listens", alive=self._process)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        eventually(lambda: not kill_all(set(self.alive())), "nothing is left of what the server has run")

    @property
    def port(self) -> int:
        return int((self._folder / "port").read_text())

    def connect_options(self, port: int = 0) -> str:
        return (
            f'{{ username = "ada", port = {port or self.port}, client_keys = ["{self._folder}/key"], '
            f'known_hosts = "{self._folder}/known_hosts" }}'
        )

    def alive(self) -> dict[int, str]:
        """The command lines of what it has started, and of what that has started."""
        found = {}
        for pid in carriers(CANARY, self.canary):
            with suppress(OSError):  # it has just ended
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        if self._process is not None:
            found.pop(self._process.pid, None)
        return found


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[SshServer]:
    with SshServer(tmp_path / "ssh") as server:
        yield server


def on_ssh(connect_options: str, *, more: str = "") -> str:
    return f"""
        [run]
        concurrency = 4
        [engine]
        on = "ssh"
        {more}
        [engine.options]
        hosts = ["127.0.0.1", "127.0.0.1", "127.0.0.1"]
        remote_python = "{sys.executable}"
        connect_options = {connect_options}
        worker_options = {{ nthreads = 2, host = "127.0.0.1" }}
        scheduler_options = {{ host = "127.0.0.1", dashboard_address = "127.0.0.1:0" }}
        """


def test_hosts_over_ssh_do_what_this_machine_would_and_nothing_is_left_there(
    begin: Begin, ssh: SshServer, here: JobFolder, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "job", more=on_ssh(ssh.connect_options()))
    (job / "hold").touch()
    launch = begin("start", "job.toml", cwd=job.folder)
    eventually(lambda: len(job.ran()) == 4, "four items run", alive=launch)
    [scheduler] = [
        pid for pid, line in ssh.alive().items() if re.match(r"\S+ -m .* --spec .*distributed.Scheduler", line)
    ]
    # So that it does not stay for ever when the runner is killed.
    assert configuration_of(scheduler)["distributed"]["scheduler"]["idle-timeout"] == "30 minutes"
    (job / "hold").unlink()
    assert "distributed" not in finish(launch)
    eventually(lambda: not ssh.alive(), "nothing is left")
    check_same(job, here)


def configuration_of(pid: int) -> dict[str, dict[str, dict[str, str]]]:
    """Of Dask, as a process has inherited it."""
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    [text] = [one for one in environ if one.startswith(b"DASK_INTERNAL_INHERIT_CONFIG=")]
    found: dict[str, dict[str, dict[str, str]]] = dask.config.deserialize(text.partition(b"=")[2].decode())
    return found


def test_attempts_over_ssh_end_with_the_runner_and_idle_workers_stay(
    begin: Begin, ssh: SshServer, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "job", more=on_ssh(ssh.connect_options()))
    (job / "hold").touch()
    launch = begin("start", "job.toml", cwd=job.folder)
    eventually(lambda: len(job.ran()) == 4, "four items run", alive=launch)
    ours = partial(re.search, r"agentrun[./](executors|system)")
    assert any(ours(line) for line in ssh.alive().values())
    launch.kill()
    eventually(lambda: not any(ours(line) for line in ssh.alive().values()), "no attempt is left, and no host")
    assert any("distributed.Scheduler" in line for line in ssh.alive().values())


def test_a_host_that_ssh_does_not_reach_ends_the_launch_with_the_reason(ssh: SshServer, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", more=on_ssh(ssh.connect_options(port=1)))
    ended = job.run("start", "job.toml")
    assert ended.returncode == 75 and "Connect call failed ('127.0.0.1', 1)" in ended.stderr


def test_a_worker_over_ssh_that_does_not_start_ends_the_launch_and_the_scheduler_with_it(
    ssh: SshServer, tmp_path: Path
) -> None:
    job = make_job(tmp_path / "job", more=on_ssh(ssh.connect_options()).replace("nthreads", "nthread"))
    ended = job.run("start", "job.toml")
    assert ended.returncode == 75 and "Worker failed to start" in ended.stderr
    eventually(lambda: not ssh.alive(), "nothing is left")


def test_hosts_over_ssh_cannot_adapt(ssh: SshServer, tmp_path: Path) -> None:
    job = make_job(tmp_path / "job", more=on_ssh(ssh.connect_options(), more="adapt = { maximum = 2 }"))
    ended = job.run("start", "job.toml")
    assert ended.returncode == 2 and "remove adapt" in ended.stderr
    assert ssh.alive() == {}


# ---- Kubernetes

LIKE_KUBE_CLUSTER = """
    from distributed import LocalCluster

    class Cluster(LocalCluster):
        plan = ()

        def __init__(self, **options):
            super().__init__(
                n_workers=0, threads_per_worker=1, host="127.0.0.1", dashboard_address="127.0.0.1:0", **options
            )

        async def scale(self, n, worker_group="default"):
            note("scale", n)
            super().scale(n)

        async def adapt(self, minimum=None, maximum=None):
            note("adapt", minimum, maximum)
            super().adapt(minimum=minimum, maximum=maximum)

    def note(*words):
        with open("asked.log", "a") as log:
            print(*words, file=log)
    """
"""Asks as KubeCluster must be asked: no cores, and nothing happens before it is awaited."""


@pytest.mark.parametrize(
    ("adapt", "asked"),
    [("", ["scale 4", "scale 0"]), ("adapt = { minimum = 0, maximum = 2 }", ["scale 1", "adapt 0 2", "scale 0"])],
    ids=["fixed", "adapts"],
)
def test_a_deployer_whose_methods_are_coroutines_and_that_counts_workers_alone(
    begin: Begin, here: JobFolder, tmp_path: Path, adapt: str, asked: list[str]
) -> None:
    engine = f'[engine]\non = "dask:like_kube:Cluster"\n{adapt}\n'
    job = make_job(tmp_path / "job", more=f"[run]\nconcurrency = 4\n{engine}")
    (job / "like_kube.py").write_text(dedent(LIKE_KUBE_CLUSTER))
    finish(begin("start", "job.toml", cwd=job.folder, PYTHONPATH=str(job.folder)))
    check_same(job, here)
    assert job.lines("asked.log") == asked
