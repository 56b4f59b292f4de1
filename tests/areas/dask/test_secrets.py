"""The values of env_file and needs_env: agents have them, and nothing else on the cluster does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from areas.dask.conftest import Begin, finish, make_job
from cluster.dask_servers import serve_dask
from waiting import eventually

SECRETS = {"FROM_FILE": "canary-of-the-file-4711", "FROM_OUTSIDE": "canary-from-outside-0815"}
AGENT = """
    import hashlib, os, pathlib, time

    def agent(item):
        here = pathlib.Path(__file__).parent
        (here / "begun").touch()
        while (here / "hold").exists():
            time.sleep(0.01)
        return [hashlib.sha256(os.environ[name].encode()).hexdigest() for name in ("FROM_FILE", "FROM_OUTSIDE")]
    """
LOOK = """
import pickle, sys
from distributed import Client

def look(dask_scheduler):
    tasks = {key: (repr(task.run_spec), pickle.dumps(task.run_spec)) for key, task in dask_scheduler.tasks.items()}
    return repr(dask_scheduler._to_dict(exclude=())) + repr(dask_scheduler.get_events()) + repr(tasks)

def look_at_worker(dask_worker):
    return repr(dask_worker._to_dict(exclude=())) + repr(dask_worker.get_logs())

with Client(scheduler_file=sys.argv[1]) as client:
    client.dump_cluster_state(sys.argv[2], format="yaml")
    with open(sys.argv[2] + ".more", "w") as file:
        file.write(client.run_on_scheduler(look))
        file.write(repr(client.run(look_at_worker)))
        file.write(repr(client.get_events()))
        file.write(repr(client.get_scheduler_logs()))
"""
"""The state of a cluster, as seen by whoever may ask its scheduler."""


def test_a_secret_is_in_no_log_state_environment_or_command_line_of_the_cluster(begin: Begin, tmp_path: Path) -> None:
    head = 'agent = "agent.py:agent"\nenv_file = ".env"\nneeds_env = ["FROM_OUTSIDE"]'
    job = make_job(tmp_path / "job", agent=AGENT, head=head, items=4)
    (job / ".env").write_text(f"FROM_FILE={SECRETS['FROM_FILE']}\n")
    (job / "hold").touch()
    reference = make_job(tmp_path / "here", agent=AGENT, head=head, items=4)
    (reference / ".env").write_text((job / ".env").read_text())
    with serve_dask(
        DASK_LOGGING__DISTRIBUTED="debug", DASK_DISTRIBUTED__ADMIN__LOW_LEVEL_LOG_LENGTH="100000"
    ) as servers:
        servers.start_worker("worker")
        servers.await_worker("worker")
        launch = begin(
            "start", "job.toml", "--on", servers.on, "-j", "2", cwd=job.folder, FROM_OUTSIDE=SECRETS["FROM_OUTSIDE"]
        )
        here = reference.run("start", "job.toml", "--on", "here", FROM_OUTSIDE=SECRETS["FROM_OUTSIDE"])
        assert here.returncode == 0, here.stderr
        eventually((job / "begun").exists, "an item has begun", alive=launch)
        state = tmp_path / "state"
        subprocess.run([sys.executable, "-c", LOOK, str(servers.file), str(state)], check=True)
        seen = {name: Path(f"/proc/{servers.pid(name)}/environ").read_bytes() for name in ("scheduler", "worker")}
        for pid in (*servers.started(), servers.pid("scheduler"), servers.pid("worker")):
            seen[f"arguments of {pid}"] = Path(f"/proc/{pid}/cmdline").read_bytes()
        (job / "hold").unlink()
        finish(launch)
        for name in ("scheduler", "worker"):
            seen[f"log of {name}"] = servers.log(name).encode()
    for path in (state.with_name("state.yaml"), state.with_name("state.more")):
        seen[path.name] = path.read_bytes()
    assert job.results == reference.results
    # The evidence is of the kind that it should be: all of it was looked at while a slot was held.
    assert b"-slot-0" in seen["state.yaml"] and b"hold_slot" in seen["state.more"]
    assert all(b" - DEBUG - " in seen[f"log of {name}"] for name in ("scheduler", "worker"))
    found = [(name, secret) for name, text in seen.items() for secret in SECRETS.values() if secret.encode() in text]
    assert found == []
