"""Prefect with persisted results: a flow that calls a task an item, on the server that it starts for itself.

    python -m benchmarks.contenders.prefect_tasks [resume]

Results go to files under PREFECT_HOME, which is in the measured folder; Prefect does not fsync them, so less is
promised than by the others. A task's cache key is its inputs. To resume is to run the flow again: what has a persisted
result is not called.
"""

from __future__ import annotations

import os
from typing import Any

# Read when Prefect is imported. The folder is of this run alone; nothing is sent anywhere.
os.environ |= {
    "PREFECT_HOME": os.path.abspath("prefect"),
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_LEVEL": "ERROR",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
}

from prefect import flow, task
from prefect.cache_policies import INPUTS

from benchmarks import work


@task(persist_result=True, cache_policy=INPUTS)
def step(data: dict[str, Any]) -> dict[str, str]:
    return work.produce(data)


@flow(persist_result=True)
def batch() -> int:
    count = 0
    for data in work.read_items(work.source()):
        step(data)
        count += 1
    return count


if __name__ == "__main__":
    batch()
